/** Random custom loops, forked: each fork in a world of its own, in which nothing of its history has happened. */
import type { AGUIEvent } from "perdure/protocol";
import type { Entry, Interrupt } from "../../src/log/entries.ts";
import type { HeldByClient } from "../../src/log/equal-transcripts.ts";
import type { RunFixture } from "../../src/log/fixture.ts";
import { fold, type RunState } from "../../src/log/fold.ts";
import type { Json } from "../../src/protocol/json.ts";
import { newTranscript, reduce, type Transcript } from "../../src/protocol/reduce.ts";
import { SseFrames } from "../../src/protocol/sse.ts";
import type { Uid } from "../../src/protocol/words.ts";
import { forkPlace } from "../../src/runtime/diverged.ts";
import type { ForkedRun, ForkOptions } from "../../src/runtime/fork.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { memoryDisk, Outside } from "../../src/testing/outside.ts";
import { Signaller } from "../../src/testing/signaller.ts";
import { CLIENT_TOOL, client, Ledger, loopOf, type Op } from "./random-loops.ts";

/** How a run has ended, and what it did. */
export interface Gone {
  readonly run: Run;
  readonly log: readonly Entry[];
  readonly state: RunState;
  /** What its world says has happened. */
  readonly effects: readonly string[];
  readonly deaths: number;
  /** What a client holds that came at its beginning and came back whenever it was cut off. */
  readonly client: HeldByClient;
  /** And one that comes when all is over. */
  readonly late: HeldByClient;
}

/** A run waits for an operator. */
export class Stopped extends Error {
  /** The last entry before its code and its record part. */
  readonly forkAt: number | undefined;

  constructor(
    readonly run: string,
    interrupt: Interrupt,
  ) {
    super(interrupt.message);
    this.forkAt = forkPlace(interrupt);
  }
}

/** One program, one store, and as many worlds as it is played in. */
export class ForkedLoops {
  readonly #outside = new Outside(memoryDisk());
  readonly #signaller: Signaller<undefined>;
  #life: Life | undefined;
  #ledger = new Ledger();
  #fates: Fate[] = [];

  constructor(
    private readonly program: readonly Op[],
    /** What the forks run, where that is another one. */
    private readonly forked = program,
  ) {
    const look = { world: undefined, effects: () => [], happened: () => false };
    this.#signaller = new Signaller(client.signals, look, () => this.#life);
    this.#outside.beforeJump = () => this.#signaller.pass();
  }

  /** Plays it as it is. */
  async plays(fates: readonly Fate[] = []): Promise<Gone> {
    this.#enter(fates);
    await this.#post({ threadId: "source", runId: "r" });
    return await this.#toTheEnd("source");
  }

  /** Forks a run of it, in a new world. */
  async forks(uid: string, options: ForkOptions, fates: readonly Fate[] = []): Promise<Gone> {
    const begun = await this.begins(uid, options, fates);
    return await this.#toTheEnd(begun.thread);
  }

  /** Begins a fork, and lets it go. */
  async begins(uid: string, options: ForkOptions, fates: readonly Fate[] = []): Promise<ForkedRun> {
    this.#enter(fates, this.forked);
    for (let tries = 0; ; tries++) {
      const life = await this.#alive();
      const begun = await Promise.race([life.runtime.fork(uid, options), life.mortal.died.then(() => undefined)]);
      if (begun !== undefined) return begun;
      // It may have been made before its process died.
      const made = (await life.mortal.below.runs({ tenant: "local" })).items[0];
      if (made?.uid !== uid && made?.thread === options.thread) {
        return { uid: made?.uid ?? "", agent: "random", thread: options.thread ?? "", forkedFrom: { uid, seq: -1 } };
      }
      if (tries > 10) throw new Error("the fork was asked for ten times");
    }
  }

  async close(): Promise<void> {
    const life = this.#life;
    this.#life = undefined;
    if (life !== undefined && !life.mortal.isDead) await life.runtime.close();
  }

  get reported(): readonly unknown[] {
    return this.#life?.reported ?? [];
  }

  #program: readonly Op[] = [];
  #deaths = 0;

