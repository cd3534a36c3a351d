/**
 * Why a run is where it is, in sentences. Everything comes from the fold of its log and from its row; the list of entries is only asked when
 * something was. It decides nothing: what happens next is the driver's business, and is said as what the log lets it do.
 */
import type { ShownDetail } from "../http/shown.ts";
import type { Entry, Fact, Interrupt } from "../log/entries.ts";
import type { RunState, StepState } from "../log/fold.ts";
import { writesAfter } from "../log/fork.ts";
import { modelOutput } from "../log/model-output.ts";
import type { Path } from "../protocol/words.ts";
import { childUid } from "../runtime/child-start.ts";
import { forkPlace } from "../runtime/diverged.ts";
import { afterExpiry, answerLines } from "./answer-lines.ts";
import { callOf, endOf, failuresOf, keyOf, stepOf, upper } from "./step-wording.ts";
import { ago, jsonText, quoted, sentence, short, span } from "./wording.ts";

export type ReasonKind =
  | "set-aside"
  | "ended"
  | "inbox"
  | "cancelled"
  | "question"
  | "unknown-write"
  | "client-call"
  | "attempt"
  | "child"
  | "retry"
  | "key"
  | "timer"
  | "signal"
  | "step"
  | "running";

/** One thing that explains where a run is. */
export interface Reason {
  readonly kind: ReasonKind;
  /** Sentences. */
  readonly says: string;
  /** Of the step that it is about. */
  readonly path?: Path;
  readonly interrupt?: string;
  /** What can be done about it: words of command lines, without the flags that say where. */
  readonly next: readonly (readonly string[])[];
}

export interface Log {
  readonly entries: readonly Entry[];
  /** What they come to; or why they come to nothing. */
  readonly state: RunState | { readonly broken: string };
}

/** @param now - milliseconds since the epoch */
export function explain(detail: ShownDetail, log: Log, now: number): readonly Reason[] {
  const { run } = detail;
  const { state } = log;
  if (run.aside !== null) return [setAside(detail)];
  if ("broken" in state) return [{ kind: "set-aside", says: unreadable(state.broken), next: [["verify"]] }];
  const open = [...state.interrupts.values()].filter(({ id }) => !isAnswered(detail, id));
  const questions = open.map((interrupt) => question(state, log.entries, interrupt, now));
  if (state.finished !== null)
    return [ended(state, state.finished, log.entries, now), ...questions, ...inbox(detail, now)];
  const reasons = [
    ...cancelled(state, log.entries, now),
    ...inbox(detail, now),
    ...questions,
    ...[...state.steps.values()].flatMap((step) => standing(state, step, now)),
    ...key(detail),
  ];
  if (reasons.length > 0) return reasons;
  return [...timer(detail, now), ...goingOn(detail, state, now)].slice(0, 1);
}

function isAnswered({ inbox: items }: ShownDetail, id: string): boolean {
  return items.some(({ kind, interrupt }) => kind === "answer" && interrupt === id);
}

function setAside({ run }: ShownDetail): Reason {
  return {
    kind: "set-aside",
    says:
      `It is set aside, because its log cannot be read: ${sentence(short(run.aside ?? "", 600))} ` +
      "No driver gets it and nothing of it is guessed; all other runs go on.",
    next: [["verify"]],
  };
}

function unreadable(broken: string): string {
  return (
    `Its log cannot be read, and nobody has set it aside yet: ${sentence(short(broken, 600))} ` +
    "Its driver will set it aside when it reads this; all other runs go on."
  );
}

function ended(state: RunState, finished: Fact<"run.finished">, entries: readonly Entry[], now: number): Reason {
  const at = entries.findLast((entry) => entry.kind === "run.finished")?.at ?? now;
  const took = span(at - state.run.at);
  const legs = state.legs === 1 ? "one leg" : `${state.legs} legs`;
  const when = `${ago(at, now)}, after ${took} and ${legs}`;
  const unresolved = finished.unresolved.map(
    (path) => ` Whether ${callOf(state, state.steps.get(path))} has happened, nobody knew when it ended.`,
  );
  return { kind: "ended", says: `${how(state, finished, { entries, when })}${unresolved.join("")}`, next: [] };
}

