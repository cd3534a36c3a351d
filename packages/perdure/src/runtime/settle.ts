import type { Json } from "../protocol/json.ts";
import type { RecordedError } from "../protocol/words.ts";

/** The end of a step that no body brings about. */
export type Settle =
  | { readonly by: "answer"; readonly output: Json }
  /** Its body has ended after all, when nobody waited for it any more. */
  | { readonly by: "late"; readonly output: Json }
  | { readonly by: "error"; readonly error: RecordedError; readonly applied: "no" | "unknown" }
  | { readonly by: "cancel" };
