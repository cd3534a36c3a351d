/** What a play that was cut made different from one that was not. */
import { type HeldByClient, normaliseTranscript } from "../log/equal-transcripts.ts";
import { essence } from "../log/essence.ts";
import { fold, type RunState } from "../log/fold.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import { UNKNOWN_WRITE } from "../runtime/interrupts.ts";
import type { Ended } from "./play.ts";

/**
 * - `duplicate`: an effect happened more often than without a cut.
 * - `loss`: it happened less often.
 * - `difference`: log, conversation or state say something else.
 * - `unexpected`: an effect that does not happen without a cut, a body that outlives its process, a play that comes to no end.
 */
export type FindingKind = "duplicate" | "loss" | "difference" | "unexpected";

/** A difference, without the cut that brought it out. */
export interface Difference {
  readonly kind: FindingKind;
  /** From 1; null where it concerns none. */
  readonly turn: number | null;
  /** Path of the step. */
  readonly step: string | null;
  readonly tool: string | null;
  /** What differs: an effect, or a part of the run or of the conversation. */
  readonly what: string;
  readonly expected: Json;
  readonly found: Json;
}

const NOWHERE = { turn: null, step: null, tool: null } as const;

/** @returns in a fixed order; empty when only the cut tells the two apart */
export function differencesOf(reference: Ended, ended: Ended): readonly Difference[] {
  const gaveUp = Math.max(0, givenUp(ended) - givenUp(reference));
  return [
    ...effectDifferences(reference.effects, ended.effects, gaveUp),
    ...left(ended),
    // Where a human gave a write up, what follows is another story.
    ...(gaveUp === 0 ? storyDifferences(reference, ended) : []),
    ...clientDifferences(ended),
  ];
}

/** How many writes a human has given up: nobody knows of them whether they happened. */
export function givenUp({ logs, children }: Ended): number {
  const ends = [...logs, ...children.map(({ log }) => log)].flat().filter((entry) => entry.kind === "step.finished");
  return ends.filter((end) => end.status === "error" && end.error.code === UNKNOWN_WRITE.code).length;
}

function effectDifferences(reference: readonly string[], effects: readonly string[], gaveUp: number): Difference[] {
  const expected = counted(reference);
  const found = counted(effects);
  let excused = gaveUp;
  return [...new Set([...expected.keys(), ...found.keys()])].sort().flatMap((what): Difference[] => {
    const [should, did] = [expected.get(what) ?? 0, found.get(what) ?? 0];
    if (should === did) return [];
    const missing = should - did;
    if (missing > 0 && missing <= excused) {
      excused -= missing;
      return [];
    }
    const kind = missing > 0 ? "loss" : should === 0 ? "unexpected" : "duplicate";
    return [{ kind, ...NOWHERE, what: `effect "${what}"`, expected: times(should), found: times(did) }];
  });
}

const times = (n: number): string => (n === 1 ? "once" : n === 0 ? "never" : `${n} times`);

function counted(effects: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const effect of effects) counts.set(effect, (counts.get(effect) ?? 0) + 1);
  return counts;
}

function left({ leftBehind }: Ended): Difference[] {
  return leftBehind.map(({ step, tool, phase }) => ({
    kind: "unexpected",
    ...{ turn: null, step, tool, what: `${phase} after its process died` },
    ...{ expected: "ends by itself", found: "still runs" },
  }));
}

function storyDifferences(reference: Ended, ended: Ended): Difference[] {
  const turns = Math.max(reference.logs.length, ended.logs.length);
  const found: Difference[] = [];
  for (let i = 0; i < turns; i++) {
    found.push(...essenceDifferences(i + 1, essenceOf(reference, i), essenceOf(ended, i)));
  }
  const uids = new Set([...reference.children, ...ended.children].map(({ run }) => run.uid));
  for (const uid of uids) {
    const differences = essenceDifferences(null, childEssence(reference, uid), childEssence(ended, uid));
    const agent = [...reference.children, ...ended.children].find(({ run }) => run.uid === uid)?.run.agent;
    found.push(...differences.map((one) => ({ ...one, what: `agent "${agent}": ${one.what}` })));
  }
  const same = (what: string, expected: Json, is: Json): void => {
    if (!jsonEqual(expected, is)) found.push({ kind: "difference", ...NOWHERE, what, expected, found: is });
  };
  same("runs that were set aside", aside(reference), aside(ended));
  same("open questions", reference.openQuestions, ended.openQuestions);
  same("inbox rows", reference.inbox, ended.inbox);
  found.push(...heldDifferences("the client's", reference.client, ended.client));
  return found;
}

