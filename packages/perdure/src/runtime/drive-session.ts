/** What the parts of a driver share: the run's log and stream, the way to append, and the way to wake the driver. */

import { aggregateTokenUsage } from "@ag-ui/core";
import { RunInterrupted } from "../emit/errors.ts";
import { closeLeftovers, type Leaving, leftovers } from "../emit/leftovers.ts";
import { type Memory, Outlet } from "../emit/outlet.ts";
import type { Interrupt, NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { interruptEvent, isOperators } from "../log/interrupts.ts";
import type { TokenUsage } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Rebased } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";
import type { Batch, Claim, ClaimChange, Closed, EventStore, Inbox } from "../store/store.ts";
import type { Agent } from "./agent-definition.ts";
import { Drafts } from "./drafts.ts";
import type { DriverOptions } from "./driver-options.ts";
import { closingEntries } from "./intake.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { LogStream } from "./log-stream.ts";
import type { DriveObserver } from "./observer.ts";
import { type LeaseLostError, RunLog } from "./run-log.ts";
import { StateSize } from "./state-size.ts";

export class DriveSession {
  readonly outlet: Outlet;
  /** Keeps the memos of transformers in the log. */
  readonly memory: Memory;
  readonly drafts = new Drafts();
  readonly stateSize = new StateSize();
  /** What has come in while this driver has the run. */
  readonly taken: NewEntry[] = [];
  /** What the state was with the end of each step that has ended here. */
  readonly committedWith = new Map<Path, Json>();
  readonly #log: RunLog;
  readonly stream: LogStream;
  readonly #abort = new AbortController();
  /** Of the inbox: what was taken may still be there until its batch is durable. No row's number is ever another's. */
  readonly #rowsTaken = new Set<number>();
  readonly #store: EventStore;
  readonly #keeper: LeaseKeeper;
  readonly #observing: DriveObserver | undefined;
  #mayHaveMail = true;
  #isAwake = true;
  #onWake: (() => void) | undefined;

