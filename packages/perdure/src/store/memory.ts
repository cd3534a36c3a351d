import { EmbeddedStore, notOpen } from "./embedded-store.ts";
import type { Engine, StoreOptions } from "./engine.ts";
import { MemoryRows } from "./memory-rows.ts";
import type { EventStore } from "./store.ts";

/**
 * A store in the memory of this process, gone with it: for tests, and for servers that need no durability. Several drivers may open one store
 * under names of their own. It keeps what it holds when it is closed, so that a test can open it again.
 */
export function memory(options: StoreOptions = {}): EventStore {
  return new EmbeddedStore(new MemoryEngine(), options);
}

class MemoryEngine implements Engine {
  readonly #rows = new MemoryRows();
  #open = false;

  get rows(): MemoryRows {
    if (!this.#open) throw notOpen("in memory");
    return this.#rows;
  }

  async open(): Promise<{ exclusive: boolean; formerOwnerDead: boolean }> {
    const exclusive = !this.#open; // whoever drove it before has closed it
    this.#open = true;
    return { exclusive, formerOwnerDead: false };
  }

  transact<T>(work: () => T): Promise<T> {
    try {
      return Promise.resolve(this.rows.transaction(work));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  faults(): readonly string[] {
    return [];
  }

  async close(): Promise<void> {
    this.#open = false;
  }
}
