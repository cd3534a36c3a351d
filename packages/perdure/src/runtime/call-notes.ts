import type { LoopCall } from "./agent-definition.ts";
import type { KeyWait } from "./keys.ts";

/** What a driver has found out about calls, and does not ask again. */
export interface CallNotes {
  /** Its body runs: what it does may be half done from now on. */
  begun(call: LoopCall): void;
  /** It may run: nobody has to approve it. */
  cleared(call: LoopCall): void;
  /** `reconcile` was asked, and did not say that it was applied. */
  judged(call: LoopCall): void;
  /** Its tool is the one with which it began, or can go on with it. */
  agreed(call: LoopCall): void;
  /** It waits for an operator. */
  disagreed(call: LoopCall): void;
  /** Somebody else has its key. */
  held(call: LoopCall, wait: KeyWait): void;
}
