/** A deploy while a call is unfinished: one process begins it, the next one has other tools. */
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { applied, memory, notApplied, tool } from "../../src/index.ts";
import type { Effect } from "../../src/protocol/words.ts";
import { Mortal } from "../../src/testing/mortal-store.ts";
import { type Disk, memoryDisk, sqliteDisk } from "../../src/testing/outside.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { quietClient } from "../protocol/published-client.ts";
import { Door, Shop } from "./shop.ts";

quietClient();

const ledger: string[] = [];

interface Version {
  readonly name?: string;
  readonly aliases?: readonly string[];
  readonly effect?: Effect;
  readonly input?: z.ZodType<{ order: string }>;
  readonly approval?: boolean;
  readonly key?: (order: string) => readonly string[];
  readonly door?: Door;
}

/** One version of a tool that pays; its reconcile knows. */
function pay({ name = "pay", aliases = [], effect = "write", approval = false, door, key, ...version }: Version = {}) {
  const input = version.input ?? z.object({ order: z.string() });
  return tool({
    ...{ name, aliases, description: "Pays.", effect, approval, settle: 0, input, output: z.string() },
    ...(key && { idempotencyKey: ({ order }: { order: string }) => key(order) }),
    async call({ order }) {
      ledger.push(order);
      await door?.pass();
      return `paid ${order}`;
    },
    async reconcile({ order }) {
      return ledger.includes(order) ? applied(`paid ${order}`) : notApplied();
    },
  });
}

const look = tool({ name: "look", description: "Looks.", effect: "read", input: z.object({}), call: () => "seen" });
const o1 = { name: "pay", input: { order: "o1" } };
let at = 1_700_000_000_000;
/** Moves on whenever somebody looks, so that what was begun before a process has begun before it. */
const clock = (): number => {
  at += 40;
  return at;
};

/** A process over a store that outlives it. */
class Deployed {
  readonly life: Mortal;
  readonly shop: Shop;
  constructor(disk: Disk, tools: readonly ToolDefinition[]) {
    this.life = new Mortal(disk.next({ clock, leaseMs: 1e9 }));
    this.shop = new Shop(this.life.store, tools, { now: clock });
    onTestFinished(() => this.life.die());
  }
}

