/**
 * Drivers of several processes on one store, in one thread of time. Everything that a process asks of the store waits twice: before it is
 * done, and before its answer arrives; bodies wait too. Whoever plays the race says what goes on next, or how time passes.
 */
import { vi } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { applied, notApplied, tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Principal, Uid } from "../../src/protocol/words.ts";
import { Engine } from "../../src/runtime/engine.ts";
import type { EmbeddedStore } from "../../src/store/embedded-store.ts";
import { memory } from "../../src/store/memory.ts";
import type { Appended, Batch, EventStore, Lease } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolContext } from "../../src/tool/definition.ts";

export const LEASE = 30_000;
const USER: Principal = { tenant: "t", subject: "s", scopes: ["*"] };

/** One turn of the event loop, which the clock does not see. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Begins the time that a race runs in. @returns ends it */
export function stopTime(): () => void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  return () => void vi.useRealTimers();
}

type Ctx = ToolContext<Json, string | undefined>;

/** A body that has begun. */
export interface Body {
  readonly name: string;
  readonly process: number;
  readonly epoch: number;
  /** Who had the run in the tick in which it began. */
  readonly epochOfRun: number;
  readonly ctx: Ctx;
  isOver: boolean;
}

interface Held {
  readonly body: Body | undefined;
  readonly go: () => void;
}

export class Race {
  /** The outside. It honours no key: whoever writes twice has written twice. */
  readonly ledger: string[] = [];
  readonly bodies: Body[] = [];
  /** Appends, with the epoch of who made them and that of the run at that time. */
  readonly appends: { readonly epoch: number; readonly epochOfRun: number; readonly is: Appended["is"] }[] = [];
  /** What bodies were told that went on after their lease was lost. */
  readonly toldStale: unknown[] = [];
  readonly reported: unknown[] = [];
  readonly #held: Held[] = [];
  readonly #below = memory({ clock: () => Date.now(), leaseMs: LEASE });
  readonly #engines: Engine[] = [];
  #moves = 0;
  #uid: Uid | undefined;

  constructor(readonly processes: number) {}

  async begin(): Promise<void> {
    for (let i = 0; i < this.processes; i++) {
      const desk = this.#agent(i);
      const engine = new Engine({
        store: this.#process(),
        agents: new Map([["desk", desk]]),
        report: (error) => void this.reported.push(error),
        random: () => 0,
        newUid: () => "run" as Uid,
      });
      await engine.open();
      this.#engines.push(engine);
    }
    const [first] = this.#engines;
    const input = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user" as const, content: "go" }] };
    const posted = await first?.post(
      this.#agent(0),
      { ...input, tools: [], context: [], state: {}, forwardedProps: {} },
      USER,
    );
    this.#uid = posted?.run?.uid;
  }

  get held(): readonly Held[] {
    return this.#held;
  }

  get run() {
    const run = this.#uid === undefined ? null : (this.#below as EmbeddedStore).engine.rows.run(this.#uid);
    if (run === null) throw new Error("there is no run");
    return run;
  }

  async log(): Promise<Entry[]> {
    const log: Entry[] = [];
    for await (const entry of this.#below.read(this.run.uid, -1)) log.push(entry);
    return log;
  }

  /** Resolves when nothing goes on by itself. */
  async quiet(): Promise<void> {
    for (let still = 0, moves = this.#moves; still < 3; still++) {
      await turn();
      if (moves === this.#moves) continue;
      moves = this.#moves;
      still = -1;
    }
  }

  async release(i: number): Promise<void> {
    const [one] = this.#held.splice(i, 1);
    one?.go();
    await this.quiet();
  }

  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms);
    await this.quiet();
  }

  /** A human answers what is open: he has looked at the outside. @returns whether anything was open */
  async answer(): Promise<boolean> {
    const { items } = await this.#below.questions({ tenant: "t" });
    for (const { interrupt } of items) {
      const wasDone = this.ledger.includes(interrupt.message.includes("`pay`") ? "pay" : "mail");
      const payload =
        interrupt.kind === "poisoned"
          ? { action: "go-on" }
          : wasDone
            ? { did: "yes", output: { ok: true } }
            : { did: "no" };
      await this.#below.answer({ interrupt: interrupt.id, status: "resolved", payload, by: USER });
    }
    return items.length > 0;
  }

