/** Where a model's answer streams to. Each part that is opened has a lane of its own, so several may be open at once. */
export interface ModelEmitter {
  /** A text block. At most one is open at a time, and their texts in this order are the answer's text. */
  text(): EmittedText;
  reasoning(): EmittedReasoning;
  /** A tool call. Whether it may be shown as whole is known when the answer is, so its end waits with whoever implements this. */
  call(name: string): EmittedCall;
  /** Something to wait for while what was emitted is ahead of where it goes. */
  pump(): Promise<void> | undefined;
}

export interface EmittedText {
  delta(text: string): void;
  end(): void;
}

export interface EmittedReasoning extends EmittedText {
  encryptedValue(blob: string): void;
}

export interface EmittedCall {
  /** The call's id on the wire. */
  readonly id: string;
  args(delta: string): void;
  encryptedValue(blob: string): void;
  end(): void;
}
