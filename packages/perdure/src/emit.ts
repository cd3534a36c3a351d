// The emitting half: what agent code holds.

export {
  AgentError,
  AnswerInvalidError,
  ArgumentsIncompleteError,
  ArgumentsInvalidError,
  BacklogFullError,
  BlockOpenError,
  DuplicateInterruptError,
  HandleClosedError,
  LifecycleEventError,
  RunInterrupted,
  TransformerStateError,
} from "./emit/errors.ts";
export type * from "./emit/types.ts";

// The words it shares with the rest.
export { PerdureError } from "./protocol/errors.ts";
export { type Json, type Jsonify, NotJsonError } from "./protocol/json.ts";
export type { Infer, Schema } from "./protocol/schema.ts";
export type { Issue } from "./protocol/validate.ts";
export type { Duration, Effect, Path, Principal, RecordedError, Uid } from "./protocol/words.ts";