describe.each([
  ["in memory", memoryDisk],
  ["in files", sqliteDisk],
] as const)("%s", (_, makeDisk) => {
  /** The first process dies with a call that waits for approval, or in its body. */
  async function begun(how: "asked" | "half done", version: Version = {}) {
    ledger.length = 0;
    const disk = makeDisk();
    onTestFinished(() => disk.remove());
    const door = new Door();
    const { shop, life } = new Deployed(disk, [pay({ ...version, approval: how === "asked", door })]);
    const wished = shop.wish("t", o1);
    if (how === "asked") await wished;
    else await door.reached;
    life.die();
    return async (...tools: readonly ToolDefinition[]) => {
      const next = new Deployed(disk, tools);
      await next.shop.runtime.open();
      return next;
    };
  }

  const keyed = { key: (order: string) => ["pay", order] };
  const goesOn: readonly { what: string; tools: readonly ToolDefinition[]; version?: Version }[] = [
    { what: "tools were added and reordered", tools: [look, pay({ approval: true })] },
    { what: "its tool was renamed, with an alias", tools: [pay({ name: "transfer", aliases: ["pay"] })] },
    {
      what: "its input was widened",
      tools: [pay({ input: z.object({ order: z.string(), note: z.string().optional() }) })],
    },
    {
      what: "its tool was renamed, with an alias, and has a business key",
      tools: [pay({ name: "transfer", aliases: ["pay"], ...keyed })],
      version: keyed,
    },
  ];

  test.each(goesOn)("a call goes on although $what: approved", async ({ tools, version }) => {
    const deploy = await begun("asked", version);
    const { shop } = await deploy(...tools);
    await shop.answer("t", { approved: true });
    await expect.poll(async () => (await shop.run("t")).outcome).toBe("success");
    expect(await shop.results("t")).toEqual(["paid o1"]);
    expect(ledger).toEqual(["o1"]);
  });

  test.each(goesOn)("a call goes on although $what: half done", async ({ tools, version }) => {
    const deploy = await begun("half done", version);
    const { shop } = await deploy(...tools);
    await expect.poll(async () => (await shop.run("t")).outcome).toBe("success");
    expect(await shop.results("t")).toEqual(["paid o1"]);
    expect(ledger).toEqual(["o1"]);
  });

  const narrowed = pay({ input: z.object({ order: z.string(), cents: z.number() }) });
  interface Parks {
    readonly what: string;
    readonly how: "asked" | "half done";
    readonly tool: ToolDefinition;
    readonly says: RegExp;
    readonly version?: Version;
  }
  const parks: readonly Parks[] = [
    { what: "its input was narrowed", how: "asked", tool: narrowed, says: /no longer takes .*cents/s },
    { what: "its input was narrowed", how: "half done", tool: narrowed, says: /no longer takes .*cents/s },
    {
      ...{ what: "its effect is no longer write", how: "half done", tool: pay({ effect: "read" }) },
      says: /was a write .* is a read now/,
    },
    {
      ...{ what: "its effect is write now", how: "asked", tool: pay(), version: { effect: "read" } },
      says: /was a read .* is a write now/,
    },
    {
      what: "its tool is gone",
      how: "half done",
      tool: look,
      says: /the tool is gone, and its write may be half done/,
    },
    {
      ...{ what: "its business key is another", how: "half done", tool: pay({ key: (order) => ["order", order] }) },
      ...{ says: /another idempotency key/, version: keyed },
    },
  ];

  test.each(parks)("a call waits for an operator when $what ($how), and goes on once that is mended", async (row) => {
    const { how, tool: changed, says, version } = row;
    const deploy = await begun(how, version);
    const broken = await deploy(changed);
    if (how === "asked") await broken.shop.answer("t", { approved: true });
    await expect.poll(() => broken.shop.inbox("t")).toMatchObject([{ kind: "contract-changed" }]);
    const [question] = await broken.shop.inbox("t");
    expect(question?.message).toMatch(says);
    expect(question?.message).toMatch(/pay.*deploy.*restart/s);
    await expect.poll(async () => (await broken.shop.run("t")).legOpen).toBe(false);
    const { shop } = broken;
    expect((await shop.facts("t", "leg.finished")).at(-1)).toMatchObject({
      outcome: { type: "error", error: { code: "NEEDS_OPERATOR" } },
    });
    expect(JSON.stringify((await shop.log("t")).filter(({ kind }) => kind === "frame"))).not.toContain("contract");
    expect(await shop.answer("t", { approved: true })).toBe(403);
    expect(await shop.run("t")).toMatchObject({ outcome: null, owner: null, readyAt: null });
    const { epoch } = await shop.run("t");
    broken.life.die();

    const still = await deploy(changed);
    await expect.poll(async () => (await still.shop.run("t")).epoch).toBeGreaterThan(epoch);
    await expect.poll(async () => (await still.shop.run("t")).owner).toBeNull();
    expect(await still.shop.facts("t", "interrupt.opened")).toHaveLength(how === "asked" ? 2 : 1);
    still.life.die();

    const mended = await deploy(pay(version));
    await expect.poll(async () => (await mended.shop.run("t")).outcome).toBe("success");
    expect(await mended.shop.results("t")).toEqual(["paid o1"]);
    expect((await mended.shop.facts("t", "interrupt.answered")).at(-1)).toMatchObject({ status: "withdrawn" });
    expect(ledger).toEqual(["o1"]);
  });

  test("a call that never began of a tool that is gone is an error for the model", async () => {
    const deploy = await begun("asked");
    const { shop } = await deploy(look);
    await shop.answer("t", { approved: true });
    await expect.poll(async () => (await shop.run("t")).outcome).toBe("success");
    expect((await shop.results("t"))[0]).toContain("UNKNOWN_TOOL");
    expect(ledger).toEqual([]);
  });

  test("a cancel ends a run that waits for an operator; what may be half done is asked of a human", async () => {
    const deploy = await begun("half done");
    const { shop } = await deploy(look);
    await expect.poll(() => shop.inbox("t")).toMatchObject([{ kind: "contract-changed" }]);
    await shop.cancel("t");
    await expect.poll(async () => (await shop.run("t")).outcome).toBe("cancelled");
    expect(await shop.results("t")).toEqual(["may have been applied"]);
    expect(await shop.inbox("t")).toMatchObject([{ kind: "unknown-write" }]);
    expect((await shop.facts("t", "run.finished"))[0]).toMatchObject({ unresolved: ["1.0"] });
  });
});

describe("an agent that has every write approved", () => {
  test("asks for a write whose tool does not ask, and for nothing else; a tool's own request is kept", async () => {
    ledger.length = 0;
    const careful = tool({
      ...{ name: "careful", description: "Asks by itself.", effect: "write", input: z.object({}) },
      approval: { message: "Really?", audience: "boss" },
      call: () => "done",
    });
    const shop = new Shop(memory(), [pay(), look, careful], { approve: "write" });
    onTestFinished(() => shop.runtime.close());
    await shop.wish("t", o1, { name: "look", input: {} }, { name: "careful", input: {} });
    const asked = (await shop.facts("t", "interrupt.opened")).map(({ interrupt }) => interrupt);
    expect(asked).toMatchObject([
      { kind: "approval", message: "Run pay?", audience: null },
      { kind: "approval", message: "Really?", audience: "boss" },
    ]);
    expect(ledger).toEqual([]);
    await shop.answer("t", { approved: true });
    await expect.poll(() => ledger).toEqual(["o1"]);
  });
});
