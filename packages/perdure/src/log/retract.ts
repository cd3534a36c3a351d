import { closingIncomplete, subagentError } from "../protocol/closing.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { isWithin } from "../protocol/ids.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { reduceMessages } from "../protocol/reduce.ts";
import { closingEvent, type OpenItem, openItems } from "../protocol/verify.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Fact, Frame, FrameRef, NewEntry } from "./entries.ts";
import { fold } from "./fold.ts";
import { LogError } from "./log-error.ts";
import { render } from "./render.ts";
import type { RunState } from "./run-state.ts";

/**
 * Takes a cut or failed attempt back from the screen, as one batch: clients end with what they would hold had it never begun, so that the
 * next attempt can say the same under the same ids. Each part is there only where something was shown; where nothing was, the fact stands
 * alone. CUSTOM and RAW cannot be taken back.
 *
 * The snapshot comes first: a call that is gone may be ended with partial arguments, and no client runs it then.
 *
 * @param state - the run while the attempt is running
 * @param cut - says which attempt, and what is known of it
 * @param left - the state that clients are to hold then: the committed one, unless attempts that go on have published drafts of theirs
 * @throws {@link LogError} when that attempt is not running
 */
export function retract(state: RunState, cut: Fact<"step.failed">, left: Json = state.committed): readonly NewEntry[] {
  const { path, n } = cut;
  const running = state.running.get(path);
  if (running?.attempt.n !== n) {
    throw new LogError(state.run.uid, `the retraction of attempt ${n} of step ${path}`, "that attempt is not running");
  }
  const snapshot = refFrame(path, { of: "MESSAGES_SNAPSHOT", without: { path, n } });
  const changes = reduceMessages(state.messages, render(state, snapshot)) !== state.messages;
  const open = openItems(state.wire).filter(({ lane }) => isWithin((lane ?? "") as Path, path));
  const isStateShown = !jsonEqual(state.shown, left);
  const stateSnapshot = jsonEqual(left, state.committed)
    ? refFrame(path, { of: "STATE_SNAPSHOT" })
    : frame(path, { type: "STATE_SNAPSHOT", snapshot: left });
  return [
    ...(changes ? [snapshot] : []),
    ...endsOf(open, (item) => item.kind !== "step" && item.kind !== "subagent"),
    ...endsOf(open, (item) => item.kind === "step"),
    ...endsOf(open, (item) => item.kind === "subagent"),
    ...(isStateShown ? [stateSnapshot] : []),
    cut,
  ];
}

/**
 * Takes back all attempts that a crash has cut, in one batch: what began last goes first, as blocks are closed.
 *
 * @param cuts - in any order
 * @throws {@link LogError} when one of the attempts is not running
 */
export function retractAll(state: RunState, cuts: readonly Fact<"step.failed">[]): readonly NewEntry[] {
  const begun = [...state.running.keys()];
  let after = state;
  return cuts
    .toSorted((a, b) => begun.indexOf(b.path) - begun.indexOf(a.path))
    .flatMap((cut) => {
      const batch = retract(after, cut);
      // Where they will stand is the store's to say; what comes of them does not depend on it.
      after = fold(
        batch.map((entry, i) => ({ ...entry, seq: after.head + 1 + i, at: 0 })),
        after,
      );
      return batch;
    });
}

/**
 * Ends what is open of a step that will not be tried again: it was cancelled, or has failed for good. Texts and reasoning stay, marked
 * incomplete. Calls are withdrawn, whole ones too: no recorded step has made them, and a front end must not run them.
 *
 * @param error - why it will not, as clients may know it
 */
export function closeIncomplete(state: RunState, path: Path, error: RecordedError): readonly Frame[] {
  const open = openItems(state.wire).filter(({ lane }) => isWithin((lane ?? "") as Path, path));
  const withdrawn = open.filter(({ kind }) => kind === "tool-call").map(({ id }) => id);
  return [
    ...(withdrawn.length > 0 ? [refFrame(path, { of: "MESSAGES_SNAPSHOT", withdrawn })] : []),
    ...open.map((item) => frame((item.lane ?? "") as Path, closingIncomplete(item, error))),
  ];
}

function endsOf(open: readonly OpenItem[], wanted: (item: OpenItem) => boolean): readonly Frame[] {
  return open.filter(wanted).map((item) => frame((item.lane ?? "") as Path, endOf(item)));
}

function endOf(item: OpenItem): AGUIEvent {
  return item.kind === "subagent"
    ? subagentError(item.id, { message: "its attempt was cut", code: "CUT" })
    : closingEvent(item);
}

function frame(path: Path, event: AGUIEvent): Frame {
  return { kind: "frame", path, event };
}

function refFrame(path: Path, ref: FrameRef): Frame {
  return { kind: "frame", path, ref };
}
