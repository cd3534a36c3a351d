import fc from "fast-check";
import { expect, test } from "vitest";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import type { StoreOptions } from "../../src/store/engine.ts";
import { memory } from "../../src/store/memory.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import type { Batch, ClaimChange, EventStore, Lease, Meaning, ThreadView } from "../../src/store/store.ts";
import {
  answered,
  asks,
  Clock,
  delta,
  hash,
  legFinished,
  legStarted,
  memo,
  no,
  nothing,
  parked,
  path,
  request,
  runFinished,
  says,
  started,
  thread,
  uid,
  yes,
} from "./builders.ts";
import { folder } from "./folder.ts";
import { transcript } from "./pruning.ts";

/** What random callers and drivers do. Numbers pick among what is there. */
type Command =
  | { do: "post"; thread: number; runId: number; messages: boolean; answer: number }
  | { do: "answer"; question: number; yes: boolean }
  | { do: "put"; run: number }
  | { do: "claim" | "reopen" }
  | { do: "tick"; ms: number }
  | { do: "renew" | "work" | "large" | "frames" | "ask" | "take" | "finish"; lease: number }
  | { do: "park"; lease: number; wake: boolean; key: boolean }
  | { do: "key"; lease: number; to: ClaimChange["to"]; path: number }
  | { do: "aside" | "prune"; run: number };

const pick = fc.nat(5);
/** Mostly the newest lease; an older one is most often stale, which has to be tried too. */
const lease = { lease: fc.constantFrom(0, 0, 0, 0, 0, 1, 1, 2, 5) };
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("post" as const),
      thread: fc.nat(1),
      runId: pick,
      messages: fc.boolean(),
      answer: pick,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("answer" as const), question: fc.nat(2), yes: fc.boolean() }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("put" as const), run: fc.nat(1) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("claim" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("reopen" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("tick" as const), ms: fc.constantFrom(1, 400, 1_001) }) },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constantFrom("renew", "work", "large", "frames", "ask", "ask", "take", "take", "finish"),
      ...lease,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("park" as const), ...lease, wake: fc.boolean(), key: fc.boolean() }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("key" as const),
      ...lease,
      to: fc.constantFrom("running", "running", "running", "unknown", "settled", "released"),
      path: fc.nat(1),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("aside" as const), run: fc.constant(5) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("prune" as const), run: fc.nat(3) }) },
);

const key = { tenant: "acme", tool: "refund", key: "k" };

/** A store with its callers: does the commands, and keeps its own books of what was acknowledged. */
class World {
  store: EventStore;
  readonly clock = new Clock();
  readonly leases: Lease[] = [];
  /** Acknowledged entries of each run. */
  readonly acknowledged = new Map<string, number>();
  /** Questions whose answer was accepted. */
  readonly accepted = new Set<string>();
  readonly runs: string[] = [];
  readonly questions: string[] = [];

  constructor(readonly make: (options: StoreOptions) => EventStore) {
    this.store = this.#made();
  }

