import type { Fact, Interrupt, LegRequest, NewEntry } from "../../src/log/entries.ts";
import type { Hash, Path, Principal, Uid } from "../../src/protocol/words.ts";
import type { Answer, EventStore, Lease, Meaning, Posted, ThreadKey, ThreadView } from "../../src/store/store.ts";

/** Short names of tests become the branded ones of the store. */
export const uid = (name: string) => name as Uid;
export const path = (name: string) => name as Path;
export const hash = (name: string) => name as Hash;

export const ann: Principal = { tenant: "acme", subject: "ann", scopes: [] };
export const bob: Principal = { tenant: "acme", subject: "bob", scopes: [] };

export function thread(name: string, change: Partial<ThreadKey> = {}): ThreadKey {
  return { tenant: "acme", subject: "ann", agent: "desk", thread: name, ...change };
}

export function request(runId: string, change: Partial<LegRequest> = {}): LegRequest {
  return {
    runId,
    messages: [],
    results: [],
    resume: [],
    tools: [],
    context: [],
    state: {},
    forwardedProps: {},
    principal: ann,
    protocolVersion: "1.0",
    ...change,
  };
}

export const nothing = { messages: [], results: [], resume: [] };
export const says = (id: string, content = id) => ({ id, role: "user" as const, content });

export function started(run: string, key: ThreadKey, change: Partial<Fact<"run.started">> = {}): Fact<"run.started"> {
  return {
    kind: "run.started",
    uid: uid(run),
    agent: key.agent,
    definition: hash("d"),
    owner: { tenant: key.tenant, subject: key.subject },
    thread: key.thread,
    turn: 1,
    labels: {},
    ...change,
  };
}

export const legStarted = (leg: number, of: LegRequest): NewEntry => ({
  kind: "leg.started",
  leg,
  runId: of.runId,
  request: of,
});

export const headless = (leg: number, runId: string): NewEntry => ({ kind: "leg.started", leg, runId, request: null });

export const legFinished = (leg: number): NewEntry => ({
  kind: "leg.finished",
  leg,
  outcome: { type: "cancelled" },
  usage: [],
});

export const runFinished: NewEntry = { kind: "run.finished", outcome: "success", unresolved: [] };

export const delta = (text: string): NewEntry => ({
  kind: "frame",
  path: path("0.0"),
  event: { type: "TEXT_MESSAGE_CONTENT", messageId: "a0", delta: text },
});

export const memo = (value: number): NewEntry => ({ kind: "memo", transformer: "t", value });

export const asks = (id: string, change: Partial<Interrupt> = {}): NewEntry => ({
  kind: "interrupt.opened",
  interrupt: {
    id,
    path: path("1.0"),
    kind: "approval",
    reason: "tool_call",
    message: `May I (${id})?`,
    schema: true,
    argsHash: null,
    audience: null,
    expiresAt: null,
    ...change,
  },
});

export function answered(
  id: string,
  status: Fact<"interrupt.answered">["status"],
  change: Partial<Fact<"interrupt.answered">> = {},
): NewEntry {
  return { kind: "interrupt.answered", id, status, by: "ann", ...change };
}

export const clientCall = (id: string, at: string): NewEntry => ({
  kind: "step.started",
  path: path(at),
  step: "client-tool",
  name: "open_map",
  effect: "write",
  input: { value: {} },
  contract: null,
  toolCallId: id,
});

export const clientCallEnds = (at: string, via: "client" | "call" = "client"): NewEntry => ({
  kind: "step.finished",
  path: path(at),
  via,
  status: "ok",
  output: "done",
  patch: [],
});

export const yes = (interrupt: string, by: Principal = ann): Answer => ({
  interrupt,
  status: "resolved",
  payload: { approved: true },
  by,
});
export const no = (interrupt: string, by: Principal = ann): Answer => ({
  interrupt,
  status: "resolved",
  payload: { approved: false },
  by,
});

export const parked = { runnable: false, wakeAt: null, waitsForKey: null } as const;

/** Begins a run by a POST and gives its lease. */
export async function begin(
  store: EventStore,
  run: string,
  { key = thread(`thread of ${run}`), owner = "w1", runId = `r of ${run}`, turn = 1, more = [] as NewEntry[] } = {},
): Promise<Lease> {
  const asked = request(runId, { messages: [says(`u of ${run}`)] });
  const { lease } = await store.post({ key, runId, owner }, () => ({
    is: "run",
    first: [started(run, key, { turn }), legStarted(1, asked), ...more],
  }));
  if (lease === null) throw new Error("a new run comes with its lease");
  return lease;
}

export function post<M extends Meaning>(
  store: EventStore,
  key: ThreadKey,
  runId: string,
  decide: (view: ThreadView) => M,
): Promise<Posted<M>> {
  return store.post({ key, runId, owner: "w1" }, decide);
}

/** What a thread shows to a POST that asks under `runId`. */
export async function look(store: EventStore, key: ThreadKey, runId = "a look"): Promise<ThreadView> {
  let seen: ThreadView | null = null;
  await post(store, key, runId, (view) => {
    seen = view;
    return { is: "refuse", status: 409, code: "LOOKING", details: null };
  });
  if (seen === null) throw new Error("decide was not called");
  return seen;
}

export async function seqs(store: EventStore, run: string, after = -1): Promise<number[]> {
  const found: number[] = [];
  for await (const entry of store.read(uid(run), after)) found.push(entry.seq);
  return found;
}

export async function kinds(store: EventStore, run: string): Promise<string[]> {
  const found: string[] = [];
  for await (const entry of store.read(uid(run), -1)) found.push(entry.kind);
  return found;
}

/** A clock that goes by hand. */
export class Clock {
  ms = 1_000;
  readonly now = () => this.ms;
  tick(ms: number): void {
    this.ms += ms;
  }
}
