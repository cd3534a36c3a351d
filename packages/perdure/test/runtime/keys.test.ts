/** What becomes of a call whose business key another call has. */
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { applied, HandlerError, memory, notApplied, suspend, tool, unknown } from "../../src/index.ts";
import type { RunState } from "../../src/log/fold.ts";
import type { Duration } from "../../src/protocol/words.ts";
import { keyNotFree } from "../../src/runtime/keys.ts";
import type { Claim, ClaimChange, EventStore } from "../../src/store/store.ts";
import { Mortal } from "../../src/testing/mortal-store.ts";
import type { Judgement } from "../../src/tool/outcome.ts";
import { hash, path, started, thread, uid } from "../store/builders.ts";
import { codeOf, Door, Shop } from "./shop.ts";

type Paid = { paid: string };
interface Body {
  readonly call?: (order: string, times: number) => Promise<void> | void;
  readonly suspends?: boolean;
  readonly reconcile?: () => Judgement<Paid>;
  readonly keyWait?: Duration;
  readonly parallel?: boolean;
}

/** Pays an order, once per key, in a world that does not know keys. */
function payer({ call = () => {}, suspends = false, reconcile, keyWait = "60s", parallel = false }: Body = {}) {
  const ledger: string[] = [];
  let times = 0;
  const pay = tool({
    name: "pay",
    description: "Pays.",
    effect: "write",
    settle: 0,
    keyWait,
    parallel,
    input: z.object({ order: z.string(), cents: z.number() }),
    output: z.object({ paid: z.string() }),
    answer: z.boolean(),
    idempotencyKey: ({ order }) => ["pay", order],
    async call({ order }) {
      times += 1;
      if (suspends && times === 1) return suspend({ message: `Really pay ${order}?` });
      await call(order, times);
      ledger.push(order);
      return { paid: order };
    },
    async resume(_, { order }) {
      ledger.push(order);
      return { paid: order };
    },
    ...(reconcile && { reconcile: async () => reconcile() }),
  });
  return { pay, ledger };
}

const o1 = { name: "pay", input: { order: "o1", cents: 5 } };
const paid = '{"paid":"o1"}';

function shop(body: Body = {}) {
  const { pay, ledger } = payer(body);
  const one = new Shop(memory(), [pay]);
  onTestFinished(() => one.runtime.close());
  return { shop: one, ledger };
}

/** Waits until the call of a thread waits for its key, and the run rests. */
async function waits(one: Shop, name: string): Promise<void> {
  await expect.poll(async () => (await one.facts(name, "run.parked")).at(-1)?.why).toBe("key");
}