  #made() {
    return this.make({ clock: this.clock.now, leaseMs: 1_000, claimTtl: 900 });
  }

  /** What came of it, an error by its code. */
  async do(command: Command): Promise<unknown> {
    try {
      return await this.#do(command);
    } catch (error) {
      if (error instanceof Error && "code" in error) return { failed: error.code };
      throw error;
    }
  }

  async #do(command: Command): Promise<unknown> {
    switch (command.do) {
      case "tick":
        return this.clock.tick(command.ms);
      case "reopen":
        await this.store.close();
        this.store = this.#made();
        return this.store.open("w");
      case "post":
        return this.#post(command);
      case "put":
        return this.store.put(uid(this.runs.at(-1 - command.run) ?? "none"), "ann", {
          kind: "signal",
          payload: this.clock.ms,
        });
      case "answer": {
        const id = this.questions.at(-1 - command.question) ?? "none";
        const result = await this.store.answer(command.yes ? yes(id) : no(id));
        if (result.is === "taken") this.accepted.add(id);
        return result;
      }
      case "claim": {
        const claimed = await this.store.claim("w");
        if (claimed !== null) this.leases.push(claimed);
        return claimed;
      }
      case "aside":
        return this.store.setAside(uid(this.runs[command.run] ?? "none"), "for the test");
      case "prune": {
        const run = this.runs.at(-1 - command.run) ?? "none";
        const head = (await this.store.run(uid(run)))?.head ?? -1;
        const result = await this.store.prune(uid(run), head, transcript);
        if (result === "pruned") this.acknowledged.set(run, head + 2);
        return result;
      }
      default: {
        const held = this.leases.at(-1 - command.lease);
        if (held === undefined) return null;
        return command.do === "renew" ? this.store.renew(held) : this.#append(held, await this.#batch(command, held));
      }
    }
  }

  async #post({ thread: t, runId, messages, answer }: Extract<Command, { do: "post" }>): Promise<unknown> {
    const at = thread(`t${t}`);
    const name = `r${runId}`;
    const asked = request(name, { messages: messages ? [says(`m${runId}`)] : [] });
    const run = `u${this.runs.length}`;
    const decide = (view: ThreadView): Meaning => {
      if (view.known !== null) return { is: "rejoin", uid: view.known.uid, answers: [], added: nothing };
      if (view.run === null || view.run.outcome !== null) {
        if (!messages && view.run !== null) return { is: "hydrate", uid: view.run.uid, added: nothing };
        return { is: "run", first: [started(run, at, { turn: (view.run?.turn ?? 0) + 1 }), legStarted(1, asked)] };
      }
      const open = view.open[answer];
      const taken = open === undefined ? [] : [yes(open.id)];
      if (view.run.legOpen || view.run.legDue) {
        return { is: "rejoin", uid: view.run.uid, answers: taken, added: nothing };
      }
      if (!view.run.atRest) return { is: "refuse", status: 409, code: "RUN_ACTIVE", details: view.hasMessage("m1") };
      return { is: "leg", uid: view.run.uid, answers: taken, request: asked };
    };
    const posted = await this.store.post({ key: at, runId: name, owner: "w" }, decide);
    const { meaning } = posted;
    for (const { interrupt } of "answers" in meaning ? meaning.answers : []) this.accepted.add(interrupt);
    if (posted.lease !== null) this.leases.push(posted.lease);
    if (meaning.is === "run") {
      this.runs.push(run);
      this.acknowledged.set(run, 2);
    }
    return posted;
  }

  async #batch(command: Extract<Command, { lease: number }>, held: Lease): Promise<Batch> {
    switch (command.do) {
      case "work":
        return { entries: [memo(this.clock.ms), delta("a")] };
      case "large":
        return { entries: [{ kind: "memo", transformer: "t", value: [{ large: "v".repeat(70_000) }, this.clock.ms] }] };
      case "frames":
        return { entries: [delta("a"), delta("b")] };
      case "ask": {
        const id = `i${this.questions.length}`;
        return { entries: [asks(id)] };
      }
      case "take": {
        const inbox = await this.store.inbox(held.uid);
        const entries = inbox.flatMap((item): NewEntry[] => {
          if (item.kind === "request") return [legStarted(9, item.request)];
          if (item.kind !== "answer") return [{ kind: "inbox.taken", item: item.kind, payload: null, by: item.by }];
          return [answered(item.interrupt, item.status, item.payload === undefined ? {} : { payload: item.payload })];
        });
        return { entries, taken: inbox.map(({ row }) => row) };
      }
      case "finish":
        return { entries: [legFinished(1), runFinished], ends: parked };
      case "park": {
        const ends = { ...parked, wakeAt: command.wake ? this.clock.ms + 300 : null };
        return { entries: [legFinished(1)], ends: { ...ends, waitsForKey: command.key ? key : null } };
      }
      case "key": {
        const holder = { uid: held.uid, path: path(String(command.path)) };
        return { entries: [memo(0)], claims: [{ ...key, to: command.to, argsHash: hash("a"), holder }] };
      }
      default:
        return { entries: [] };
    }
  }

  async #append(held: Lease, batch: Batch): Promise<unknown> {
    const result = await this.store.append(held, batch);
    if (result.is !== "appended") return result;
    this.acknowledged.set(held.uid, (this.acknowledged.get(held.uid) ?? 0) + batch.entries.length);
    for (const entry of batch.entries) {
      if (entry.kind === "interrupt.opened") this.questions.push(entry.interrupt.id);
    }
    return result;
  }

  async everything() {
    const runs = [];
    for (const run of this.runs) {
      const entries: Entry[] = [];
      for await (const entry of this.store.read(uid(run), -1)) entries.push(entry);
      runs.push({ entries, row: await this.store.run(uid(run)), inbox: await this.store.inbox(uid(run)) });
    }
    return {
      runs,
      questions: await Promise.all(this.questions.map((id) => this.store.question(id))),
      listed: [await this.store.runs({ tenant: "acme" }), await this.store.questions({ tenant: "acme" })],
      key: await this.store.claimOf(key),
      next: await this.store.nextReadyAt(),
      legs: await Promise.all(
        [0, 1].flatMap((t) => [0, 1, 2, 3, 4, 5].map((r) => this.store.leg(thread(`t${t}`), `r${r}`))),
      ),
    };
  }
}

