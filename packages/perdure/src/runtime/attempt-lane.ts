/**
 * What the subagents of a tool's body hold: the emitters of a lane, without the request and the questions of a run. A tool asks by ending its
 * attempt, with `suspend`.
 */
import { Branches, Strand } from "../emit/branches.ts";
import { publicError } from "../emit/errors.ts";
import type { Scope } from "../emit/handle.ts";
import type { Lane } from "../emit/lane.ts";
import { type Body, LaneEmitter } from "../emit/lane-emitter.ts";
import { Subagent } from "../emit/subagent.ts";
import type { Branch, BranchResults, SubagentOptions } from "../emit/types.ts";
import type { RecordedError } from "../protocol/words.ts";
import type { ToolLane, ToolSubagent } from "../tool/definition.ts";
import { HandlerError } from "../tool/errors.ts";

class AttemptLane<S> extends LaneEmitter<S> implements ToolLane<S> {
  subagent(options: SubagentOptions): ToolSubagent<S>;
  subagent<T>(options: SubagentOptions, body: Body<ToolSubagent<S>, T>): Promise<T>;
  subagent<T>(options: SubagentOptions, body?: Body<ToolSubagent<S>, T>): ToolSubagent<S> | Promise<T> {
    this.check("subagent()");
    return openSubagent<S, T>(this.scope, options, body);
  }

  parallel<B extends readonly Branch<ToolLane<S>>[] | []>(branches: B): Promise<BranchResults<B>>;
  parallel<T>(branches: readonly ((lane: ToolLane<S>) => Promise<T>)[]): Promise<T[]>;
  parallel<T>(branches: readonly ((lane: ToolLane<S>) => Promise<T>)[]): Promise<T[]> {
    this.check("parallel()");
    const { lane, ...shared } = this.scope;
    const lanes = lane.fork(branches.length);
    // Nothing in here waits for a human, so no strand ever rests.
    const group = new Branches<T>(new Strand(() => {}));
    return group.run(
      branches.map((branch, i) => () => branch(new AttemptLane<S>({ ...shared, lane: lanes[i] as Lane }))),
    );
  }
}

class AttemptSubagent<S> extends AttemptLane<S> implements ToolSubagent<S> {
  readonly #subagent: Subagent;

  constructor({ state }: Scope, subagent: Subagent) {
    super({ outlet: subagent.exit, state, lane: subagent.lane });
    this.#subagent = subagent;
  }

  get id(): string {
    return this.#subagent.id;
  }
  get name(): string {
    return this.#subagent.name;
  }

  end(result?: unknown): void {
    this.#subagent.end(result);
  }

  fail(error: unknown): void {
    this.#subagent.fail(error);
  }

  [Symbol.dispose](): void {
    this.#subagent.abandon("whole");
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.#subagent.described;
  }
}

/** What a tool says of its own failure is public here, too. */
function told(error: unknown): RecordedError {
  return error instanceof HandlerError ? { code: error.code, message: error.message } : publicError(error);
}

/** Begins a subagent in the lane of a scope: its handle, or what a body makes of it. */
export function openSubagent<S, T>(
  scope: Scope,
  options: SubagentOptions,
  body: Body<ToolSubagent<S>, T> | undefined,
): ToolSubagent<S> | Promise<T> {
  const subagent = new Subagent(scope, options, told);
  const handle = new AttemptSubagent<S>(scope, subagent);
  return body === undefined ? handle : subagent.during(handle, body);
}
