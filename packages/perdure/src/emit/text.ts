import { INCOMPLETE } from "../protocol/closing.ts";
import { type AGUIEvent, event, type Metadata } from "../protocol/events.ts";
import { Block, metadataOf, type Scope } from "./handle.ts";
import type { BlockOptions, MessageHandle, MessageOptions, ReasoningHandle } from "./types.ts";

/**
 * Keeps the first half of a surrogate pair back until the second comes: models cut between them, and each half alone is not text,
 * so protobuf and many parsers would turn both into U+FFFD.
 */
export class PairKeeper {
  #half = "";

  /** What can go out of `text` now. It counts as sent once it is {@link took}, so a text that was refused can be given again. */
  ready(text: string): string {
    const all = this.#half === "" ? text : this.#half + text;
    return isCut(all) ? all.slice(0, -1) : all;
  }

  took(text: string): void {
    if (text !== "") this.#half = isCut(text) ? text.slice(-1) : "";
  }

  /** A half whose other one never came. */
  rest(): string {
    return this.#half === "" ? "" : "\ufffd";
  }
}

function isCut(text: string): boolean {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff;
}

export class TextBlock<S> extends Block<S> implements MessageHandle<S> {
  readonly #pairs = new PairKeeper();

  constructor(scope: Scope, options: MessageOptions = {}) {
    const id = scope.lane.mint("message");
    const { role = "assistant", name } = options;
    const label = `message ${id}`;
    super(scope, id, label, [
      event("TEXT_MESSAGE_START", { messageId: id, role, name, ...metadataOf(options, label) }),
    ]);
  }

  delta(text: string): void {
    this.check("delta()");
    const delta = this.#pairs.ready(text);
    if (delta !== "") this.send({ type: "TEXT_MESSAGE_CONTENT", messageId: this.id, delta });
    this.#pairs.took(text);
  }

  async pipe(text: AsyncIterable<string>): Promise<void> {
    for await (const piece of text) {
      this.delta(piece);
      if (this.scope.outlet.congested) await this.scope.outlet.drained();
    }
  }

  protected closing(isCut: boolean, metadata?: Metadata): readonly AGUIEvent[] {
    const rest = this.#pairs.rest();
    return [
      ...(rest === "" ? [] : [event("TEXT_MESSAGE_CONTENT", { messageId: this.id, delta: rest })]),
      event("TEXT_MESSAGE_END", { messageId: this.id, metadata: isCut ? INCOMPLETE : metadata }),
    ];
  }
}

export class ReasoningBlock<S> extends Block<S> implements ReasoningHandle<S> {
  readonly #pairs = new PairKeeper();

  constructor(scope: Scope, options: BlockOptions = {}) {
    const id = scope.lane.mint("reasoning");
    const label = `reasoning ${id}`;
    super(scope, id, label, [
      event("REASONING_START", { messageId: id }),
      event("REASONING_MESSAGE_START", { messageId: id, role: "reasoning", ...metadataOf(options, label) }),
    ]);
  }

  delta(text: string): void {
    this.check("delta()");
    const delta = this.#pairs.ready(text);
    if (delta !== "") this.send({ type: "REASONING_MESSAGE_CONTENT", messageId: this.id, delta });
    this.#pairs.took(text);
  }

  encryptedValue(blob: string): void {
    this.check("encryptedValue()");
    this.send({ type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: this.id, encryptedValue: blob });
  }

  protected closing(isCut: boolean, metadata?: Metadata): readonly AGUIEvent[] {
    const rest = this.#pairs.rest();
    return [
      ...(rest === "" ? [] : [event("REASONING_MESSAGE_CONTENT", { messageId: this.id, delta: rest })]),
      event("REASONING_MESSAGE_END", { messageId: this.id, metadata: isCut ? INCOMPLETE : metadata }),
      event("REASONING_END", { messageId: this.id }),
    ];
  }
}