/** What holds whatever was done, by the world's own books. */
function checkBooks(world: World, { runs }: Awaited<ReturnType<World["everything"]>>): void {
  const recorded: string[] = [];
  for (const { entries, row, inbox } of runs) {
    const head = (world.acknowledged.get(row?.uid ?? "") ?? Number.NaN) - 1;
    expect(row?.head).toBe(head);
    // Only frames are ever missing, and only those of a pruned run.
    const gone = Array.from({ length: head + 1 }, (_, seq) => seq).filter((seq) => !entries.some((e) => e.seq === seq));
    expect(gone.at(-1) ?? -1).toBe(row?.pruned ?? -1);
    if (row?.pruned !== null) expect(entries.filter(({ kind }) => kind === "frame")).toEqual([]);
    for (const entry of entries) if (entry.kind === "interrupt.answered") recorded.push(entry.id);
    for (const item of inbox) if (item.kind === "answer") recorded.push(item.interrupt);
    const asleep = row?.owner === null && row.readyAt === null && row.aside === null;
    if (asleep) expect(inbox).toEqual([]);
  }
  expect(recorded.sort()).toEqual([...world.accepted].sort());
  const epochs = new Map<string, number>();
  for (const { uid: run, epoch } of world.leases) {
    expect(epoch).toBe((epochs.get(run) ?? 0) + 1);
    epochs.set(run, epoch);
  }
}

test("whatever is done in whatever order: memory and SQLite answer alike, no answer is lost or slept through, no entry either", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 30, maxLength: 60 }), async (commands) => {
      const place = await folder();
      let kept: EventStore | null = null;
      const inMemory = new World((options) => {
        kept ??= memory(options);
        return kept;
      });
      const inFile = new World((options) => sqlite(place.file, options));
      try {
        await inMemory.store.open("w");
        await inFile.store.open("w");
        for (const command of commands) {
          const [expected, found] = [await inMemory.do(command), await inFile.do(command)];
          expect(found, JSON.stringify(command)).toEqual(expected);
        }
        const everything = await inMemory.everything();
        expect(await inFile.everything()).toEqual(everything);
        checkBooks(inMemory, everything);
      } finally {
        await inFile.store.close();
        await place.remove();
      }
    }),
    // Fewer on a slow disk; and a failure leaves time to shrink it.
    { numRuns: 30, interruptAfterTimeLimit: 20_000 },
  );
});