function how(
  state: RunState,
  finished: Fact<"run.finished">,
  { entries, when }: { readonly entries: readonly Entry[]; readonly when: string },
): string {
  switch (finished.outcome) {
    case "success":
      return `It ended well ${when}.${outputText(state, finished)}`;
    case "failed": {
      const { code = "INTERNAL", message = "" } = finished.error ?? {};
      const steps = [...state.steps.values()];
      const last =
        steps.findLast(({ finished: end }) => end?.status === "error" && end.error.code === code) ??
        steps.findLast(({ finished: end }) => end?.status === "error");
      const which = last === undefined ? "" : ` ${endOf(state, last)}`;
      return `It failed ${when}: ${sentence(`${code}: ${short(message, 400)}`)}${which}`;
    }
    case "cancelled":
      return `${takenBy(entries, "cancel") ?? "Somebody"} cancelled it; it ended ${when}.`;
    case "abandoned":
      return `${takenBy(entries, "abandon") ?? "Somebody"} abandoned it; it ended ${when}.`;
    default:
      return finished.outcome satisfies never;
  }
}

function outputText(state: RunState, { output, outputOf }: Fact<"run.finished">): string {
  if (output !== undefined) return ` Its output: ${jsonText(output)}.`;
  const step = outputOf === undefined ? undefined : state.steps.get(outputOf);
  if (step?.finished?.status !== "ok") return "";
  if (step.started.step !== "model") return ` Its output: ${jsonText(step.finished.output)}.`;
  const { text } = modelOutput(step);
  return text === "" ? "" : ` ${sentence(`It said in the end: ${quoted(text)}`)}`;
}

function takenBy(entries: readonly Entry[], item: "cancel" | "abandon"): string | undefined {
  const taken = entries.findLast((entry) => entry.kind === "inbox.taken" && entry.item === item);
  return taken?.kind === "inbox.taken" ? short(taken.by, 80) : undefined;
}

function cancelled(state: RunState, entries: readonly Entry[], now: number): readonly Reason[] {
  return (["cancel", "abandon"] as const).flatMap((item): readonly Reason[] => {
    const taken = entries.findLast((entry) => entry.kind === "inbox.taken" && entry.item === item);
    if (taken === undefined || !(item === "cancel" ? state.cancelled : state.abandoned)) return [];
    const what = item === "cancel" ? "cancelled" : "abandoned";
    const says = `${takenBy(entries, item)} ${what} it ${ago(taken.at, now)}: nothing of it is started any more, and it ends as soon as what runs has ended.`;
    return [{ kind: "cancelled", says, next: [] }];
  });
}

function inbox({ inbox: items }: ShownDetail, now: number): readonly Reason[] {
  return items.map(({ kind, by, at, interrupt }) => ({
    kind: "inbox",
    says:
      `${kind === "answer" ? `An answer to ${short(interrupt ?? "", 200)}` : withArticle(kind)} by ${short(by, 80)} came in ${ago(at, now)} and waits to be taken: ` +
      "a driver does that at once, or when a server opens the store again.",
    ...(interrupt !== undefined && { interrupt }),
    next: [],
  }));
}

