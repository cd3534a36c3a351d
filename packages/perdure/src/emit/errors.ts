import { PerdureError } from "../protocol/errors.ts";
import { describeIssues, type Issue } from "../protocol/validate.ts";
import type { RecordedError } from "../protocol/words.ts";

/** Two blocks would be open in one lane. */
export class BlockOpenError extends PerdureError {
  override readonly name = "BlockOpenError";
  constructor(
    /** The block that could not be opened or the step that could not be closed, for example ``tool call `add_task` ``. */
    readonly wanted: string,
    /** The block that stands in its way. */
    readonly open: string,
  ) {
    super(
      "BLOCK_OPEN",
      `${wanted} has to wait: ${open} is open in this lane; end it first, or give each a lane with ctx.parallel`,
    );
  }
}

/** A handle was used after its end. */
export class HandleClosedError extends PerdureError {
  override readonly name = "HandleClosedError";
  constructor(
    readonly block: string,
    readonly operation: string,
  ) {
    super("HANDLE_CLOSED", `${block} has ended: ${operation} came too late; open a new one`);
  }
}

/** The arguments of a tool call are not a whole JSON text yet. */
export class ArgumentsIncompleteError extends PerdureError {
  override readonly name = "ArgumentsIncompleteError";
  constructor(
    readonly toolName: string,
    readonly rawArgs: string,
    cause: unknown,
  ) {
    super(
      "ARGUMENTS_INCOMPLETE",
      `the arguments of tool call \`${toolName}\` are not a whole JSON text after ${rawArgs.length} characters; stream the rest with args() first`,
      { cause },
    );
  }
}

/** The arguments of a tool call are whole JSON, and not what the schema asks for. */
export class ArgumentsInvalidError extends PerdureError {
  override readonly name = "ArgumentsInvalidError";
  constructor(
    readonly toolName: string,
    readonly issues: readonly Issue[],
  ) {
    super(
      "ARGUMENTS_INVALID",
      `the arguments of tool call \`${toolName}\` do not fit its schema: ${describeIssues(issues)}`,
    );
  }
}

/** A human's answer does not fit the schema that the question named. */
export class AnswerInvalidError extends PerdureError {
  override readonly name = "AnswerInvalidError";
  constructor(
    readonly interruptId: string,
    readonly issues: readonly Issue[],
  ) {
    super(
      "ANSWER_INVALID",
      `the answer to interrupt ${interruptId} does not fit its schema: ${describeIssues(issues)}; ask again`,
    );
  }
}

/** Agent code tried to write what only the runner writes. */
export class LifecycleEventError extends PerdureError {
  override readonly name = "LifecycleEventError";
  constructor(readonly eventType: string) {
    super(
      "LIFECYCLE_EVENT",
      `${eventType} is the runner's to send: return a value, throw, or call ctx.interrupt instead`,
    );
  }
}

/** More than 16 MiB wait to be read or logged. */
export class BacklogFullError extends PerdureError {
  override readonly name = "BacklogFullError";
  constructor(readonly pendingBytes: number) {
    super(
      "BACKLOG_FULL",
      `${pendingBytes} bytes of events wait to be taken; await ctx.flushed() or use pipe(), which waits by itself`,
    );
  }
}

/** A transformer dropped, changed or made a STATE event. */
export class TransformerStateError extends PerdureError {
  override readonly name = "TransformerStateError";
  constructor(
    readonly transformer: string,
    readonly eventType: string,
  ) {
    super(
      "TRANSFORMER_STATE",
      `transformer "${transformer}" changed what the stream says of the state, at ${eventType}: clients would not hold what the next delta is made from; pass STATE events on, and change the state itself`,
    );
  }
}

/** The leg that this code belongs to is over, by whatever cause. Let it pass: the code has nothing left to do. */
export class RunInterrupted extends PerdureError {
  override readonly name = "RunInterrupted";
  constructor(
    readonly runId: string,
    readonly because: "cancelled" | "ended" | "lease-lost",
  ) {
    super("RUN_INTERRUPTED", `run ${runId} ${interruptedBecause[because]}; nothing more can be sent from here`);
  }
}
const interruptedBecause = {
  cancelled: "was cancelled",
  ended: "has ended",
  "lease-lost": "is driven by another process now",
} as const;

/** How an agent reports a failure of its own: code and message go to the client, the cause does not. */
export class AgentError extends PerdureError {
  override readonly name = "AgentError";
  /**
   * @param message - for the person at the client
   * @param options - `code`: stable, in upper snake case, default `AGENT_ERROR`; `cause`: kept on the server
   */
  constructor(message: string, options: { readonly code?: string; readonly cause?: unknown } = {}) {
    super(options.code ?? "AGENT_ERROR", message, options.cause === undefined ? undefined : { cause: options.cause });
  }
}

/** Two questions of one leg have the same id, so no answer could tell them apart. */
export class DuplicateInterruptError extends PerdureError {
  override readonly name = "DuplicateInterruptError";
  constructor(readonly interruptId: string) {
    super(
      "DUPLICATE_INTERRUPT",
      `interrupt ${interruptId} was asked twice in this run; give each question an id of its own`,
    );
  }
}

/** What a client is told of what a cancel has cut. */
export const CANCELLED: RecordedError = { code: "CANCELLED", message: "The run was cancelled." };

/**
 * What a client may know of a failure: an {@link AgentError} speaks for itself, of everything else only the code is told. Raw texts
 * of exceptions hold addresses, queries and secrets.
 */
export function publicError(error: unknown): RecordedError {
  if (error instanceof AgentError) return { code: error.code, message: error.message };
  const code = error instanceof PerdureError ? error.code : "INTERNAL";
  return { code, message: `The agent failed (${code}).` };
}
