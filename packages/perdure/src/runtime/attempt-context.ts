import { Activity } from "../emit/activity.ts";
import { Emitter, type Scope } from "../emit/handle.ts";
import { Lane } from "../emit/lane.ts";
import type { Body } from "../emit/lane-emitter.ts";
import { takenIds } from "../emit/leg.ts";
import type { ActivityHandle, SubagentOptions } from "../emit/types.ts";
import { toJson } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { ToolContext, ToolSubagent } from "../tool/definition.ts";
import { openSubagent } from "./attempt-lane.ts";

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
  #subagents: Scope | undefined;

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

  subagent(options: SubagentOptions): ToolSubagent<never>;
  subagent<T>(options: SubagentOptions, body: Body<ToolSubagent<never>, T>): Promise<T>;
  subagent<T>(options: SubagentOptions, body?: Body<ToolSubagent<never>, T>): ToolSubagent<never> | Promise<T> {
    this.check("subagent()");
    this.#subagents ??= this.#laneOfSubagents();
    return openSubagent<never, T>(this.#subagents, { ...this.#callToShow(), ...options }, body);
  }

  /**
   * What the body itself shows has the same ids in every attempt, and takes the place of what an earlier one has shown. What subagents show
   * never does: clients remember whose an id was.
   */
  #laneOfSubagents(): Scope {
    const { outlet, lane } = this.scope;
    return { ...this.scope, lane: new Lane(lane.path, lane.prefix, takenIds(outlet.messages)) };
  }

  /** Where user interfaces put a subagent of this call. */
  #callToShow(): Pick<SubagentOptions, "parentToolCallId" | "parentMessageId"> {
    const { toolCallId } = this.#facts;
    const parent = this.scope.outlet.messages.findLast(
      (message) => message.role === "assistant" && message.toolCalls?.some(({ id }) => id === toolCallId),
    );
    return { parentToolCallId: toolCallId, ...(parent !== undefined && { parentMessageId: parent.id }) };
  }

  progress(value: unknown): void {
    const { toolCallId, toolName } = this.#facts;
    this.custom("perdure.progress", { toolCallId, value: toJson(value, `progress of tool \`${toolName}\``) });
  }

  log(message: string, data?: unknown): void {
    this.#facts.log(message, data);
  }
}
