/** Whether and how a run is forked: what is asked for is checked here, what of the log goes along is `log/fork.ts`'s. */

import type { NewEntry } from "../log/entries.ts";
import {
  type Forked,
  type ForkedWrite,
  type ForkPoint,
  type ForkSource,
  forkEntries,
  forkPoint,
  lastUserMessage,
  runOfSubagent,
  stateAt,
  writesAfter,
} from "../log/fork.ts";
import { forkCodeEntries } from "../log/fork-code.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { ContentPart } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import { describeIssues, validate } from "../protocol/validate.ts";
import type { Hash, Path, Principal, Uid } from "../protocol/words.ts";
import type { EventStore, Run, ThreadKey } from "../store/store.ts";
import type { Agent } from "./agent-definition.ts";
import { readRecord } from "./body-record.ts";
import type { Threads } from "./threads.ts";

/** What is to be otherwise in a fork. */
export interface ForkEdits {
  /** The system prompt, in place of the agent's. It stays with the fork's thread. The code of a `run(ctx)` has its own. */
  readonly instructions?: string;
  /** The name of another model among the agent's `models`, in place of its `model`. It stays with the fork's thread. */
  readonly model?: string;
  /** What the user's newest message says, in place of what it said. */
  readonly input?: string | readonly ContentPart[];
  /**
   * The state at the entry, in place of what it was. Has to fit the agent's schema. The code of a `run(ctx)` goes on with it from what it has heard
   * of last: the end of a step, or a publication of its own; else it begins with it.
   */
  readonly state?: Json;
}

export interface ForkOptions {
  /** The last entry that counts, by its `seq` in the run's log. Default: the newest one. */
  readonly at?: number;
  readonly edits?: ForkEdits;
  /** Another agent of the runtime, for other tools. Default: the run's. */
  readonly agent?: string;
  /** The thread of the fork, which has to be new. Default: a name of its own. */
  readonly thread?: string;
  /**
   * The writes behind the entry that are done in the world and may be done a second time by the fork: paths of their steps (`"3.0"`), or names
   * of their tools. Each has to be named.
   */
  readonly acknowledge?: readonly string[];
}

/** A fork, as it begins. */
export interface ForkedRun {
  readonly uid: string;
  readonly agent: string;
  readonly thread: string;
  readonly forkedFrom: { readonly uid: string; readonly seq: number };
}

/** Why a run was not forked. Nothing was changed. */
export class ForkRefusedError extends PerdureError {
  override readonly name = "ForkRefusedError";
  constructor(
    readonly run: Uid,
    override readonly code:
      | "RUN_NOT_FOUND"
      | "AGENT_NOT_FOUND"
      | "FORK_UNSUPPORTED"
      | "FORK_POINT"
      | "RUN_PRUNED"
      | "FORK_EDIT"
      | "STATE_INVALID"
      | "WRITES_NOT_ACKNOWLEDGED"
      | "THREAD_EXISTS",
    why: string,
    /** With `WRITES_NOT_ACKNOWLEDGED`: the writes that have to be acknowledged. */
    readonly writes: readonly ForkedWrite[] = [],
  ) {
    super(code, `run ${run} is not forked: ${why}`);
  }
}

/** What a fork needs of the process that makes it. */
export interface ForkMaker {
  readonly store: EventStore;
  readonly threads: Threads;
  readonly agents: ReadonlyMap<string, Agent>;
  readonly newUid: () => Uid;
  readonly definitionOf: (agent: Agent) => Hash;
  readonly labelsOf: (run: ForkedRun) => Readonly<Record<string, string>>;
}

export interface PlannedFork {
  readonly key: ThreadKey;
  readonly runId: string;
  readonly first: readonly NewEntry[];
  readonly run: ForkedRun;
}

/** @throws {@link ForkRefusedError}, and what reading the run's log throws */
export async function planFork(
  { store, threads, agents, newUid, definitionOf, labelsOf }: ForkMaker,
  from: Uid,
  { at, edits = {}, acknowledge = [], ...options }: ForkOptions,
  principal: Principal | undefined,
): Promise<PlannedFork> {
  const run = await store.run(from);
  if (run === null) throw new ForkRefusedError(from, "RUN_NOT_FOUND", "there is no such run");
  const agent = forkingAgent(run, options.agent ?? run.agent, agents);
  if (agent.loop === undefined) checkCode(run, agent, edits);
  if (at !== undefined && (!Number.isInteger(at) || at < 0 || at > run.head)) {
    throw new ForkRefusedError(from, "FORK_POINT", `it has no entry ${at}; its entries are 0 to ${run.head}`);
  }
  const { entries, state, before } = await threads.read(run);
  const log = { entries, state, before: before.at(-1) };
  const point = forkPoint(log, at ?? state.head);
  const source: ForkSource = { ...log, children: await stepsOfChildren(store, threads, log, point) };
  const { instructions, model, input } = edits;
  const alternatives = agent.loop?.alternatives ?? [];
  if (model !== undefined && !alternatives.includes(model)) throw noModel(from, agent, model);
  const kept = alternatives.find((name) => name === state.run.model);
  if (input !== undefined && lastUserMessage(point) === undefined) {
    throw new ForkRefusedError(
      from,
      "FORK_EDIT",
      `its user has said nothing up to entry ${point.at}; fork without edits.input`,
    );
  }
  const isOther = agent.name !== run.agent;
  // Another agent may have another schema.
  const edited = edits.state ?? (isOther ? stateAt(source, point) : undefined);
  const checked = edited === undefined ? undefined : await checkedState(from, agent, edited);
  const open = writesAfter(source, point).filter(
    ({ path, name }) => !acknowledge.includes(path) && !acknowledge.includes(name),
  );
  if (open.length > 0) throw unacknowledged(from, point.at, open);

  const uid = newUid();
  const thread = options.thread ?? uid;
  const begun: ForkedRun = { uid, agent: agent.name, thread, forkedFrom: { uid: from, seq: point.at } };
  const forked: Forked = {
    ...{ uid, agent: agent.name, definition: definitionOf(agent), thread, labels: labelsOf(begun) },
    ...{ principal, instructions, model: model ?? kept, input },
    state: checked,
  };
  const { tenant, subject } = run;
  const isLoops = agent.loop !== undefined;
  return {
    key: { tenant, subject, agent: agent.name, thread },
    runId: `${uid}.1`,
    first: isLoops
      ? forkEntries(source, point, forked)
      : forkCodeEntries(source, point, forked, await readRecord(point.prefix, source.before)),
    run: begun,
  };
}

