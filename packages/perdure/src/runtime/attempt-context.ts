import { Activity } from "../emit/activity.ts";
import { Emitter, type Scope } from "../emit/handle.ts";
import type { ActivityHandle } from "../emit/types.ts";
import { toJson } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { ToolContext } from "../tool/definition.ts";

export interface AttemptFacts {
  readonly run: Uid;
  readonly path: Path;
  readonly epoch: number;
  readonly attempt: number;
  readonly toolName: string;
  readonly toolCallId: string;
  readonly idempotencyKey: string;
  readonly signal: AbortSignal;
  readonly log: (message: string, data?: unknown) => void;
}

/** What the body of a tool holds during one attempt. */
export class AttemptContext extends Emitter<never> implements ToolContext<never> {
  readonly #facts: AttemptFacts;

  constructor(scope: Scope, facts: AttemptFacts) {
    super(scope);
    this.#facts = facts;
  }

  get idempotencyKey(): string {
    return this.#facts.idempotencyKey;
  }
  get attempt(): number {
    return this.#facts.attempt;
  }
  get fence() {
    return { run: this.#facts.run, epoch: this.#facts.epoch };
  }
  get run(): Uid {
    return this.#facts.run;
  }
  get path(): Path {
    return this.#facts.path;
  }
  get signal(): AbortSignal {
    return this.#facts.signal;
  }

  activity<C extends object>(type: string, content: C): ActivityHandle<C> {
    this.check("activity()");
    return new Activity<C>(this.scope, type, content);
  }

  progress(value: unknown): void {
    const { toolCallId, toolName } = this.#facts;
    this.custom("perdure.progress", { toolCallId, value: toJson(value, `progress of tool \`${toolName}\``) });
  }

  log(message: string, data?: unknown): void {
    this.#facts.log(message, data);
  }
}