const aside = ({ runs, children }: Ended): Json =>
  [...runs, ...children.map(({ run }) => run)].map((run) => run.aside ?? null);

function essenceOf({ logs }: Ended, i: number): { readonly [part: string]: Json } {
  const is = essence(logs[i] ?? []);
  return isJsonObject(is) ? is : {};
}

function childEssence({ children }: Ended, uid: string): { readonly [part: string]: Json } {
  const is = essence(children.find(({ run }) => run.uid === uid)?.log ?? []);
  return isJsonObject(is) ? is : {};
}

function essenceDifferences(
  turn: number | null,
  reference: { readonly [part: string]: Json },
  ended: { readonly [part: string]: Json },
): Difference[] {
  const found: Difference[] = [];
  const compare = (what: string, step: string | null, tool: string | null, expected: Json, is: Json): void => {
    if (!jsonEqual(expected, is)) found.push({ kind: "difference", turn, step, tool, what, expected, found: is });
  };
  const steps = sections(reference.steps, ended.steps);
  for (const [path, expected, is] of steps) {
    const named = expected ?? is;
    const tool = isJsonObject(named) && typeof named.name === "string" && named.kind !== "model" ? named.name : null;
    if (isJsonObject(expected) && isJsonObject(is)) {
      for (const [part, one, other] of sections(expected, is)) compare(part, path, tool, one ?? null, other ?? null);
    } else compare("the step", path, tool, expected ?? "none", is ?? "none");
  }
  for (const [id, expected, is] of sections(reference.questions, ended.questions)) {
    const question = expected ?? is;
    const step = isJsonObject(question) && typeof question.path === "string" ? question.path : id;
    compare("its question", step, null, expected ?? "none", is ?? "none");
  }
  compare("order of the model steps", null, null, reference.models ?? null, ended.models ?? null);
  compare("outcome", null, null, reference.outcome ?? null, ended.outcome ?? null);
  return found;
}

/** The members of two objects side by side. */
function sections(a: Json | undefined, b: Json | undefined): [string, Json | undefined, Json | undefined][] {
  const [left, right] = [isJsonObject(a) ? a : {}, isJsonObject(b) ? b : {}];
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].sort().map((key) => [key, left[key], right[key]]);
}

function heldDifferences(whose: string, expected: HeldByClient, found: HeldByClient): Difference[] {
  const [one, other] = [normaliseTranscript(expected), normaliseTranscript(found)];
  if (jsonEqual(one, other) || !isJsonObject(one) || !isJsonObject(other)) return [];
  const differences: Difference[] = [];
  const [messages, others] = [one.messages as readonly Json[], other.messages as readonly Json[]];
  const at = Array.from({ length: Math.max(messages.length, others.length) }).findIndex(
    (_, i) => !jsonEqual(messages[i] ?? null, others[i] ?? null),
  );
  const difference = (what: string, is: Json | undefined, was: Json | undefined): Difference => ({
    ...{ kind: "difference", ...NOWHERE, what: `${whose} ${what}`, expected: is ?? "none", found: was ?? "none" },
  });
  if (at >= 0) differences.push(difference(`message ${at + 1}`, messages[at], others[at]));
  if (!jsonEqual(one.state, other.state)) differences.push(difference("state", one.state, other.state));
  return differences;
}

/** What a client holds is what the log says, whether it was there all the time or came late. */
function clientDifferences({ logs, client, late }: Ended): Difference[] {
  let run: RunState | undefined;
  for (const log of logs) run = fold(log, run);
  if (run === undefined) return [];
  const { messages, committed } = run;
  return [
    ...heldDifferences("a client's, held against its log:", { messages, state: committed }, client),
    ...heldDifferences("a later client's, held against an earlier one's:", client, late),
  ];
}
