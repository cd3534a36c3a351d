/**
 * What a process does for its runs: it opens the store, drives what is runnable, takes requests and answers in, and stops in order.
 *
 * N1. Opening recovers: every run that was being driven when the former owner died goes on at once.
 * N2. A request is one transaction: what it means, its answers, its alias and its lease or wake-up.
 * N3. A run that waits holds neither a lease nor memory, but for the few that are kept folded.
 */
import { setMaxListeners } from "node:events";
import { uuidv7 } from "uuidv7";
import { entryAt, type LegRequest, type NewEntry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import { Folding, type Rendered, type RunState } from "../log/fold.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Message, RunAgentInput } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import type { Path, Principal, Uid } from "../protocol/words.ts";
import type { Answer, EventStore, Meaning, Posted, Run, ThreadKey } from "../store/store.ts";
import type { Agent, AsForked } from "./agent-definition.ts";
import { answerQuestion } from "./answers.ts";
import { childUids, isOfChild } from "./child-start.ts";
import { definitionHash } from "./definition-hash.ts";
import type { Driven } from "./driven.ts";
import { drive, driveBody } from "./driver.ts";
import { type Claimed, Driving } from "./driving.ts";
import { type ExportOptions, exportRun, loopOf } from "./export-run.ts";
import { type ForkedRun, type ForkOptions, planFork, threadExists } from "./fork.ts";
import { forkFromQuestion } from "./fork-from-question.ts";
import { legRequest, meaning } from "./meaning.ts";
import type { Observer } from "./observer.ts";
import { prune } from "./prune.ts";
import { Pruner } from "./pruner.ts";
import { type RaiseProblem, raiseProblem } from "./raise.ts";
import { RunningWrites } from "./running-writes.ts";
import { startingState } from "./starting-state.ts";
import { SuspectTurn } from "./suspects.ts";
import { type LoadedRun, Threads } from "./threads.ts";

/** A run as error reports name it. */
export interface ReportedRun {
  readonly agent: string;
  readonly threadId: string;
  /** The run's uid. */
  readonly runId: string;
}

export interface EngineOptions {
  readonly store: EventStore;
  readonly agents: ReadonlyMap<string, Agent>;
  /** Gets the causes that clients are not told, with the run that they belong to. */
  readonly report: (error: unknown, run: ReportedRun | null) => void;
  /** Milliseconds since the epoch. Default: the system's clock. */
  readonly now?: () => number;
  /** In [0, 1). Default: `Math.random`. */
  readonly random?: () => number;
  /** Ids of new runs. Default: uuid v7. */
  readonly newUid?: () => Uid;
  /** Default: nobody looks on. */
  readonly observer?: Observer | undefined;
  /** Prunes runs that ended so many ms ago. Default: none. */
  readonly pruneAfter?: number | undefined;
  /** Watches the code of custom loops. Default: no. */
  readonly development?: boolean | undefined;
}

/** A run that no agent of this process fits. */
export class AgentMissingError extends PerdureError {
  override readonly name = "AgentMissingError";
  constructor(
    readonly run: Uid,
    readonly agent: string,
  ) {
    super(
      "AGENT_MISSING",
      `run ${run} belongs to agent "${agent}", which this runtime does not have; it rests until one does`,
    );
  }
}

/** The thread of a fork has a model that its agent does not have any more. */
export class ModelMissingError extends PerdureError {
  override readonly name = "ModelMissingError";
  constructor(
    readonly run: Uid,
    readonly agent: string,
    readonly model: string,
  ) {
    super(
      "MODEL_MISSING",
      `run ${run} was forked with model "${model}", which agent "${agent}" does not have among its models any more; it goes on with the agent's own until it is named there again`,
    );
  }
}

const DRAIN_GRACE = 5_000;
/** How long drivers may take to write down that they gave up. Milliseconds. */
const LAST_WORDS = 1_000;

/** What came of a request. */
export interface PostedRun extends Posted {
  readonly known?: KnownRun | undefined;
}

/** A run where a request has left it, known without a look at its log: one that it has begun, or that rested before it. */
interface KnownRun extends LoadedRun {
  /** What the request has added to it that is shown. */
  readonly shown: readonly Rendered[];
}

export class Engine {
  readonly store: EventStore;
  readonly threads: Threads;
  readonly #agents: ReadonlyMap<string, Agent>;
  readonly #owner = `driver-${uuidv7()}`;
  readonly #now: () => number;
  readonly #random: () => number;
  readonly #newUid: () => Uid;
  readonly #report: EngineOptions["report"];
  readonly #observer: Observer | undefined;
  readonly #development: boolean;
  readonly #stop = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #driving: Driving;
  readonly #suspects = new SuspectTurn();
  readonly #writes = new RunningWrites(
    () => this.#now(),
    (uid) => this.#landed(uid),
  );
  #opened: Promise<void> | undefined;
  #unwatch: (() => void) | undefined;
  /** Runs whose driver died with the former owner of the store. */
  #isFormerOwnerDead = false;
  readonly #pruner: Pruner | undefined;
  #openedAt = 0;

  constructor({
    store,
    agents,
    report,
    now = Date.now,
    random = Math.random,
    newUid = () => uuidv7() as Uid,
    pruneAfter,
    observer,
    development = false,
  }: EngineOptions) {
    this.#development = development;
    this.store = store;
    this.threads = new Threads(store);
    this.#agents = agents;
    this.#report = report;
    this.#observer = observer;
    this.#now = now;
    this.#random = random;
    this.#newUid = newUid;
    this.#driving = new Driving({
      ...{ store, owner: this.#owner, now, stop: this.#stop.signal },
      report: (error, uid) => report(error, uid && { agent: "", threadId: "", runId: uid }),
      drive: (claimed, lostHere) => this.#drive(claimed, lostHere),
      beginDue: () => this.#beginDue(),
    });
    if (pruneAfter !== undefined) {
      const ofRun = ({ agent, thread, uid }: Run): ReportedRun => ({ agent, threadId: thread ?? uid, runId: uid });
      this.#pruner = new Pruner({
        ...{ store, threads: this.threads, after: pruneAfter, now },
        report: (error, run) => report(error, ofRun(run)),
      });
    }
    // Each run that is driven listens, and there may be thousands.
    setMaxListeners(0, this.#stop.signal, this.#giveUp.signal);
  }

  /** The clock of this engine, in ms since the epoch. */
  now(): number {
    return this.#now();
  }

  /** Opens the store and goes on with what was cut. Called by every operation; a second call waits for the first. */
  open(): Promise<void> {
    this.#opened ??= this.#open();
    return this.#opened;
  }

  async #open(): Promise<void> {
    const { formerOwnerDead } = await this.store.open(this.#owner);
    this.#isFormerOwnerDead = formerOwnerDead;
    this.#openedAt = this.#now();
    this.#unwatch = this.store.watch("claimable", () => this.#driving.claimSoon());
    this.#driving.claimSoon();
    this.#pruner?.start();
  }

  /**
   * Takes a request in.
   *
   * @param note - gets what was odd about it and was put right
   * @throws {@link StateInvalidError} when its state does not fit the agent's schema
   */
  async post(
    agent: Agent,
    input: RunAgentInput,
    principal: Principal,
    note: (what: string) => void = () => {},
  ): Promise<PostedRun> {
    await this.open();
    const { tenant, subject } = principal;
    const key: ThreadKey = { tenant, subject, agent: agent.name, thread: input.threadId };
    for (;;) {
      const newest = (await this.store.runs({ ...key, limit: 1 })).items[0];
      // While a leg is open a request can only rejoin it, or wait; what it knows is its own affair unless it may wait.
      const { whileActive = "refuse", whileParked = "refuse" } = agent;
      const isNeeded = newest !== undefined && (!newest.legOpen || whileActive !== "refuse");
      const loaded = isNeeded ? await this.threads.load(newest) : undefined;
      const last = newest?.legOpen ? undefined : loaded?.state;
      const ours = loaded === undefined ? [] : [...loaded.before, loaded.state].flatMap(idPrefixes);
      const shown = loaded?.state.messages ?? [];
      const state = await startingState(agent, input, last?.finished ? last.committed : undefined);
      let brought: readonly Message[] = [];
      const leasedAt = this.#now();
      const posted = await this.store.post({ key, runId: input.runId, owner: this.#owner }, (view): Meaning => {
        // The thread has moved on since its last state was read: what a new run begins with has to be chosen again.
        if ((view.run?.uid ?? null) !== (newest?.uid ?? null)) return { is: "refuse", ...STALE };
        // Nor is what it shows known any more.
        const isOther = last === undefined ? view.run?.legOpen !== newest?.legOpen : view.run?.head !== newest?.head;
        if (isOther) return { is: "refuse", ...STALE };
        return meaning(view, {
          ...{ input, principal, shown, note },
          mayLand: ({ path }) => view.run !== null && this.#writes.mayLand(view.run.uid, path),
          isOurs: (id) => [...ours, ...uidPrefix(view.run)].some((prefix) => id.startsWith(prefix)) || isOfChild(id),
          policy: { importHistory: agent.importHistory ?? false, systemMessages: agent.systemMessages ?? "refuse" },
          emptyRequest: agent.emptyRequest ?? "hydrate",
          ...{ whileActive, whileParked },
          first: (added) => {
            brought = added.messages;
            const turn = (view.run?.turn ?? 0) + 1;
            const request = legRequest({ input, principal, shown }, added);
            return this.#firstEntries({ agent, key, turn, request, state, forked: last?.run });
          },
        });
      });
      if (posted.meaning.is === "refuse" && posted.meaning.code === STALE.code) continue;
      if (posted.meaning.is === "leg" || posted.meaning.is === "queue") brought = posted.meaning.request.messages;
      for (const what of agent.loop?.unusable(brought) ?? []) note(what);
      if (posted.lease === null) return posted;
      const known = posted.meaning.is === "run" ? begun(posted, posted.meaning.first, loaded) : rested(loaded);
      this.#driving.drive({ lease: posted.lease, leasedAt, loaded: known });
      return { ...posted, known };
    }
  }

  /** @throws {@link ForkRefusedError} where it asks for a fork */
  async answer(
    answer: Answer,
  ): Promise<Awaited<ReturnType<typeof answerQuestion>> | NonNullable<Awaited<ReturnType<typeof forkFromQuestion>>>> {
    await this.open();
    const forked = await forkFromQuestion(this.store, answer, (uid, options) => this.fork(uid, options));
    if (forked !== undefined) return forked;
    return await answerQuestion(this.store, answer, (run, path) => this.#writes.mayLand(run, path));
  }

  async cancel(uid: Uid, by: string): Promise<"put" | "finished" | "none"> {
    await this.open();
    return await this.store.put(uid, by, { kind: "cancel" });
  }

  /** Adds to the limits of a run. @returns what is wrong with that, or what became of it */
  async raise(run: Run, amounts: Json, by: Principal): Promise<RaiseProblem | "put" | "finished" | "none"> {
    await this.open();
    const begun = await this.#begun(run.uid);
    if (begun === undefined) return "none";
    const problem = raiseProblem(this.#agents.get(run.agent), begun, amounts, by);
    return problem ?? (await this.store.put(run.uid, by.subject, { kind: "raise", payload: amounts }));
  }

  async #begun(uid: Uid): Promise<Pick<RunState, "run"> | undefined> {
    for await (const entry of this.store.read(uid, -1))
      return entry.kind === "run.started" ? { run: entry } : undefined;
    return undefined;
  }

  /** Tells a run something that its code may wait for. */
  async signal(uid: Uid, by: string, name: string, payload: Json): Promise<"put" | "finished" | "none"> {
    await this.open();
    return await this.store.put(uid, by, { kind: "signal", payload: { name, payload } });
  }

  /** Removes the frames of a run that is over. @throws {@link PruneRefusedError} */
  async prune(uid: Uid): Promise<"pruned" | "already"> {
    await this.open();
    return await prune(this.store, this.threads, uid);
  }

  /**
   * Begins a run that goes on from an entry of another one, in a thread of its own.
   *
   * @param by - who asks for it. Default: who asked last in the run
   * @throws {@link ForkRefusedError}
   */
  async fork(uid: Uid, options: ForkOptions, by?: Principal): Promise<ForkedRun> {
    await this.open();
    const { key, runId, first, run } = await planFork(
      {
        ...{ store: this.store, threads: this.threads, agents: this.#agents, newUid: this.#newUid },
        definitionOf: definitionHash,
        labelsOf: (begun) => this.#observer?.begins(begun) ?? {},
      },
      ...([uid, options, by] as const),
    );
    const leasedAt = this.#now();
    const posted = await this.store.post(
      { key, runId, owner: this.#owner },
      (view): Meaning => (view.run === null ? { is: "run", first } : { is: "refuse", ...STALE }),
    );
    if (posted.lease === null) throw threadExists(uid, key.thread);
    this.#driving.drive({ lease: posted.lease, leasedAt });
    return run;
  }

  /** A recorded run, to hold its agent against later. @throws {@link ExportRefusedError} */
  async export(uid: Uid, options: ExportOptions): Promise<RunFixture> {
    await this.open();
    return await exportRun({ store: this.store, threads: this.threads, agents: this.#agents }, uid, options);
  }

  /** Cancels a run that nobody reads, if it is in the middle of a leg and its agent wants that. */
  async cancelIfLeft(uid: Uid): Promise<void> {
    try {
      const run = await this.store.run(uid);
      // Whether a child goes on is for whoever reads its parent to say.
      if (run?.outcome !== null || !run.legOpen || run.parent !== null) return;
      if (this.#agents.get(run.agent)?.disconnect === "cancel") await this.cancel(uid, "disconnect");
    } catch (error) {
      this.#report(error, { agent: "", threadId: "", runId: uid });
    }
  }

  /**
   * Stops driving: what runs may end, then each run is anybody's. Resolves when nothing is driven here any more and the store is closed.
   *
   * @param grace - ms that bodies may take; then model calls and reads are aborted, and the legs of `run(ctx)` agents end
   */
  async close(grace = DRAIN_GRACE): Promise<void> {
    if (this.#opened === undefined) return;
    await this.#opened.catch(() => {});
    this.#stop.abort();
    this.#unwatch?.();
    await this.#driving.claimed();
    await this.#pruner?.stop();
    await this.#driving.driven(grace);
    this.#giveUp.abort();
    await this.#driving.driven(LAST_WORDS);
    await this.#closeTools();
    await this.store.close();
  }

  /** Begins to connect to what the tools of agents need. What cannot be had now is asked for again when a run needs it, and reported then. */
  warmUp(): void {
    for (const { loop } of this.#agents.values()) loop?.refresh?.(this.#stop.signal).catch(() => {});
  }

  async #closeTools(): Promise<void> {
    const closing = [...this.#agents.values()].map(async ({ loop }) => await loop?.close?.());
    for (const closed of await Promise.allSettled(closing)) {
      if (closed.status === "rejected") this.#report(closed.reason, null);
    }
  }

  /** A write has ended that its run rests for: what it brought counts at once, and not only when a human has spoken. */
  #landed(uid: Uid): void {
    if (this.#stop.signal.aborted) return;
    this.store.wake(uid).catch((error: unknown) => this.#report(error, { agent: "", threadId: "", runId: uid }));
  }

  #firstEntries(start: {
    readonly agent: Agent;
    readonly key: ThreadKey;
    readonly turn: number;
    readonly request: LegRequest;
    readonly state: Json;
    /** What its thread has of a fork. */
    readonly forked: AsForked | undefined;
  }): NewEntry[] {
    const { agent, key, turn, request, state, forked: { instructions, model } = {} } = start;
    const isOther = !jsonEqual(state, request.state ?? {});
    const root = "" as Path;
    const uid = this.#newUid();
    return [
      {
        kind: "run.started",
        uid,
        agent: agent.name,
        definition: definitionHash(agent),
        owner: { tenant: key.tenant, subject: key.subject },
        thread: key.thread,
        turn,
        labels: this.#observer?.begins({ uid, agent: agent.name, thread: key.thread }) ?? {},
        ...(instructions !== undefined && { instructions }),
        ...(model !== undefined && { model }),
      },
      { kind: "leg.started", leg: 1, runId: request.runId, request },
      // The state that the run begins with, where it is not the client's: the agent's initial one, or the thread's last.
      ...(isOther
        ? ([{ kind: "state", path: root, patch: [{ op: "replace", path: "", value: state }] }] as const)
        : []),
      { kind: "frame", path: root, ref: { of: "RUN_STARTED", leg: 1 } },
      ...(isOther ? ([{ kind: "frame", path: root, ref: { of: "STATE_SNAPSHOT" } }] as const) : []),
      ...(request.isBehind ? ([{ kind: "frame", path: root, ref: { of: "MESSAGES_SNAPSHOT" } }] as const) : []),
    ];
  }

  async #beginDue(): Promise<void> {
    for (const key of await this.store.dueThreads()) await this.#beginNext(key);
  }

  /** What has waited longest in a thread becomes its next run. */
  async #beginNext(key: ThreadKey): Promise<void> {
    const reported = { agent: key.agent, threadId: key.thread, runId: "" };
    try {
      while (!this.#stop.signal.aborted) {
        const agent = this.#agents.get(key.agent);
        const newest = (await this.store.runs({ ...key, limit: 1 })).items[0];
        const [next] = await this.store.queued(key);
        if (agent === undefined || newest === undefined || newest.outcome === null || next === undefined) return;
        // The server's state wins: what the client sent was the state of a run that was not over.
        const { committed: state, run: before } = (await this.threads.load(newest)).state;
        const { request, n: queued } = next;
        const turn = newest.turn + 1;
        const leasedAt = this.#now();
        const of = { key, runId: request.runId, owner: this.#owner };
        const { lease } = await this.store.post(of, (view): Meaning => {
          const isStill = view.run?.uid === newest.uid && view.run.head === newest.head && view.queued[0]?.n === queued;
          if (!isStill) return { is: "refuse", ...STALE };
          return { is: "run", queued, first: this.#firstEntries({ agent, key, turn, request, state, forked: before }) };
        });
        if (lease !== null) return this.#driving.drive({ lease, leasedAt });
      }
    } catch (error) {
      this.#report(error, reported);
    }
  }

  async #drive({ lease, leasedAt, loaded }: Claimed, lostHere: ReadonlySet<number>): Promise<Driven> {
    const run = await this.store.run(lease.uid);
    if (run === null) return "released";
    const agent = this.#agents.get(run.agent);
    const reported = { agent: run.agent, threadId: run.thread ?? run.uid, runId: run.uid };
    const report = (error: unknown): void => this.#report(error, reported);
    if (agent === undefined) {
      report(new AgentMissingError(run.uid, run.agent));
      return "released";
    }
    const { state, before } = loaded ?? (await this.threads.load(run));
    const options = {
      ...{ store: this.store, lease, leasedAt, run: state, before },
      // Only what was cut before this process opened the store is the former owner's.
      isOwnerDead: this.#isFormerOwnerDead && (state.running.size === 0 || lastAttemptAt(state) < this.#openedAt),
      ...{ lostHere, suspects: this.#suspects, writes: this.#writes },
      ...{ stop: this.#stop.signal, giveUp: this.#giveUp.signal, now: this.#now, random: this.#random, report },
      development: this.#development,
      drives: (name: string) => this.#agents.has(name),
    };
    const { model } = state.run;
    if (model !== undefined && agent.loop?.alternatives.includes(model) === false) {
      report(new ModelMissingError(run.uid, agent.name, model));
    }
    const going = agent.loop === undefined ? agent : { ...agent, loop: loopOf(agent.loop, state) };
    const observing = this.#observer?.drives({ agent: going, epoch: lease.epoch, run: state, before });
    const driven =
      going.loop === undefined
        ? driveBody({ ...options, observing, agent: going })
        : drive({ ...options, observing, agent: going });
    return await driven.then((how) => {
      observing?.ends(how);
      return how;
    });
  }
}

/** A run that has just been begun behind the thread's last one. */
function begun({ run }: Posted, first: readonly NewEntry[], last: LoadedRun | undefined): KnownRun | undefined {
  if (run === null) return undefined;
  const before = last === undefined ? [] : [...last.before, last.state];
  const folding = new Folding(last?.state);
  const shown = first.flatMap((entry, seq) => {
    const event = folding.add(entryAt(entry, seq, run.createdAt));
    return event === undefined ? [] : [{ seq, event }];
  });
  return { state: folding.state, before, shown };
}

/** A run to which nothing was added but what waits in its inbox. */
function rested(loaded: LoadedRun | undefined): KnownRun | undefined {
  return loaded && { ...loaded, shown: [] };
}

/** With what the ids begin that a run, or one of its children, has made. */
function idPrefixes(run: RunState): readonly string[] {
  return [run.run.uid, ...childUids(run)].map((uid) => `${uid}:`);
}

function uidPrefix(run: Pick<Run, "uid"> | null): readonly string[] {
  return run === null ? [] : [`${run.uid}:`];
}

const STALE = { status: 409, code: "THREAD_MOVED", details: null } as const;

function lastAttemptAt({ running }: RunState): number {
  return Math.max(...[...running.values()].map(({ attempt }) => attempt.at));
}
