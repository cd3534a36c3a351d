import type { Json } from "../protocol/json.ts";
import type { Effect } from "../protocol/words.ts";
import type { Approval, ToolContext } from "./definition.ts";
import type { Judgement, Reply, ToolOutcome } from "./outcome.ts";

/** A tool without its types: what collections hold and the driver calls. Values in and out are JSON as the log holds it. */
export interface DynTool {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly description: string;
  readonly effect: Effect;
  /** JSON Schema (draft 2020-12) of the arguments, for the model. */
  readonly inputSchema: Json;
  /** JSON Schema of the recorded output; null where there is no schema, or none that JSON Schema can express. */
  readonly outputSchema: Json | null;
  /** JSON Schema of the answer to a suspension; null where any JSON answers it. */
  readonly answerSchema: Json | null;
  /** Canonical text of what a recorded call depends on: name, effect and schemas. Equal text, equal contract. */
  readonly contract: string;
  readonly policy: ToolPolicy;
  /** Whether calls of it may have to be approved. */
  readonly mayNeedApproval: boolean;

  /**
   * Runs the tool for one attempt.
   *
   * @throws {@link MissingIdempotencyKey} before anything else; {@link InvalidInput} before the body; {@link HandlerError} when it failed;
   * {@link InvalidOutput} when it did its work and what it returned cannot be recorded
   */
  callJson(input: Json, ctx: ToolContext): Promise<ToolOutcome<Json>>;
  /**
   * Goes on after a suspension.
   *
   * @throws {@link InvalidAnswer} before the body, and those of {@link callJson}
   */
  resumeJson(answer: Json, input: Json, ctx: ToolContext): Promise<Json>;
  /**
   * The same after a question with a `memo`, where the tool asks such: it hears of a dismissal, too, and may ask again.
   *
   * @throws those of {@link callJson}
   */
  goOnJson?(reply: Reply, input: Json, ctx: ToolContext): Promise<ToolOutcome<Json>>;
  /**
   * Whether a recorded call can go on with this definition of the tool.
   *
   * @param answer - to its suspension, where it has one
   * @throws {@link InvalidInput}, {@link InvalidAnswer}
   */
  checkJson(input: Json, answer?: Json): Promise<void>;
  /**
   * Asks whether a call of unknown outcome was applied; `unknown` where the tool cannot tell.
   *
   * @throws {@link InvalidOutput} when it was applied and its output cannot be recorded, and those of {@link callJson}
   */
  reconcileJson(input: Json, ctx: ToolContext): Promise<Judgement<Json>>;
  /**
   * Changes the draft of the state to what success makes of it; nothing where the tool has no `reduce`.
   *
   * @throws {@link ReduceError} when it failed; the draft must be thrown away then
   */
  reduceJson(draft: Json, output: Json, input: Json): void;
  /**
   * Canonical text of the call's business key, or null where it has none.
   *
   * @throws {@link InvalidInput}, {@link HandlerError} (nothing was applied)
   */
  keyFor(input: Json): string | null;
  /** @throws {@link InvalidInput}, {@link HandlerError} (nothing was applied) */
  approvalFor(input: Json): Promise<Approval>;
}

/** The tool's limits with their defaults. Times are in milliseconds. */
export interface ToolPolicy {
  readonly timeout: number;
  readonly settle: number;
  readonly keyWait: number;
  readonly parallel: boolean;
  readonly attempts: number;
}
