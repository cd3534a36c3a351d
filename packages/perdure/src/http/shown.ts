/** Runs and questions as whoever operates them is shown them: the JSON of the control plane, and what the command reads from a file. */
import type { RunState } from "../log/fold.ts";
import { isListed, wireInterrupt } from "../log/interrupts.ts";
import { resolveInput } from "../log/model-output.ts";
import { editedArguments } from "../log/tool-result.ts";
import type { Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Threads } from "../runtime/threads.ts";
import type { EventStore, Inbox, Query, Question, Run } from "../store/store.ts";

/**
 * What a run at rest goes on with. `child`: a run that it has begun and that rests itself; `client`: the result of a call that the client runs, or
 * its next request; `signal`: one that its code receives.
 */
export type WaitsFor = "human" | "operator" | "client" | "key" | "timer" | "child" | "signal";

/** By what runs can be listed: where they are, or what they wait for. */
export const RUN_STATES = [
  ...["running", "parked", "human", "operator", "client", "key", "timer", "child", "signal"],
  ...["success", "cancelled", "failed", "abandoned", "aside"],
] as const satisfies readonly string[];

/** Times are milliseconds since the epoch. */
export interface ShownRun {
  readonly uid: Uid;
  readonly agent: string;
  readonly thread: string | null;
  readonly turn: number;
  readonly labels: Run["labels"];
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly head: number;
  readonly leg: number;
  readonly legOpen: boolean;
  readonly state: "running" | "parked" | "set aside" | NonNullable<Run["outcome"]>;
  readonly waitsFor: WaitsFor | null;
  /** When its timer is due, where it has one. */
  readonly wakesAt: number | null;
  readonly waitsForKey: { readonly tool: string; readonly key: string } | null;
  readonly outcome: Run["outcome"];
  readonly aside: string | null;
  /** Its frames are gone. */
  readonly pruned: boolean;
  /** The run that it is a child of, and the step there. */
  readonly parent: Run["parent"];
}

/** One run, and what its row and its log do not say. */
export interface ShownDetail {
  readonly run: ShownRun;
  /** What has come in and no driver has taken yet. */
  readonly inbox: readonly {
    readonly kind: Inbox["kind"];
    readonly by: string;
    readonly at: number;
    readonly interrupt?: string;
  }[];
  /** Who holds the key that the run waits for. */
  readonly heldBy: { readonly uid: Uid; readonly path: Path } | null;
}

export interface ShownQuestion {
  readonly id: string;
  readonly run: Uid;
  readonly thread: string | null;
  readonly agent: string;
  readonly kind: Question["interrupt"]["kind"];
  readonly reason: string;
  readonly message: string;
  /** JSON Schema of an answer's payload. */
  readonly schema: Json;
  readonly toolCall?: string;
  /** The call that is asked about: its tool, and the arguments as the model wrote them, or a human has edited them. */
  readonly call?: { readonly name: string; readonly input: Json } | undefined;
  readonly audience?: string;
  readonly expiresAt?: number;
  readonly openedAt: number;
  /** What whoever answers has to know: an approval's risk, what a suspension offers, the limits of a budget. Of `diverged`: both sides, the line, and the last entry before they part. */
  readonly metadata?: Json;
}

/** Asks the store for what a run waits for only where it does. */
export async function showRun(store: EventStore, run: Run, now: number): Promise<ShownRun> {
  const { uid, agent, thread, turn, labels, createdAt, updatedAt, head, leg, legOpen, outcome, aside } = run;
  const rests = outcome === null && aside === null && run.owner === null && (run.readyAt === null || run.readyAt > now);
  const state = outcome ?? (aside !== null ? "set aside" : rests ? "parked" : "running");
  const key = rests ? run.waitsForKey : null;
  return {
    ...{ uid, agent, thread, turn, labels, createdAt, updatedAt, head, leg, legOpen, state, outcome, aside },
    ...{ pruned: run.pruned !== null, parent: run.parent },
    waitsFor: rests ? await waitsFor(store, run) : null,
    wakesAt: rests ? run.readyAt : null,
    waitsForKey: key === null ? null : { tool: key.tool, key: key.key },
  };
}