describe("a key that another run holds", () => {
  test("is waited for at rest, with the leg open, and brings the output of the one who had it", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({ call: () => door.pass() });
    const first = one.wish("a", o1);
    await door.reached;
    const second = one.wish("b", o1);
    await waits(one, "b");
    const [waiting] = await one.facts("b", "step.waiting");
    expect(waiting).toMatchObject({ path: "1.0", holder: { uid: (await one.run("a")).uid, path: "1.0" } });
    expect(await one.run("b")).toMatchObject({ legOpen: true, owner: null, readyAt: waiting?.until });
    door.open();
    await first;
    expect((await second).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(await one.results("b")).toEqual([paid]);
    expect(await one.facts("b", "step.finished")).toContainEqual(
      expect.objectContaining({ path: "1.0", via: "dedup" }),
    );
    expect(await one.facts("b", "step.attempt")).toHaveLength(2);
    expect(ledger).toEqual(["o1"]);
  });

  test("is not waited for longer than the tool says; the model is told who has it", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({ call: () => door.pass(), keyWait: "30ms" });
    const first = one.wish("a", o1);
    await door.reached;
    await one.wish("b", o1);
    const [result] = await one.results("b");
    expect(codeOf(result)).toBe("KEY_HELD");
    expect(result).toContain(`run ${(await one.run("a")).uid}, step 1.0`);
    expect((await one.run("b")).outcome).toBe("success");
    door.open();
    await first;
    expect(ledger).toEqual(["o1"]);
  });

  test("that is given back because nothing was done is taken by the one who waits", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({
      call: async (_, times) => {
        if (times > 1) return;
        await door.pass();
        throw new HandlerError("no such account", { applied: "no" });
      },
    });
    const first = one.wish("a", o1);
    await door.reached;
    const second = one.wish("b", o1);
    await waits(one, "b");
    door.open();
    await Promise.all([first, second]);
    expect(await one.results("b")).toEqual([paid]);
    expect(await one.facts("b", "step.finished")).toContainEqual(expect.objectContaining({ path: "1.0", via: "call" }));
    expect(ledger).toEqual(["o1"]);
  });

  test("is not waited for any more when the run is cancelled", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({ call: () => door.pass() });
    const first = one.wish("a", o1);
    await door.reached;
    const second = one.wish("b", o1);
    await waits(one, "b");
    await one.cancel("b");
    await second;
    expect((await one.run("b")).outcome).toBe("cancelled");
    expect(await one.results("b")).toEqual(["cancelled"]);
    door.open();
    await first;
    expect(ledger).toEqual(["o1"]);
  });

  test("for the same thing with other arguments is an error for the model, while it runs and when it is settled", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({ call: () => door.pass() });
    const first = one.wish("a", o1);
    await door.reached;
    const other = { name: "pay", input: { order: "o1", cents: 6 } };
    await one.wish("b", other);
    door.open();
    await first;
    await one.wish("c", other);
    for (const name of ["b", "c"]) {
      const [result] = await one.results(name);
      expect(codeOf(result)).toBe("KEY_ARGUMENTS");
      expect(result).toContain((await one.run("a")).uid);
      expect(await one.facts(name, "step.waiting")).toEqual([]);
    }
    expect(ledger).toEqual(["o1"]);
  });

  test("by a call that waits for a human is held as by one that runs, and free when the human says no", async () => {
    const { shop: one, ledger } = shop({ suspends: true });
    await one.wish("a", o1);
    const second = one.wish("b", o1);
    await waits(one, "b");
    const [question] = await one.inbox("a");
    await one.ask(`/inbox/${encodeURIComponent(question?.id ?? "")}`, { status: "cancelled" });
    await second;
    expect(await one.results("b")).toEqual([paid]);
    expect(ledger).toEqual(["o1"]);
  });
});

describe("a key within one run", () => {
  test("brings the second call the output of the first, once that has settled", async () => {
    const door = new Door();
    const { shop: one, ledger } = shop({ call: () => door.pass(), parallel: true });
    const wished = one.wish("a", o1, o1);
    await door.reached;
    await expect.poll(() => one.facts("a", "step.waiting")).toHaveLength(1);
    door.open();
    await wished;
    expect(await one.results("a")).toEqual([paid, paid]);
    expect(ledger).toEqual(["o1"]);
  });

  test("that its own suspended call holds is a conflict at once", async () => {
    const { shop: one, ledger } = shop({ suspends: true });
    const ended = await one.wish("a", o1, o1);
    expect(ended.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "interrupt" } });
    expect((await one.results("a")).map(codeOf)).toEqual(["KEY_CONFLICT"]);
    expect(await one.facts("a", "step.waiting")).toEqual([]);
    await one.answer("a", true);
    await expect.poll(async () => (await one.run("a")).outcome).toBe("success");
    expect(ledger).toEqual(["o1"]);
  });

  test("that an ancestor holds is a conflict at once, for it waits for this run", async () => {
    const chain: Record<string, string | undefined> = { child: "parent", parent: "grandparent" };
    const startOf = (run: string) => {
      const parent = chain[run];
      return started(run, thread("t"), parent === undefined ? {} : { parent: { uid: uid(parent), path: path("0") } });
    };
    const store = {
      run: async (run: string) => ({ uid: run, outcome: null, parent: startOf(run).parent ?? null }),
    } as unknown as EventStore;
    const state = { run: startOf("child"), steps: new Map() } as unknown as RunState;
    const claimOf = (holder: string) =>
      ({ argsHash: hash("a"), holder: { uid: uid(holder), path: path("1.0") }, state: "running" }) as unknown as Claim;
    const wanted = claimOf("child") as unknown as ClaimChange;
    for (const ancestor of ["parent", "grandparent"]) {
      expect(await keyNotFree(store, state, wanted, claimOf(ancestor), "pay")).toMatchObject({
        is: "refused",
        error: { code: "KEY_CONFLICT" },
      });
    }
    expect(await keyNotFree(store, state, wanted, claimOf("stranger"), "pay")).toEqual({ is: "wait" });
  });
});