function question(state: RunState, entries: readonly Entry[], interrupt: Interrupt, now: number): Reason {
  const { id, path, kind } = interrupt;
  const step = state.steps.get(path);
  const at = openedAt(entries, interrupt);
  const asked = at === undefined ? "" : ` Asked ${ago(at, now)}${expiry(interrupt, now)}.`;
  const about = { path, interrupt: id };
  const next = answerLines(interrupt);
  const message = sentence(quoted(interrupt.message));
  switch (kind) {
    case "approval":
      return {
        kind: "question",
        ...about,
        next,
        says: `It waits for a human to approve ${callOf(state, step)}: ${message}${asked}${scopes(interrupt)}`,
      };
    case "question":
    case "suspension":
      return {
        kind: "question",
        ...about,
        next,
        says: `It waits for a human: ${message}${asked}${scopes(interrupt)}`,
      };
    case "unknown-write": {
      const key = keyOf(step);
      const look = key === undefined ? "" : ` Look it up where it acts; its key there is ${short(key)}.`;
      const says =
        `Nobody knows whether ${callOf(state, step)} has happened. ${step === undefined ? "" : failuresOf(state, step, now, "it")} ` +
        `It is not run again before a human has said so.${look}${asked}${scopes(interrupt)}`;
      return { kind: "unknown-write", ...about, next, says };
    }
    case "budget":
      return {
        kind: "question",
        ...about,
        next,
        says: `Its budget is used up, and a human has to raise it: ${message}${asked}${scopes(interrupt)}`,
      };
    case "client-tool": {
      const says = `It waits for the client to run ${callOf(state, step)}: the result comes with the client's next request, which nobody can answer for it.`;
      return { kind: "client-call", ...about, next: [["cancel", state.run.uid]], says };
    }
    case "diverged":
      return diverged(state, interrupt, {
        ...about,
        next,
        says: `It waits for an operator (${kind}): ${message}${asked}`,
      });
    case "poisoned":
    case "contract-changed":
      return {
        kind: "question",
        ...about,
        next: next.length > 0 ? next : [["abandon", state.run.uid]],
        says: `It waits for an operator (${kind}): ${message}${asked}`,
      };
    default:
      return kind satisfies never;
  }
}

/** Its code can go on in a fork, from where it does what it did. */
function diverged(state: RunState, question: Interrupt, reason: Omit<Reason, "kind">): Reason {
  const at = forkPlace(question);
  if (at === undefined) return { kind: "question", ...reason };
  const kept = [...state.steps].flatMap(([path, { finished }]) =>
    finished !== undefined && finished.seq <= at ? [path] : [],
  );
  const writes = writesAfter({ state }, { kept: new Set(kept) });
  const again = writes.map(({ path, name, input = null, applied }) => {
    const call = input === null ? `${short(name, 64)} (step ${path})` : callOf(state, state.steps.get(path));
    return `${call}, which ${applied === "yes" ? "was applied" : "may have been applied"}`;
  });
  const twice = again.length === 0 ? "" : `; it would do once more ${again.join(", and ")}`;
  const acknowledge = writes.length === 0 ? [] : ["--acknowledge", ...writes.map(({ path }) => path)];
  return {
    kind: "question",
    ...reason,
    next: [...reason.next, ["fork", state.run.uid, "--at", String(at), ...acknowledge]],
    says: `${reason.says} Both agree up to entry ${at}: a fork from there goes on under the new code${twice}.`,
  };
}

/** When it was asked: for a client's call, when its step began. */
function openedAt(entries: readonly Entry[], { id, path, kind }: Interrupt): number | undefined {
  const opened = entries.findLast((entry) =>
    kind === "client-tool"
      ? entry.kind === "step.started" && entry.path === path
      : entry.kind === "interrupt.opened" && entry.interrupt.id === id,
  );
  return opened?.at;
}

function expiry({ expiresAt, kind }: Interrupt, now: number): string {
  if (expiresAt === null) return ", without an expiry";
  return expiresAt > now ? `; in ${span(expiresAt - now)} it counts as ${afterExpiry(kind)}` : "; its time is up";
}

function scopes({ audience }: Interrupt): string {
  return ` To answer takes the scope "answer"${audience === null ? "" : ` and the scope ${quoted(audience)}`}.`;
}

