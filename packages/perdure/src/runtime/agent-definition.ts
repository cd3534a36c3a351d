import type { RunContext, Transformer } from "../emit/types.ts";
import type { Schema } from "../protocol/schema.ts";

/** The typed state of an agent. */
export interface StateDefinition<S> {
  /** What a state sent by a client has to fit. Without it any JSON is taken. */
  readonly schema?: Schema<unknown, S>;
  /** The state of a new thread. */
  readonly initial: () => S;
}

/** An agent as the runner needs it: a name, a typed state and a body. */
export interface Agent<S = unknown> {
  readonly name: string;
  readonly description?: string;
  readonly state?: StateDefinition<S>;
  /** Rewrite the stream before it is verified, in this order. */
  readonly transformers?: readonly Transformer[];
  /** What a closed connection means: the run goes on, or it is cancelled. Default `detach`. */
  readonly disconnect?: "detach" | "cancel";
  // A method, because methods compare bivariantly: so agents of all states go into one list.
  run(ctx: RunContext<S>): Promise<unknown>;
}
