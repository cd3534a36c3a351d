import type { ModelEmitter } from "../../src/agent/model-emitter.ts";

/** An emitter that keeps what it was told, and throws where it is used as no driver could bear. */
export class RecordingEmitter implements ModelEmitter {
  /** `open text-0`, `text-0 "Hel"`, `end text-0` … in the order of the calls. */
  readonly log: string[] = [];
  readonly open = new Set<string>();
  /** Per block all that was emitted, in the order of opening. */
  readonly blocks = new Map<string, { text: string; blobs: string[] }>();
  pumped: (() => Promise<void> | undefined) | undefined;

  text() {
    if ([...this.open].some((id) => id.startsWith("text"))) throw new Error("a second text while one is open");
    return this.#block("text");
  }
  reasoning() {
    return this.#block("reasoning");
  }
  call(name: string) {
    const { id, delta, ...rest } = this.#block("call", name);
    return { id, args: delta, ...rest };
  }
  pump() {
    return this.pumped?.();
  }

  #block(kind: string, name?: string) {
    const id = `${kind}-${[...this.blocks.keys()].filter((other) => other.startsWith(kind)).length}`;
    const block = { text: "", blobs: [] as string[] };
    this.blocks.set(id, block);
    this.open.add(id);
    this.log.push(`open ${id}${name === undefined ? "" : ` ${name}`}`);
    const say = (what: string): void => {
      if (!this.open.has(id)) throw new Error(`${id} has ended: ${what}`);
      this.log.push(`${id} ${what}`);
    };
    return {
      id,
      delta: (text: string) => {
        if (text === "") throw new Error("an empty delta, which the protocol refuses");
        block.text += text;
        say(JSON.stringify(text));
      },
      encryptedValue: (blob: string) => {
        block.blobs.push(blob);
        say(`blob ${blob}`);
      },
      end: () => {
        say("end");
        this.open.delete(id);
      },
    };
  }
}
