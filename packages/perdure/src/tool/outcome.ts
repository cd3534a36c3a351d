import { parseDuration } from "../protocol/duration.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Duration } from "../protocol/words.ts";

/**
 * Marks a suspension. JSON has no symbols, so no output that came from a model or a service can pass for one; it is registered, so two copies
 * of this package in one process still understand each other.
 */
const suspended: unique symbol = Symbol.for("perdure.suspension");

/** What `call` returns to wait for a human. Made by {@link suspend} alone. */
export interface Suspension {
  readonly [suspended]: true;
  readonly message: string;
  readonly reason?: string;
  /** Milliseconds. */
  readonly expiresIn?: number;
  readonly metadata?: Metadata;
}

type Metadata = { readonly [name: string]: Json };

/** The question of a suspension. What an answer looks like is the tool's `answer` schema. */
export interface SuspendRequest {
  /** What the human is asked. */
  readonly message: string;
  /** The interrupt's reason on the wire. Default: `input_required`, or `confirmation` for a boolean answer. */
  readonly reason?: string;
  /** How long the question stands. Default: for ever. */
  readonly expiresIn?: Duration;
  /** For the user interface, on the interrupt's `metadata`: what there is to choose from, for example. */
  readonly metadata?: Metadata;
}

/**
 * Ends the attempt and waits for a human: return it from `call`. The answer goes to the tool's `resume`, in another attempt, perhaps in another
 * process; what ran before does not run again.
 *
 * @throws {@link DurationError} when `expiresIn` is not a duration, {@link NotJsonError} when `metadata` is not JSON
 */
export function suspend({ message, reason, expiresIn, metadata }: SuspendRequest): Suspension {
  return Object.freeze({
    [suspended]: true as const,
    message,
    ...(reason !== undefined && { reason }),
    ...(expiresIn !== undefined && { expiresIn: parseDuration(expiresIn, "expiresIn of a suspension") }),
    ...(metadata !== undefined && { metadata: toJson(metadata, "metadata of a suspension") as Metadata }),
  });
}

export function isSuspension(value: unknown): value is Suspension {
  return typeof value === "object" && value !== null && Object.hasOwn(value, suspended);
}

/** What a suspension asks for. `expiresIn` is in milliseconds. */
export type SuspensionQuestion = Omit<Suspension, typeof suspended>;

/** What one attempt of a tool came to. */
export type ToolOutcome<Output> =
  | { readonly type: "output"; readonly output: Output }
  | ({
      readonly type: "suspend";
      /** JSON Schema of the answer to this one question. Default: the tool's own. */
      readonly answerSchema?: Json;
      /** What the tool needs to go on, in whatever process; nobody is shown it. With it the tool also hears that nobody answers. */
      readonly memo?: Json;
    } & SuspensionQuestion);

/** What became of a question that a tool has asked with a `memo`. */
export interface Reply {
  readonly memo: Json;
  readonly status: "resolved" | "cancelled" | "expired";
  /** Null where nobody has answered. */
  readonly payload: Json;
}

/** What `reconcile` found out about a write whose outcome is not known. */
export type Judgement<Output> =
  | { readonly applied: "yes"; readonly output: Output }
  | { readonly applied: "no" }
  | { readonly applied: "unknown"; readonly note?: string };

/** The write was applied, and this is what it returned, or would have. */
export function applied<Output>(output: Output): Judgement<Output> {
  return { applied: "yes", output };
}

/** The write was not applied; it may be tried again once it is sure that nothing can land any more. */
export function notApplied(): Judgement<never> {
  return { applied: "no" };
}

/** Nobody can tell from here: a human is asked. */
export function unknown(note?: string): Judgement<never> {
  return note === undefined ? { applied: "unknown" } : { applied: "unknown", note };
}