/** The runs whose messages may be shown at the entry, each with the step of this run, or of its history, under which it is. */
async function stepsOfChildren(
  store: EventStore,
  threads: Threads,
  { entries, state: { run, messages } }: Pick<ForkSource, "entries" | "state">,
  { state: { messages: held } }: ForkPoint,
): Promise<ReadonlyMap<string, Path>> {
  const steps = new Map<string, Path>();
  const listed = entries.flatMap((entry) =>
    entry.kind === "frame" && "event" in entry && entry.event.type === "MESSAGES_SNAPSHOT" ? entry.event.messages : [],
  );
  const speakers = new Set(
    [...messages, ...held, ...listed].flatMap(({ subagentRunId: id }) => (id === undefined ? [] : runOfSubagent(id))),
  );
  speakers.delete(run.uid);
  if (speakers.size === 0) return steps;
  const ancestors = new Set<string>();
  for (let uid: Uid | undefined = run.uid; uid !== undefined; uid = (await threads.forkedFrom(uid))?.uid) {
    ancestors.add(uid);
  }
  for (const speaker of speakers) {
    let parent = (await store.run(speaker as Uid))?.parent;
    while (parent && !ancestors.has(parent.uid)) parent = (await store.run(parent.uid))?.parent;
    if (parent) steps.set(speaker, parent.path);
  }
  return steps;
}

export function threadExists(from: Uid, thread: string): ForkRefusedError {
  return new ForkRefusedError(from, "THREAD_EXISTS", `thread "${thread}" has a run already; name another one, or none`);
}

function forkingAgent(run: Run, name: string, agents: ReadonlyMap<string, Agent>): Agent {
  const agent = agents.get(name);
  if (agent === undefined) {
    const known = [...agents.keys()].join(", ") || "none";
    throw new ForkRefusedError(run.uid, "AGENT_NOT_FOUND", `no agent is named "${name}"; there is ${known}`);
  }
  const own = agents.get(run.agent);
  if (own !== undefined && (own.loop === undefined) !== (agent.loop === undefined)) {
    const what = (one: Agent): string => (one.loop === undefined ? "is a run(ctx)" : "has a model and no run(ctx)");
    throw new ForkRefusedError(
      run.uid,
      "FORK_UNSUPPORTED",
      `its agent "${own.name}" ${what(own)} and agent "${name}" ${what(agent)}, so the one has nothing to go on from in what the other has recorded`,
    );
  }
  return agent;
}

function noModel(uid: Uid, { name, loop }: Agent, model: string): ForkRefusedError {
  const known = loop?.alternatives.join(", ") || "none";
  return new ForkRefusedError(
    uid,
    "FORK_EDIT",
    `agent "${name}" has no model named "${model}" among its models; there is ${known}`,
  );
}

/** What cannot be had where code is held against what it has done. */
function checkCode({ uid, pruned }: Run, { name }: Agent, { instructions, model }: ForkEdits): void {
  if (instructions !== undefined || model !== undefined) {
    throw new ForkRefusedError(
      uid,
      "FORK_EDIT",
      `agent "${name}" is a run(ctx), and which models it asks, and what they are told, stands in its code: fork without edits.instructions and edits.model, or with another agent`,
    );
  }
  if (pruned === null) return;
  throw new ForkRefusedError(
    uid,
    "RUN_PRUNED",
    `its frames are gone, and the code of agent "${name}" would be held against them; fork runs of a run(ctx) before they are pruned`,
  );
}

async function checkedState(from: Uid, agent: Agent, state: Json): Promise<Json> {
  const plain = toJson(state, "edits.state");
  if (agent.state?.schema === undefined) return plain;
  const checked = await validate(agent.state.schema, plain);
  if (checked.ok) return toJson(checked.value, `state of agent "${agent.name}"`);
  throw new ForkRefusedError(
    from,
    "STATE_INVALID",
    `its state does not fit the schema of agent "${agent.name}": ${describeIssues(checked.issues)}; say in edits.state what it is to be`,
  );
}

function unacknowledged(from: Uid, at: number, writes: readonly ForkedWrite[]): ForkRefusedError {
  const list = writes.map(
    ({ path, name, applied }) =>
      `${name} (step ${path}) ${applied === "yes" ? "was applied" : "may have been applied"}`,
  );
  return new ForkRefusedError(
    from,
    "WRITES_NOT_ACKNOWLEDGED",
    `behind entry ${at} ${list.join(", ")}, and the fork may do it once more under a new key; name each in acknowledge, by its path or tool, or fork behind it`,
    writes,
  );
}
