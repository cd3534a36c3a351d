/** Shows a model call while it streams: each part in a lane of its own, under ids that are the same in every attempt. */
import type { Outlet } from "../emit/outlet.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { idAt } from "../protocol/ids.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { EmittedCall, EmittedReasoning, EmittedText, ModelEmitter } from "./model-emitter.ts";

export class ModelStepEmitter implements ModelEmitter {
  readonly messageId: string;
  /** The ends of calls, which go out with the recorded step: a front end that runs calls on their END must not run one of a cut attempt. */
  readonly heldBack: { readonly event: AGUIEvent; readonly lane: Path }[] = [];
  #parts = 0;
  #isShown = false;

  constructor(
    private readonly outlet: Outlet,
    private readonly uid: Uid,
    private readonly path: Path,
  ) {
    this.messageId = idAt(uid, path, "message", 0);
  }

  /** Whether clients hold a message of this step. */
  get isShown(): boolean {
    return this.#isShown;
  }

  text(): EmittedText {
    const lane = this.#lane();
    this.#isShown = true;
    const { messageId } = this;
    // A later block opens the same message again, which appends to it (AG-UI 1.0, reopening).
    this.outlet.send(lane, { type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
    return {
      delta: (delta) => this.#delta(lane, { type: "TEXT_MESSAGE_CONTENT", messageId, delta }),
      end: () => this.outlet.sendClosing(lane, { type: "TEXT_MESSAGE_END", messageId }),
    };
  }

  reasoning(): EmittedReasoning {
    const lane = this.#lane();
    const messageId = idAt(this.uid, lane, "reasoning", 0);
    this.outlet.send(
      lane,
      { type: "REASONING_START", messageId },
      { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    );
    return {
      delta: (delta) => this.#delta(lane, { type: "REASONING_MESSAGE_CONTENT", messageId, delta }),
      encryptedValue: (encryptedValue) =>
        this.outlet.send(lane, {
          type: "REASONING_ENCRYPTED_VALUE",
          subtype: "message",
          entityId: messageId,
          encryptedValue,
        }),
      end: () =>
        this.outlet.sendClosing(
          lane,
          { type: "REASONING_MESSAGE_END", messageId },
          { type: "REASONING_END", messageId },
        ),
    };
  }

  call(name: string): EmittedCall {
    const lane = this.#lane();
    this.#isShown = true;
    const id = idAt(this.uid, lane, "call", 0);
    this.outlet.send(lane, {
      type: "TOOL_CALL_START",
      toolCallId: id,
      toolCallName: name,
      parentMessageId: this.messageId,
    });
    return {
      id,
      args: (delta) => this.#delta(lane, { type: "TOOL_CALL_ARGS", toolCallId: id, delta }),
      encryptedValue: (encryptedValue) =>
        this.outlet.send(lane, {
          type: "REASONING_ENCRYPTED_VALUE",
          subtype: "tool-call",
          entityId: id,
          encryptedValue,
        }),
      end: () => void this.heldBack.push({ event: { type: "TOOL_CALL_END", toolCallId: id }, lane }),
    };
  }

  pump(): Promise<void> | undefined {
    return this.outlet.congested ? this.outlet.drained() : undefined;
  }

  #delta(lane: Path, event: AGUIEvent & { delta: string }): void {
    if (event.delta !== "") this.outlet.send(lane, event);
  }

  #lane(): Path {
    return `${this.path}.${this.#parts++}` as Path;
  }
}