  constructor(options: DriverOptions<Agent>) {
    const { store, lease, run, agent, now } = options;
    this.#store = store;
    this.#observing = options.observing;
    this.#log = new RunLog(this.#appending(store), lease, run, (error) => this.#lost(error), now);
    this.#keeper = new LeaseKeeper(options, this.#log);
    this.stream = new LogStream(this.#log, now);
    this.memory = {
      memos: run.memos,
      keep: (transformer, value) => this.add([{ kind: "memo", transformer, value }]),
    };
    this.outlet = new Outlet(this.stream, agent.transformers ?? [], this.memory);
  }

  /** The run with everything that was emitted and appended. */
  get state(): RunState {
    this.stream.flush();
    return this.#log.state;
  }

  get epoch(): number {
    return this.#log.epoch;
  }

  /** Aborted when the lease is lost. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Appends entries behind everything that was emitted so far; those of one tick are one batch. */
  add(entries: readonly NewEntry[], options: { readonly claims?: readonly ClaimChange[] } = {}): void {
    this.stream.flush();
    this.#log.add(entries, options);
    this.#remember(entries);
  }

  /** Adds what came in as entries, in whose batch it leaves the inbox. */
  take(entries: readonly NewEntry[], items: readonly Inbox[]): void {
    this.stream.flush();
    const rows = items.map(({ row }) => row);
    this.#log.add(entries, { taken: rows });
    for (const row of rows) this.#rowsTaken.add(row);
    this.#remember(entries);
  }

  #remember(entries: readonly NewEntry[]): void {
    for (const entry of entries) {
      if (entry.kind === "inbox.taken") this.taken.push(entry);
      if (entry.kind === "step.finished") this.committedWith.set(entry.path, this.#log.state.committed);
    }
  }

  /** Resolves when everything that was added is durable. */
  committed(): Promise<void> {
    this.stream.flush();
    return this.#log.committed();
  }

  /**
   * Begins a body, in the very tick in which the lease is found to be this driver's for a while yet. Its attempt has to be durable.
   *
   * @param body - called once; what it returns is not awaited
   * @param path - its step's
   * @throws {@link LeaseLostError}
   */
  async begin<T>(body: () => T, path = "" as Path): Promise<{ readonly begun: T }> {
    for (;;) {
      this.signal.throwIfAborted();
      if (this.#keeper.isSure)
        return { begun: this.#observing === undefined ? body() : this.#observing.inside(path, body) };
      await this.#keeper.renew();
    }
  }

  /**
   * Appends a batch that may be refused because something came in.
   *
   * @param entries - or what makes them when their turn has come
   * @returns whether it was appended
   */
  async offer(
    entries: readonly NewEntry[] | (() => readonly NewEntry[]),
    options: Omit<Batch, "entries"> = {},
  ): Promise<boolean> {
    return await this.offerBatch(() => ({
      ...options,
      entries: typeof entries === "function" ? entries() : entries,
    }));
  }

  /** The same, of a batch that depends as a whole on what was added before it. */
  async offerBatch(make: () => Batch): Promise<boolean> {
    this.stream.flush();
    let made: readonly NewEntry[] = [];
    const appended = await this.#log.offer(() => {
      const batch = make();
      made = batch.entries;
      return batch;
    });
    if (appended.is === "inbox") this.#mayHaveMail = true;
    if (appended.is === "appended") this.#remember(made);
    return appended.is === "appended";
  }

  /** Appends a batch that takes a key. @returns who has it, if it is not free */
  async offerKey(entries: readonly NewEntry[], claim: ClaimChange): Promise<Claim | null> {
    this.stream.flush();
    for (;;) {
      const appended = await this.#log.offer(() => ({ entries, claims: [claim] }));
      if (appended.is !== "inbox") return appended.is === "held" ? appended.claim : null;
    }
  }

  /** A question and what clients are told of it: nothing, where it is an operator's. */
  opening(
    interrupt: Interrupt,
    { patch, dropped }: Pick<Rebased, "patch" | "dropped"> = UNCHANGED,
  ): readonly NewEntry[] {
    return [
      {
        ...{ kind: "interrupt.opened", interrupt },
        ...(patch.length > 0 && { patch }),
        ...(dropped.length > 0 && { dropped }),
      },
      ...(isOperators(interrupt)
        ? []
        : [{ kind: "frame", path: "" as Path, event: interruptEvent(interrupt, "open") } as const]),
    ];
  }

  /** The end of a question and what clients are told of it. None when it is not open (any more). */
  closing(id: string, closed: Omit<Closed, "at">): readonly NewEntry[] {
    return closingEntries(this.state, id, closed);
  }

  /** The frame that leads from what clients hold to what they should once `committed` is the state; none when they hold it. */
  showing(path: Path, committed: Json): readonly NewEntry[] {
    const event = this.drafts.show(this.state.shown, committed);
    return event === undefined ? [] : [{ kind: "frame", path, event }];
  }

  /** Appends the frame that leads from what clients hold to what they should, if that is something else. */
  showState(path: Path): void {
    const frames = this.showing(path, this.state.committed);
    if (frames.length > 0) this.add(frames);
  }

  /** The state that clients should hold. */
  stateToShow(): Json {
    return this.drafts.target(this.state.committed);
  }

  /** Whether an attempt still has no outcome, and is this driver's to record. */
  isRunning(path: Path, n: number): boolean {
    return !this.signal.aborted && this.state.running.get(path)?.attempt.n === n;
  }

  /** Closes what is open in the lane at `path` and inside it; everything, unless told. */
  closeOpen(leaving: Leaving, path?: Path): void {
    closeLeftovers(this.outlet, leaving, path);
  }

  /** What closes all that is open, for a leg that ends before those who have opened it are done. */
  bridges(leaving: Leaving): readonly NewEntry[] {
    return leftovers(this.outlet, leaving).map(({ event, lane }) => ({
      kind: "frame",
      path: lane,
      event,
      bridge: true,
    }));
  }

  /** What the steps of the open leg have used. */
  legUsage(): readonly TokenUsage[] {
    const { steps, leg } = this.state;
    const since = leg?.seq ?? 0;
    const used = [...steps.values()].flatMap(({ finished }) =>
      finished !== undefined && finished.seq > since ? (finished.usage ?? []) : [],
    );
    return used.length === 0 ? [] : aggregateTokenUsage([...used]);
  }

  /** What has come in and was not taken yet. Asked for only after a hint, and when the store has refused something because of it. */
  async mail(): Promise<readonly Inbox[]> {
    if (!this.#mayHaveMail) return [];
    this.#mayHaveMail = false;
    const inbox = await this.#store.inbox(this.#log.uid);
    const items = inbox.filter(({ row }) => !this.#rowsTaken.has(row));
    if (items.length > 0) this.#mayHaveMail = true;
    return items;
  }

  /** Something has come in. */
  readonly mailed = (): void => {
    this.#mayHaveMail = true;
    this.wake();
  };

  readonly wake = (): void => {
    this.#isAwake = true;
    this.#onWake?.();
  };

  /** Resolves when the driver was woken since it last slept, or after `ms`. */
  async awaken(ms: number): Promise<void> {
    if (!this.#isAwake) {
      await new Promise<void>((resolve) => {
        this.#onWake = resolve;
        const timer = Number.isFinite(ms) ? setTimeout(resolve, Math.min(ms, 0x7fffffff)) : undefined;
        if (timer === undefined) return;
        this.#onWake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#onWake = undefined;
    }
    this.#isAwake = false;
    this.signal.throwIfAborted();
  }

  lose(cause?: unknown): void {
    this.#log.lose(cause);
  }

  /** Nothing of this driver's bodies leaves any more. */
  close(): void {
    this.#keeper.stop();
    this.outlet.close(new RunInterrupted(this.#log.state.leg?.runId ?? this.#log.state.run.uid, "ended"));
  }

  /** The store, where somebody looks on at what becomes durable. */
  #appending(store: EventStore): Pick<EventStore, "append"> {
    const observing = this.#observing;
    if (observing === undefined) return store;
    return {
      append: async (lease, batch) => {
        const appended = await store.append(lease, batch);
        if (appended.is === "appended") observing.appended(batch.entries, appended.at, this.#log.state);
        return appended;
      },
    };
  }

  #lost(error: LeaseLostError): void {
    this.#keeper.stop();
    this.outlet.close(new RunInterrupted(this.#log.state.leg?.runId ?? this.#log.state.run.uid, "lease-lost"));
    this.#abort.abort(error);
    this.wake();
  }
}

const UNCHANGED = { patch: [], dropped: [] } as const;
