import type { Json } from "../protocol/json.ts";
import type { RecordedError } from "../protocol/words.ts";
import type { InvalidOutput } from "../tool/errors.ts";

/** What a write has brought that was applied after all. */
export interface LateOutput {
  readonly output: Json;
  /** Why the output cannot be recorded as it was; then `output` is what could be kept of it. */
  readonly invalid?: InvalidOutput;
}

/** The end of a step that no body brings about. */
export type Settle =
  | { readonly by: "answer"; readonly output: Json }
  /** Its body has ended after all, when nobody waited for it any more. */
  | ({ readonly by: "late" } & LateOutput)
  | { readonly by: "error"; readonly error: RecordedError; readonly applied: "no" | "unknown" }
  | { readonly by: "cancel" };