  #enter(fates: readonly Fate[], program = this.program): void {
    this.#life?.mortal.die();
    this.#life?.mortal.bury();
    this.#life = undefined;
    this.#ledger = new Ledger();
    this.#fates = [...fates];
    this.#program = program;
    this.#deaths = 0;
  }

  async #alive(): Promise<Life> {
    for (;;) {
      const before = this.#life;
      if (before !== undefined) {
        if (!before.mortal.isDead) return before;
        await before.bodiesEnded(20_000, new Set());
        before.mortal.bury();
        this.#deaths += 1;
      }
      const life = new Life(this.#outside, this.#fates.shift() ?? null, loopOf(this.#program, this.#ledger));
      this.#life = life;
      await life.open();
    }
  }

  async #ask(path: string, init: RequestInit = {}): Promise<string> {
    for (let tries = 0; tries < 20; tries++) {
      const life = await this.#alive();
      const said = await life
        .fetch(`http://localhost${path}`, init)
        .then((response) => response.text())
        .catch((error: unknown) => {
          if (!life.mortal.isDead) throw error;
        });
      if (said !== undefined && !life.mortal.isDead) return said;
    }
    throw new Error(`${path} was asked for twenty times`);
  }

  /** What a run asks, and its children. */
  async #openQuestions(uid: Uid) {
    const store = await this.#store();
    const children = (await store.runs({ tenant: "local", parent: uid, limit: 500 })).items;
    const asked = [];
    for (const run of [uid, ...children.map((child) => child.uid)]) {
      asked.push(...(await store.questions({ tenant: "local", run })).items);
    }
    return asked;
  }

  async #post(request: { threadId: string; runId: string }, results: readonly object[] = []): Promise<void> {
    const headers = { "content-type": "application/json" };
    const messages = [{ id: "u", role: "user", content: "go" }, ...results];
    const body = { ...request, messages, tools: client.tools, context: [], state: {} };
    await this.#signaller.during(this.#ask("/agents/random", { method: "POST", headers, body: JSON.stringify(body) }));
  }

  /** What the front end's tools return that a run waits for. */
  async #answerCalls(thread: string, { uid }: Run, tries: number): Promise<void> {
    const { steps, leg } = fold(await this.log(uid));
    if (leg !== null) return;
    const results = [...steps.values()].flatMap(({ started: { step, toolCallId, input }, finished }) => {
      if (step !== "client-tool" || finished !== undefined || !("value" in input)) return [];
      const content = client.results[CLIENT_TOOL.name]?.(input.value);
      return [{ id: `of-${toolCallId}`, role: "tool", toolCallId, content }];
    });
    if (results.length > 0) await this.#post({ threadId: thread, runId: `answer-${tries}` }, results);
  }

  async #store(): Promise<EventStore> {
    return (await this.#alive()).mortal.below;
  }

  async #toTheEnd(thread: string): Promise<Gone> {
    let held = newTranscript();
    for (let tries = 0; tries < 200; tries++) {
      // The stream ends when its leg does, or with its server.
      held = await this.#signaller.during(this.#read(thread, held));
      const run = (await (await this.#store()).runs({ tenant: "local", thread, limit: 1 })).items[0];
      if (run === undefined) throw new Error(`thread ${thread} has no run`);
      if (run.aside !== null) throw new Error(run.aside);
      if (run.outcome !== null) return await this.#gone(run, held);
      const open = await this.#openQuestions(run.uid);
      const stopped = open.find(({ interrupt }) => interrupt.kind === "diverged" || interrupt.kind === "poisoned");
      if (stopped !== undefined) throw new Stopped(run.uid, stopped.interrupt);
      for (const { interrupt } of open) {
        const payload = answerTo(interrupt.kind, interrupt.message, this.#ledger);
        const headers = { "content-type": "application/json" };
        const body = JSON.stringify({ status: "resolved", payload });
        await this.#ask(`/inbox/${encodeURIComponent(interrupt.id)}`, { method: "POST", headers, body });
      }
      if (open.length === 0) await this.#answerCalls(thread, run, tries);
      await new Promise((resolve) => setImmediate(resolve));
    }
    throw new Error(`thread ${thread} does not end: ${this.reported.map(String).join("; ")}`);
  }

  async #gone(run: Run, held: HeldByClient): Promise<Gone> {
    const log = await this.log(run.uid);
    const late = await this.#read(run.thread ?? "", newTranscript());
    const whole = await this.#read(run.thread ?? "", held as Transcript);
    return {
      ...{ run, log, state: fold(log), effects: [...this.#ledger.rows], deaths: this.#deaths },
      ...{ client: whole, late },
    };
  }

  /** The run as a file. */
  async fixture(uid: string): Promise<RunFixture> {
    const life = await this.#alive();
    return JSON.parse(JSON.stringify(await life.runtime.export(uid))) as RunFixture;
  }

  async log(uid: string): Promise<readonly Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of (await this.#store()).read(uid as Uid, -1)) entries.push(entry);
    return entries;
  }

  /** What a client holds once it has read the thread's stream to its end, or until its server has died. */
  async #read(thread: string, from: Transcript): Promise<Transcript> {
    const life = await this.#alive();
    let held = from;
    try {
      const response = await life.fetch(`http://localhost/threads/${thread}/stream?agent=random`, {});
      const frames = new SseFrames();
      for await (const bytes of response.body ?? []) {
        for (const { data } of frames.take(bytes)) held = reduce(held, JSON.parse(data) as AGUIEvent);
      }
    } catch (error) {
      if (!life.mortal.isDead) throw error;
    }
    return held;
  }
}

function answerTo(kind: string, message: string, ledger: Ledger): Json {
  if (kind !== "unknown-write") return `so: ${message}`;
  const name = /`([^`]+)`/.exec(message)?.[1] ?? "";
  return ledger.rows.includes(`done ${name}`) ? { did: "yes", output: name } : { did: "no" };
}

/** What has been done, each as often as it was. */
export function done(effects: readonly string[]): readonly string[] {
  return effects.flatMap((row) => (row.startsWith("done ") ? [row.split(" ")[1] ?? ""] : [])).sort();
}