/** Where an unfinished step stands that waits for nobody's answer. */
function standing(state: RunState, step: StepState, now: number): readonly Reason[] {
  const { started, attempts, finished, waits, asked } = step;
  const { path } = started;
  if (finished !== undefined || waits !== null) return [];
  const last = attempts.at(-1);
  const answer = asked.at(-1);
  if (answer?.answer && answer.attempts === attempts.length) {
    const { by, status, at } = answer.answer;
    const says = `${short(by, 80)} has answered (${status}) about ${stepOf(state, step)} ${ago(at, now)}: it goes on from there.`;
    return [{ kind: "step", path, says, next: [] }];
  }
  // Of the question or the timer that it is others speak.
  if (last === undefined && (started.step === "ask" || started.step === "sleep")) return [];
  if (last === undefined && started.step === "signal") {
    const route = `POST /runs/${state.run.uid}/signals/${started.name}`;
    const says = `It waits for the signal ${short(started.name, 64)} (step ${path}): ${route}, or runtime.signal(), brings it.`;
    return [{ kind: "signal", path, says, next: [] }];
  }
  if (last === undefined) {
    return [{ kind: "step", path, says: `${upper(stepOf(state, step))} has begun and has no attempt yet.`, next: [] }];
  }
  const { failed } = last;
  if (failed === undefined && started.step === "child") {
    const uid = childUid(state.run.uid, path);
    const says =
      `${upper(stepOf(state, step))} is run ${uid}, which began ${ago(last.at, now)} and goes on by itself: ` +
      "when that has ended, so has the step.";
    return [{ kind: "child", path, says, next: [["why", uid]] }];
  }
  if (failed === undefined) {
    const until =
      last.deadline === null
        ? ""
        : last.deadline > now
          ? `, and has until in ${span(last.deadline - now)}`
          : ", and its time is up";
    const says =
      `Attempt ${last.n} of ${stepOf(state, step)} began ${ago(last.at, now)} and has no outcome yet${until}. ` +
      `It runs, or its process has died: then whoever opens the store next ${started.effect === "write" && started.step === "tool" ? "finds out whether it happened, and never guesses" : "runs it again"}.`;
    return [{ kind: "attempt", path, says, next: [] }];
  }
  const due = failed.retryAt === null || failed.retryAt <= now ? "now" : `in ${span(failed.retryAt - now)}`;
  if (started.effect === "write" && failed.applied === "unknown") {
    const key = keyOf(step);
    const says =
      `Nobody knows yet whether ${callOf(state, step)} has happened. ${failuresOf(state, step, now, "it")} ` +
      `That it has not can be believed ${due === "now" ? "now" : `only ${due}`}; then its reconcile is asked once more, and after it a human.` +
      (key === undefined ? "" : ` Its key is ${short(key)}.`);
    return [{ kind: "unknown-write", path, says, next: [] }];
  }
  const again = failed.retryAt === null ? "It is not tried again." : `It is tried again ${due}.`;
  return [{ kind: "retry", path, says: `${failuresOf(state, step, now)} ${again}`, next: [] }];
}

function key({ run: { waitsForKey, wakesAt }, heldBy }: ShownDetail): readonly Reason[] {
  if (waitsForKey === null) return [];
  const holder = heldBy === null ? "another write" : `step ${heldBy.path} of run ${heldBy.uid}`;
  const says = `It waits for the key ${short(waitsForKey.key)} of tool ${short(waitsForKey.tool, 64)}, which ${holder} holds${wakesAt === null ? "" : ", and not for ever"}.`;
  return [{ kind: "key", says, next: heldBy === null ? [] : [["why", heldBy.uid]] }];
}

function timer({ run: { wakesAt } }: ShownDetail, now: number): readonly Reason[] {
  if (wakesAt === null) return [];
  return [{ kind: "timer", says: `It rests until its timer is due, in ${span(wakesAt - now)}.`, next: [] }];
}

function goingOn({ run }: ShownDetail, { leg }: RunState, now: number): readonly Reason[] {
  const last = `Its last entry was written ${ago(run.updatedAt, now)}`;
  const says =
    leg !== null
      ? `It is in the middle of leg ${leg.leg}, and waits for nothing from outside. ${last}: if its process has died, whoever opens the store next goes on.`
      : run.state === "running"
        ? `It is about to go on. ${last}.`
        : `It is at rest until its client's next request. ${last}.`;
  return [{ kind: "running", says, next: [["log", run.uid, "--follow"]] }];
}

function withArticle(noun: string): string {
  return `${/^[aeiou]/.test(noun) ? "An" : "A"} ${noun}`;
}