describe("a key whose write nobody knows", () => {
  /** A run whose write was lost on its way; it asks its human. */
  async function lost(body: Body, did: (ledger: string[]) => void) {
    const made = shop({
      ...body,
      call: (_, times) => {
        if (times > 1) return;
        did(made.ledger);
        throw new Error("connection reset");
      },
    });
    await made.shop.wish("a", o1);
    return made;
  }
  const wasDone = (ledger: string[]) => void ledger.push("o1");

  test("is waited for while its holder lives, and inherited when the holder's run is cancelled", async () => {
    let knows = false;
    const { shop: one, ledger } = await lost(
      { reconcile: () => (knows ? applied({ paid: "o1" }) : unknown()) },
      wasDone,
    );
    const second = one.wish("b", o1);
    await waits(one, "b");
    knows = true;
    await one.cancel("a");
    await second;
    expect(await one.results("b")).toEqual([paid]);
    expect(await one.facts("b", "step.failed")).toMatchObject([{ error: { code: "INHERITED" }, applied: "unknown" }]);
    expect(await one.facts("b", "step.finished")).toContainEqual(
      expect.objectContaining({ path: "1.0", via: "reconcile" }),
    );
    expect(ledger).toEqual(["o1"]);
  });

  test.each([
    ["was done", { did: "yes", output: { paid: "by hand" } }, '{"paid":"by hand"}', ["o1"]],
    ["was not done", { did: "no" }, paid, ["o1"]],
    ["is still not known", { did: "unknown" }, "may have been applied", ["o1"]],
  ] as const)("is asked of the heir's human, who says that it %s", async (says, answer, result, after) => {
    const { shop: one, ledger } = await lost({}, says === "was not done" ? () => {} : wasDone);
    await one.cancel("a");
    await expect.poll(async () => (await one.run("a")).outcome).toBe("cancelled");
    const before = [...ledger];
    const ended = await one.wish("b", o1);
    expect(ended.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "interrupt" } });
    expect(ledger).toEqual(before);
    expect(await one.inbox("b")).toMatchObject([{ kind: "unknown-write" }]);
    await one.answer("b", answer);
    await expect.poll(async () => (await one.run("b")).outcome).toBe("success");
    expect(await one.results("b")).toEqual([result]);
    expect(ledger).toEqual(after);
  });

  test("goes to the next heir when this one's run ends without an answer, too; late answers to the first change nothing", async () => {
    const { shop: one, ledger } = await lost({}, wasDone);
    await one.cancel("a");
    await expect.poll(async () => (await one.run("a")).outcome).toBe("cancelled");
    await one.wish("b", o1);
    expect(await one.answer("a", { did: "no" })).toBe(200);
    await expect.poll(async () => (await one.log("a")).at(-1)?.kind).toBe("interrupt.answered");
    await one.cancel("b");
    await expect.poll(async () => (await one.run("b")).outcome).toBe("cancelled");
    await one.wish("c", o1);
    expect(await one.inbox("c")).toMatchObject([{ kind: "unknown-write" }]);
    expect(ledger).toEqual(["o1"]);
  });

  test("is asked about with the arguments that it was called with, never with others", async () => {
    const { shop: one, ledger } = await lost({}, wasDone);
    await one.cancel("a");
    await expect.poll(async () => (await one.run("a")).outcome).toBe("cancelled");
    await one.wish("b", { name: "pay", input: { order: "o1", cents: 6 } });
    expect((await one.results("b")).map(codeOf)).toEqual(["KEY_ARGUMENTS"]);
    expect(ledger).toEqual(["o1"]);
  });
});

test("a wait for a key survives the process: it goes on until the time that was recorded, and ends with the holder's output", async () => {
  const store = memory({ leaseMs: 1e9 });
  const door = new Door();
  const ledger: string[] = [];
  const { pay } = payer({
    call: async () => {
      ledger.push("o1");
      await door.pass();
    },
    reconcile: () => (ledger.length > 0 ? applied({ paid: "o1" }) : notApplied()),
  });
  const life = new Mortal(store);
  const before = new Shop(life.store, [pay]);
  void before.wish("a", o1);
  await door.reached;
  void before.wish("b", o1);
  await waits(new Shop(store, []), "b");
  life.die();

  const after = new Shop(new Mortal(store).store, [pay]);
  onTestFinished(() => after.runtime.close());
  await after.runtime.open();
  await expect.poll(async () => (await after.run("b")).outcome).toBe("success");
  expect(await after.results("b")).toEqual([paid]);
  expect(await after.facts("b", "step.waiting")).toHaveLength(1);
  expect(ledger).toEqual(["o1"]);
});