async function waitsFor(store: EventStore, run: Run): Promise<WaitsFor> {
  const { items } = await store.questions({ tenant: run.tenant, run: run.uid });
  if (items.some(({ interrupt }) => isListed(interrupt))) return "human";
  if (items.length > 0) return "operator";
  if (run.waitsForKey !== null) return "key";
  const children = await store.runs({ tenant: run.tenant, parent: run.uid, limit: 500 });
  if (children.items.some(({ outcome }) => outcome === null)) return "child";
  if (run.readyAt !== null) return "timer";
  // Nothing but a signal is waited for without an end while the leg goes on.
  return run.legOpen ? "signal" : "client";
}

export async function showDetail(store: EventStore, run: Run, now: number): Promise<ShownDetail> {
  // What has come in for a run that cannot be read may be what cannot be read.
  const inbox = run.aside === null ? await store.inbox(run.uid) : [];
  const claim = run.waitsForKey === null ? null : await store.claimOf(run.waitsForKey);
  return {
    run: await showRun(store, run, now),
    inbox: inbox.map(({ kind, by, at, ...item }) => ({
      ...{ kind, by, at },
      ...("interrupt" in item && { interrupt: item.interrupt }),
    })),
    heldBy: claim?.holder ?? null,
  };
}

/** One page of runs, newest first. A state is no column: it is looked for row by row, page after page, up to `limit` runs that are in it. */
export async function listRuns(
  store: EventStore,
  query: Query,
  { state, now }: { readonly state: string | undefined; readonly now: number },
): Promise<{ readonly runs: readonly ShownRun[]; readonly next: string | null }> {
  const { limit = 50 } = query;
  const runs: ShownRun[] = [];
  let after = query.after;
  for (;;) {
    const page = await store.runs({ ...query, limit: limit - runs.length, ...(after !== undefined && { after }) });
    for (const run of page.items) {
      const shown = await showRun(store, run, now);
      if (state === undefined || isIn(shown, state)) runs.push(shown);
    }
    if (page.next === null || state === undefined || runs.length >= limit) return { runs, next: page.next };
    after = page.next;
  }
}

function isIn(run: ShownRun, state: string): boolean {
  return run.state === (state === "aside" ? "set aside" : state) || run.waitsFor === state;
}

/** Questions as they are listed. Which call one is about is read from its run's log; where that cannot be read it is left out. */
export async function showQuestions(
  threads: Threads,
  questions: readonly (Question & { readonly run: Run })[],
): Promise<readonly ShownQuestion[]> {
  const shown: ShownQuestion[] = [];
  for (const question of questions) {
    const state = await threads.state(question.run).catch(() => undefined);
    shown.push(showQuestion(question, state && callOf(state, question.interrupt)));
  }
  return shown;
}

/** The steps that run a tool, or an agent as one. */
const CALLS: ReadonlySet<string> = new Set(["tool", "child"]);

function callOf(state: RunState, { path }: Question["interrupt"]): ShownQuestion["call"] {
  const step = state.steps.get(path);
  if (step === undefined || !CALLS.has(step.started.step)) return undefined;
  const { name, input } = step.started;
  return { name, input: editedArguments(step) ?? ("history" in input ? null : resolveInput(state, input)) };
}

function showQuestion(
  { uid, interrupt, openedAt, run }: Question & { readonly run: Run },
  call: ShownQuestion["call"],
): ShownQuestion {
  const { kind, audience, expiresAt, metadata } = interrupt;
  const { id, reason, message, responseSchema, toolCallId } = wireInterrupt(interrupt);
  return {
    ...{ id, run: uid, thread: run.thread, agent: run.agent, kind, reason, message: message ?? "" },
    ...{ schema: (responseSchema ?? {}) as Json, openedAt },
    ...(toolCallId !== undefined && { toolCall: toolCallId }),
    ...(call !== undefined && { call }),
    ...(audience !== null && { audience }),
    ...(expiresAt !== null && { expiresAt }),
    ...(metadata !== undefined && { metadata }),
  };
}

/** Why nothing can be put into a run that no driver gets. */
export function refusedAside(uid: Uid, kind: "cancel" | "abandon" | "raise" | "signal"): string {
  return `run ${uid} is set aside, so nobody is there to ${kind} it: restore the store from a backup`;
}
