/** Promise 2 when the store fails: a renewal is tried again while the lease lasts, and a run that was lost goes on when the store works again. */
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Principal, Uid } from "../../src/protocol/words.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { Engine } from "../../src/runtime/engine.ts";
import { memory } from "../../src/store/memory.ts";
import type { Batch, EventStore } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";

const LEASE = 30_000;
const USER: Principal = { tenant: "t", subject: "s", scopes: ["*"] };

/** A desk with one tool whose body ends when it is told to, over a store that fails when it is told to. */
async function desk() {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  onTestFinished(() => void vi.useRealTimers());
  const below = memory({ clock: () => Date.now(), leaseMs: LEASE });
  const faults: { fails: (name: string, args: readonly unknown[]) => boolean } = { fails: () => false };
  const failed: string[] = [];
  const store: EventStore = new Proxy(below, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      return (...args: unknown[]) => {
        if (!faults.fails(String(name), args)) return member.apply(target, args);
        failed.push(String(name));
        return Promise.reject(new Error("the disk is full"));
      };
    },
  });
  const signals: AbortSignal[] = [];
  let end = (): void => {};
  const work = tool({
    ...{ name: "work", description: "Works.", effect: "read", timeout: "1h", input: z.object({}) },
    async call(_, { signal }) {
      signals.push(signal);
      await new Promise<void>((resolve) => {
        end = resolve;
      });
      return "worked";
    },
  });
  const model = scriptedModel([{ calls: [{ name: "work", input: {} }] }, { text: "Done." }]);
  const made = agent({ name: "desk", model, tools: [work] }) as LoopAgent;
  const reported: unknown[] = [];
  const engine = new Engine({
    store,
    agents: new Map([["desk", made]]),
    report: (error) => void reported.push(error),
    random: () => 0,
  });
  const messages = [{ id: "u", role: "user" as const, content: "go" }];
  const input = { threadId: "t", runId: "r", messages, tools: [], context: [], state: {}, forwardedProps: {} };
  const { run } = await engine.post(made, input, USER);
  const uid = run?.uid as Uid;
  const pass = async (ms: number): Promise<void> => {
    await vi.advanceTimersByTimeAsync(ms);
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
  };
  await pass(1);
  const log = async () => {
    const entries: Entry[] = [];
    for await (const entry of below.read(uid, -1)) entries.push(entry);
    return entries;
  };
  return {
    below,
    faults,
    failed,
    signals,
    reported,
    uid,
    pass,
    log,
    end: () => end(),
    outcome: async () => (await below.run(uid))?.outcome,
  };
}

test("a lease is renewed in time, for as long as its run lasts", async () => {
  const { below, signals, pass, end, outcome } = await desk();
  for (let i = 0; i < 20; i++) {
    await pass(LEASE / 2);
    expect(await below.claim("another")).toBeNull();
  }
  expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
  end();
  await pass(1);
  expect(await outcome()).toBe("success");
});

test("a renewal that fails is tried again: a store that works again before the lease is over has harmed nobody", async () => {
  const { faults, failed, signals, reported, pass, end, outcome, log } = await desk();
  faults.fails = (name) => name === "renew";
  await pass(LEASE * 0.95);
  expect(failed.length).toBeGreaterThan(2);
  expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
  faults.fails = () => false;
  await pass(LEASE);
  end();
  await pass(1);
  expect(await outcome()).toBe("success");
  expect((await log()).filter(({ kind }) => kind === "step.failed")).toEqual([]);
  expect(reported).toEqual([]);
});

test.each(["fails", "does not answer"])(
  "when a renewal %s until the lease is over, the driver stops and its signals fire",
  async (how) => {
    const { below, faults, signals, reported, pass } = await desk();
    if (how === "fails") faults.fails = (name) => name === "renew" || name === "append" || name === "claim";
    else vi.spyOn(below, "renew").mockImplementation(() => new Promise(() => {}));
    await pass(LEASE * 0.9);
    expect(signals[0]?.aborted).toBe(false);
    await pass(LEASE * 0.11);
    expect(signals[0]?.aborted).toBe(true);
    expect(signals[0]?.reason).toMatchObject({ code: "LEASE_LOST" });
    expect(reported).toContainEqual(expect.objectContaining({ code: "LEASE_LOST" }));
  },
);

test("after a failed commit the run goes on as soon as the store works, not when its lease is over", async () => {
  const { faults, failed, signals, pass, end, outcome, log, below, uid } = await desk();
  const begunAt = Date.now();
  faults.fails = (name) => ["append", "claim", "renew"].includes(name);
  end();
  await pass(3_000);
  expect(signals).toHaveLength(1);
  expect(failed.length).toBeGreaterThan(1);
  faults.fails = () => false;
  for (let i = 0; signals.length < 2 && i < 40; i++) await pass(250);
  expect(Date.now() - begunAt).toBeLessThan(LEASE / 2);
  end();
  await pass(1);
  expect(await outcome()).toBe("success");
  // The process lives: its attempt is no death.
  expect((await log()).filter(({ kind }) => kind === "step.failed")).toMatchObject([
    { error: { message: "the process that ran it lost the run" } },
  ]);
  expect((await below.run(uid))?.epoch).toBe(2);
});

test("three failed commits in one step are three of the store's, and park nobody", async () => {
  const { below, faults, signals, pass, end, outcome } = await desk();
  for (let i = 1; i <= 4; i++) {
    let isOver = false;
    faults.fails = (name, args) => {
      const entries = name === "append" ? (args[1] as Batch).entries : [];
      const isThis = !isOver && entries.some(({ kind }) => kind === "step.finished");
      isOver ||= isThis;
      return isThis;
    };
    end();
    for (let k = 0; signals.length === i && k < 80; k++) await pass(250);
    expect(signals).toHaveLength(i + 1);
  }
  expect((await below.questions({ tenant: "t" })).items).toEqual([]);
  end();
  await pass(1);
  expect(await outcome()).toBe("success");
});
