/** What stays while processes come and go: the disk, the clock, and the count of all that was made and passed. */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Uid } from "../protocol/words.ts";
import { memory } from "../store/memory.ts";
import { sqlite } from "../store/sqlite.ts";
import type { EventStore } from "../store/store.ts";
import type { Place } from "./places.ts";

/** What a store has to be made with. */
export interface DiskSettings {
  /** The one clock of a play. Milliseconds. */
  readonly clock: () => number;
  /** Long: a lease must not run out while the clock jumps. Milliseconds. */
  readonly leaseMs: number;
}

/** What keeps a store while processes come and go. */
export interface Disk {
  /** The store as the next process finds it. The one before has died. */
  next(settings: DiskSettings): EventStore;
  /** Nobody needs it any more. */
  remove(): Promise<void>;
}

/** Keeps the rows in memory: the fast one, for everything but the file itself. */
export function memoryDisk(): Disk {
  let store: EventStore | undefined;
  return {
    next(settings) {
      store ??= memory(settings);
      return store;
    },
    async remove() {},
  };
}

/** SQLite files in a temporary folder. What a process leaves when it dies is copied as it lies there; the copy has no owner. */
export function sqliteDisk(): Disk {
  const dir = mkdtempSync(join(tmpdir(), "perdure-crash-"));
  let generation = 0;
  let store: EventStore | undefined;
  const file = () => join(dir, `${generation}.db`);
  return {
    next(settings) {
      const left = file();
      generation += 1;
      for (const part of ["", "-wal"]) if (existsSync(left + part)) copyFileSync(left + part, file() + part);
      // Only to let go of its files: nobody looks at them any more.
      void store?.close();
      store = sqlite(file(), settings);
      return store;
    },
    async remove() {
      await store?.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** How far a clock may jump to a timer. Longer ones are leases and questions that stand for days. Milliseconds. */
const LONGEST_WAIT = 1e8;
const LEASE_MS = 1e9;

export class Outside {
  readonly #visits = new Map<string, { readonly place: Place; times: number }>();
  #at = 1_700_000_000_000;
  #uids = 0;
  /** Grows with all that happens, so that one can see whether anything still does. */
  progress = 0;

  constructor(readonly disk: Disk) {}

  /** Called before the clock jumps to a time. @returns whether there is something else to do first */
  beforeJump: () => Promise<boolean> = () => Promise.resolve(false);

  /** Moves on whenever somebody looks, so that every delta is a frame of its own and no play waits for a window. */
  readonly clock = (): number => {
    this.#at += 40;
    return this.#at;
  };

  /** Runs count from 1, in the order in which they were begun. */
  readonly newUid = (): Uid => {
    this.#uids += 1;
    return `run-${this.#uids}` as Uid;
  };

  /** The store of the next process. Whoever waits for a time while a leg is open does not wait: the clock jumps there. */
  nextStore(): EventStore {
    const store = this.disk.next({ clock: this.clock, leaseMs: LEASE_MS });
    const nextReadyAt = async (): Promise<number | null> => {
      const at = await store.nextReadyAt();
      if (at === null || at <= this.#at || at - this.#at > LONGEST_WAIT) return at;
      // At rest it is the outside that is waited for, and a question must not expire before its answer.
      const runs = await store.runs({ tenant: "local", limit: 500 });
      const isDue = runs.items.some(({ legOpen, outcome }) => legOpen && outcome === null);
      if (isDue && !(await this.beforeJump())) this.#at = at;
      return at;
    };
    return new Proxy(store, {
      get(target, name) {
        if (name === "nextReadyAt") return nextReadyAt;
        const member: unknown = Reflect.get(target, name);
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
  }

  /** A body has come to a place. @returns how often some body has, by now */
  visited(place: Place): number {
    this.progress += 1;
    const visit = this.#visits.get(place.key) ?? { place, times: 0 };
    visit.times += 1;
    this.#visits.set(place.key, visit);
    return visit.times;
  }

  /** All places that bodies came to, in the order of the first visit. */
  get visits(): readonly { readonly place: Place; readonly times: number }[] {
    return [...this.#visits.values()];
  }
}
