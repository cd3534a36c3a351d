/** Runs for benches, put into a store without a driver. */
import type { EventStore } from "perdure";
import type { Fact, NewEntry } from "perdure/log";
import type { Contender } from "./harness.ts";

export type Lease = Parameters<EventStore["append"]>[0];
type Uid = Fact<"run.started">["uid"];

const owner = { tenant: "local", subject: "local" };

/** Begins a run of the agent `talker`, on a thread of its own. */
export async function begin(store: EventStore, name: string, more: readonly NewEntry[] = []): Promise<Lease> {
  const first: NewEntry[] = [
    {
      kind: "run.started",
      uid: name as Uid,
      agent: "talker",
      definition: "d" as Fact<"run.started">["definition"],
      owner,
      thread: name,
      turn: 1,
      labels: {},
    },
    {
      kind: "leg.started",
      leg: 1,
      runId: "r",
      request: {
        runId: "r",
        messages: [{ id: `${name}-u`, role: "user", content: "Talk." }],
        results: [],
        resume: [],
        tools: [],
        context: [],
        state: {},
        forwardedProps: {},
        principal: { ...owner, scopes: ["*"] },
        protocolVersion: "1.0",
      },
    },
    { kind: "frame", path: root, ref: { of: "RUN_STARTED", leg: 1 } },
    ...more,
  ];
  const key = { ...owner, agent: "talker", thread: name };
  const { lease } = await store.post({ key, runId: "r", owner: "bench" }, () => ({ is: "run", first }));
  if (lease === null) throw new Error("a new run comes with its lease");
  return lease;
}

type Path = Fact<"state">["path"];
const root = "" as Path;

/** A small fact, which somebody waits for. */
export const fact: NewEntry = {
  kind: "memo",
  transformer: "bench",
  value: { words: "a hundred bytes or so, as facts are", n: 1 },
};

/** What a model step has logged while it streams: its beginning, and `deltas` pieces of its text. */
export function streaming(uid: string, deltas: number): NewEntry[] {
  const path = "0" as Path;
  const lane = "0.0" as Path;
  const messageId = `${uid}:0:m0`;
  const none = "0" as Fact<"run.started">["definition"];
  return [
    {
      kind: "step.started",
      path,
      step: "model",
      name: "model",
      effect: "read",
      input: { history: { upTo: 2, instructions: none, tools: none, settings: {} } },
      contract: null,
    },
    { kind: "step.attempt", path, n: 1, epoch: 1, phase: "call", key: null, deadline: null },
    { kind: "frame", path: lane, event: { type: "TEXT_MESSAGE_START", messageId, role: "assistant" } },
    ...Array.from(
      { length: deltas },
      (_, i): NewEntry => ({
        kind: "frame",
        path: lane,
        event: { type: "TEXT_MESSAGE_CONTENT", messageId, delta: ` word ${i}` },
      }),
    ),
  ];
}

/** The raw driver with a log like ours: one entry, one commit, as durable. */
export async function rawCommits(file: string): Promise<{ readonly commits: Contender; close(): void }> {
  const { DatabaseSync } = await import("@photostructure/sqlite");
  const raw = new DatabaseSync(file);
  raw.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE log (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, entry TEXT NOT NULL, UNIQUE (run, seq))`);
  const insert = raw.prepare("INSERT INTO log (run, seq, at, entry) VALUES (1, ?, ?, ?)");
  const text = JSON.stringify(fact);
  let seq = 0;
  const commits: Contender = {
    name: "raw driver, a commit each",
    run(times) {
      for (let i = 0; i < times; i++) insert.run(seq++, Date.now(), text);
      return seq;
    },
  };
  return { commits, close: () => raw.close() };
}