  async close(): Promise<void> {
    const closed = Promise.all(this.#engines.map((engine) => engine.close(0)));
    let isClosed = false;
    void closed.then(() => {
      isClosed = true;
    });
    while (!isClosed) {
      await this.pass(2_000);
      while (this.#held.length > 0) await this.release(0);
    }
    await this.#below.close();
  }

  #hold(body?: Body): Promise<void> {
    this.#moves += 1;
    return new Promise((go) => this.#held.push({ body, go }));
  }

  /** The store as one process reaches it. */
  #process(): EventStore {
    const below = this.#below;
    let lastAsked: Promise<unknown> = Promise.resolve();
    let lastAnswered: Promise<unknown> = Promise.resolve();
    const append = async (lease: Lease, batch: Batch): Promise<Appended> => {
      const done = lastAsked
        .then(() => this.#hold())
        .then(async () => {
          const epochOfRun = this.run.epoch;
          const appended = await below.append(lease, batch);
          this.appends.push({ epoch: lease.epoch, epochOfRun, is: appended.is });
          return appended;
        });
      lastAsked = done.catch(() => {});
      const answered = lastAnswered
        .then(() => done)
        .then(async (appended) => {
          await this.#hold();
          return appended;
        });
      lastAnswered = answered.catch(() => {});
      return await answered;
    };
    const slow = async <T>(call: () => Promise<T>): Promise<T> => {
      await this.#hold();
      const done = await call();
      await this.#hold();
      return done;
    };
    return new Proxy(below, {
      get: (target, name) => {
        this.#moves += 1;
        if (name === "append") return append;
        if (name === "renew") return (lease: Lease) => slow(() => target.renew(lease));
        if (name === "claim") return (owner: string) => slow(() => target.claim(owner));
        if (name === "close") return async () => {};
        const member: unknown = Reflect.get(target, name);
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
  }

  /** A body in its first line. */
  #begun(name: string, process: number, ctx: Ctx): Body {
    const body = { name, process, ctx, epoch: ctx.fence.epoch, epochOfRun: this.run.epoch, isOver: false };
    this.bodies.push(body);
    return body;
  }

  /** A request to the outside, which never arrives after the attempt's deadline; a lost lease does not stop it. */
  async #writes(row: string, process: number, ctx: Ctx): Promise<{ ok: true }> {
    const body = this.#begun(row, process, ctx);
    const log = await this.log();
    const attempt = log.findLast((entry) => entry.kind === "step.attempt" && entry.path === ctx.path);
    await this.#hold(body);
    const deadline = (attempt?.kind === "step.attempt" ? attempt.deadline : null) ?? 0;
    const isInTime = Date.now() < deadline;
    if (isInTime) this.ledger.push(row);
    await this.#hold(body);
    this.#ends(body);
    if (!isInTime) throw new Error("the outside did not answer");
    return { ok: true };
  }

  #ends(body: Body): void {
    body.isOver = true;
    this.#moves += 1;
    const { ctx } = body;
    const isLost = ctx.signal.aborted && (ctx.signal.reason as { code?: unknown }).code === "LEASE_LOST";
    if (!isLost) return;
    const operations: (() => unknown)[] = [
      () => ctx.state,
      () => ctx.updateState(() => {}),
      () => ctx.publishState(),
      () => ctx.custom("c", 1),
      () => ctx.progress(1),
      () => ctx.activity("A", {}),
    ];
    for (const operation of operations) {
      try {
        operation();
        this.toldStale.push("nothing");
      } catch (error) {
        this.toldStale.push((error as Error).name);
      }
    }
  }

  #agent(process: number) {
    const common = { settle: 0, input: z.object({}), output: z.object({ ok: z.boolean() }) };
    const look = tool({
      ...{ name: "look", description: "Looks.", effect: "read" as const, timeout: "1h", ...common },
      call: async (_, ctx) => {
        const body = this.#begun("look", process, ctx);
        await this.#hold(body);
        this.#ends(body);
        return { ok: true };
      },
    });
    const pay = tool({
      ...{ name: "pay", description: "Pays.", effect: "write" as const, timeout: "40s", ...common },
      call: (_, ctx) => this.#writes("pay", process, ctx),
      reconcile: async (_, ctx) => {
        this.#begun("pay: reconcile", process, ctx).isOver = true;
        await this.#hold();
        return this.ledger.includes("pay") ? applied({ ok: true }) : notApplied();
      },
    });
    const mail = tool({
      ...{ name: "mail", description: "Mails.", effect: "write" as const, timeout: "40s", ...common },
      call: (_, ctx) => this.#writes("mail", process, ctx),
    });
    return agent({
      name: "desk",
      model: scriptedModel([
        { text: "Looking.", calls: ["look", "pay", "mail"].map((name) => ({ name, input: {} })) },
        { text: "Done." },
      ]),
      tools: [look, pay, mail],
    });
  }
}
