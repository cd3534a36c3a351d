/** Replays of custom loops: code as it is now, held against what it was recorded to do. */
import { type Agent, agent, type Budget, createRuntime, type LoopContext, memory, tool } from "perdure";
import type { Json } from "perdure/protocol";
import { ReplayStuckError, replay, scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import type { RunFixture } from "../../src/log/fixture.ts";
import { asking, saying } from "../runtime/asking.ts";

type Code = (ctx: LoopContext<Json>, live: boolean) => Promise<unknown>;

const never = (): never => {
  throw new Error("a replay runs no body");
};

const worked: string[] = [];
const child = agent<Json>({
  name: "child",
  run: async (ctx) => await ctx.once("work", () => worked.push(ctx.lastUserText())),
}) as Agent;

const loopOf = (code: Code, isLive: boolean, budget?: Budget): Agent =>
  agent<Json>({ name: "loop", agents: [child], ...(budget && { budget }), run: (ctx) => code(ctx, isLive) }) as Agent;

/** What the code does, as a file; its questions are answered with `true`. */
async function recorded(
  code: Code,
  {
    exporting = code,
    answers = 9,
    cancels = false,
    budget = undefined as Budget | undefined,
    redact = undefined as ((text: string) => string) | undefined,
  } = {},
) {
  const store = memory();
  const runtime = createRuntime({ agents: [loopOf(code, true, budget)], store, onError: () => {} });
  onTestFinished(() => runtime.close());
  const ask = asking(runtime);
  await ask("/agents/loop", saying("find ann@example.org"));
  const uid = (await store.runs({ tenant: "local" })).items.find(({ parent }) => parent === null)?.uid ?? ("" as never);
  for (let left = answers; ; ) {
    const run = await store.run(uid);
    if (run?.outcome !== null) break;
    const open = (await store.questions({ tenant: "local", run: uid })).items;
    const isAtRest = run.owner === null && !run.legOpen && (await store.inbox(uid)).length === 0;
    if (isAtRest && left === 0 && cancels) await ask(`/runs/${uid}/cancel`, {});
    else if (isAtRest && left === 0) break;
    for (const { interrupt } of isAtRest ? open : []) {
      const payload =
        interrupt.kind === "approval" ? { approved: true } : interrupt.kind === "budget" ? { stop: true } : true;
      await ask(`/inbox/${encodeURIComponent(interrupt.id)}`, { status: "resolved", payload });
      left -= 1;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  const from =
    exporting === code ? runtime : createRuntime({ agents: [loopOf(exporting, false)], store, onError: () => {} });
  return JSON.parse(JSON.stringify(await from.export(uid, redact && { redact }))) as RunFixture;
}

const told = async (fixture: RunFixture, code: Code): Promise<string> =>
  (await replay(fixture, { agent: loopOf(code, false) })).toString();

interface Changes {
  readonly instructions?: string;
  readonly temperature?: number;
  readonly found?: string;
  readonly order?: string;
  readonly effect?: "write" | "idempotent";
  readonly approval?: boolean;
  readonly max?: number;
  readonly note?: string;
  readonly says?: string;
  readonly returns?: string;
  readonly extra?: boolean;
  readonly count?: number;
}

/** Everything once: a model, its calls, a call of its own, a step in place, a question, a timer, a reading, texts and state. */
const desk =
  (changes: Changes = {}): Code =>
  async (ctx, isLive) => {
    const { instructions = "You are a desk.\nBe kind.", temperature = 0, found = "Found", order = "7" } = changes;
    const {
      effect = "write",
      approval = true,
      max = 1_000,
      note = "note",
      says = "Paid",
      returns = "done",
      count = 1,
    } = changes;
    const model = isLive
      ? scriptedModel([{ text: "Looking.", calls: [{ name: "look", input: { id: "a" } }] }, { text: "Order 7." }])
      : { ...scriptedModel([]), doStream: never };
    const look = tool({
      ...{ name: "look", description: "Looks.", effect: "read", input: z.object({ id: z.string() }) },
      call: ({ id }) => (isLive ? { found: id } : never()),
    });
    const refund = tool({
      ...{ name: "refund", description: "Refunds.", effect, approval },
      input: z.object({ order: z.string(), cents: z.number().max(max) }),
      call: () => (isLive ? { ok: true } : never()),
    });
    const asked = { model, instructions, settings: { temperature }, tools: [look] } as const;
    const turn = await ctx.model({ ...asked, messages: ctx.messages });
    const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
    const last = await ctx.model({ ...asked, messages: [...ctx.messages, turn, ...results] });
    ctx.say(`${found}: ${last.text}`);
    ctx.updateState((state) => void Object.assign(state as object, { count }));
    ctx.publishState();
    const { ok } = (await ctx.call(refund, { order, cents: 100 })) as { ok: boolean };
    await ctx.sleep("1ms");
    await ctx.once(note, () => (isLive ? "noted" : never()));
    const isSure = await ctx.ask({ message: "Sure?", schema: z.boolean() });
    if (changes.extra) await ctx.once("extra", never);
    using message = ctx.message();
    message.delta(`${says} at ${ctx.now() > 0}`);
    return { ok, isSure, returns };
  };

describe("a replay of a custom loop", () => {
  it("finds nothing in code that is what it was, and runs no body of it", async () => {
    const fixture = await recorded(desk());
    const report = await replay(fixture, { agent: loopOf(desk(), false) });
    expect(report.toString()).toMatch(/^agent "loop" does and asks what run [0-9a-f-]{36} recorded$/);
    report.assert();
    expect(Object.keys(fixture.asked)).toEqual(["0", "2"]);
  });

  it.each<readonly [string, Changes, readonly string[], string]>([
    ["other instructions", { instructions: "You are a desk.\nBe brief." }, ["instructions"], "+ Be brief."],
    ["other settings", { temperature: 1 }, ["settings"], '+   "temperature": 1'],
    ["another text", { found: "See" }, ["emitted"], '+   "delta": "See: Order 7."'],
    ["another state", { count: 2 }, ["state"], "the state that the code publishes is something else now"],
    ["another input", { order: "8" }, ["input"], '+   "order": "8"'],
    ["another effect", { effect: "idempotent" }, ["tool"], "refund was a write, now it is a idempotent"],
    ["no approval any more", { approval: false }, ["approval"], "refund asks for no approval any more"],
    ["a schema that refuses what was recorded", { max: 50 }, ["tool"], "refund refuses what it took then"],
    ["another step", { note: "book" }, ["decision"], 'step 5 was custom "note", and now is custom "book"'],
    ["one step more", { extra: true }, ["decision"], 'step 7 was nothing, and now is custom "extra"'],
    ["another end of a message", { says: "Sent" }, ["emitted"], '+   "delta": "Sent at true"'],
    ["another result", { returns: "over" }, ["result"], '+   "returns": "over"'],
  ])("finds %s, with both sides and the line", async (what, changes, kinds, line) => {
    const report = await replay(await recorded(desk()), { agent: loopOf(desk(changes), false) });
    expect(report.differences.map((one) => one.what)).toEqual(kinds);
    expect(report.toString()).toContain(line);
    if (what !== "another result") expect(report.differences[0]?.at).toContain("replay-code.test.ts");
    expect(() => report.assert()).toThrow(line);
  });

  it("finds what is not done any more, what is done beyond, and another end", async () => {
    const first: Code = async (ctx) => {
      await ctx.once("one", { effect: "read" }, () => 1);
      ctx.say("One.");
      await ctx.once("two", { effect: "read" }, () => 2);
    };
    const fixture = await recorded(first);
    expect(await told(fixture, async (ctx) => void (await ctx.once("one", { effect: "read" }, never)))).toMatch(
      /main lane, emitted: what the code emits in its main lane is something else now/,
    );
    expect(
      await told(fixture, async (ctx) => {
        await ctx.once("one", { effect: "read" }, never);
        ctx.say("One.");
      }),
    ).toContain('step 1, decision: step 1 was custom "two", and now is nothing: the code does not begin it');
    expect(
      await told(fixture, async (ctx) => {
        await first(ctx, false);
        ctx.say("Three.");
      }),
    ).toMatch(/main lane, emitted: [\s\S]*"nothing"/);
    expect(
      await told(fixture, async (ctx) => {
        await first(ctx, false);
        throw new Error("broken");
      }),
    ).toContain("at the end, decision: then the code ended, now it fails (INTERNAL: broken)");
    expect(
      await told(fixture, async (ctx) => {
        await first(ctx, false);
        await ctx.ask({ message: "Really?" });
      }),
    ).toContain('step 2 was nothing, and now is ask "ask"');
  });

  it("compares a run that waits as far as it has come", async () => {
    const waiting: Code = async (ctx) => {
      ctx.say("Wait.");
      await ctx.ask({ message: "Go on?" });
      ctx.say("Gone on.");
    };
    const fixture = await recorded(waiting, { answers: 0 });
    expect(await told(fixture, waiting)).toContain("does and asks");
    expect(
      await told(fixture, async (ctx) => {
        await waiting(ctx, false);
        ctx.say("Whatever comes behind it.");
      }),
    ).toContain("does and asks");
    expect(await told(fixture, async (ctx) => ctx.say("Wait."))).toContain('step 0 was ask "ask"');
    expect(
      await told(fixture, async (ctx) => {
        await ctx.parallel([(lane) => waiting(lane as LoopContext<Json>, false), (lane) => lane.sleep("1h")]);
      }),
    ).not.toContain("does and asks");
  });

  it("ends where its code failed, and finds that it does not any more", async () => {
    const failing: Code = async (ctx) => {
      await ctx.once("one", { effect: "read" }, () => 1);
      const message = ctx.message();
      message.delta("Half a ");
      throw Object.assign(new Error("no"), { code: "NO" });
    };
    const fixture = await recorded(failing);
    expect(await told(fixture, failing)).toContain("does and asks");
    expect(
      await told(fixture, async (ctx) => {
        await ctx.once("one", { effect: "read" }, never);
        const message = ctx.message();
        message.delta("Half a ");
      }),
    ).toMatch(/then the code failed \(\w+\), now it ends/);
  });

  it("tells from hashes alone that a model is asked something else, where the export did not know what", async () => {
    const fixture = await recorded(desk(), { exporting: desk({ instructions: "Other." }) });
    expect(fixture.asked).toEqual({});
    expect(await told(fixture, desk())).toContain("does and asks");
    expect(await told(fixture, desk({ instructions: "Other." }))).toContain("export it with the agent as it was");
  });

  it("replays what was redacted", async () => {
    const saying: Code = async (ctx) => {
      const found = await ctx.once("find", { effect: "read" }, () => ctx.lastUserText());
      ctx.say(`Found: ${found}.`);
      await ctx.ask({ message: "Go on?" });
    };
    const fixture = await recorded(saying, { redact: (text) => text.replaceAll(/[\w.]+@[\w.]+\w/g, "<mail>") });
    expect(JSON.stringify(fixture)).not.toContain("ann@");
    expect(await told(fixture, saying)).toContain("does and asks");
  });

  it("compares a run that was cancelled up to there: what its code made of that is not compared", async () => {
    const waiting: Code = async (ctx) => {
      ctx.say("Wait.");
      try {
        await ctx.ask({ message: "Go on?" });
      } catch {
        ctx.say("Cancelled.");
      }
    };
    const fixture = await recorded(waiting, { answers: 0, cancels: true });
    expect(fixture.logs.at(-1)?.at(-1)).toMatchObject({ kind: "run.finished", outcome: "cancelled" });
    expect(await told(fixture, waiting)).toContain("does and asks");
    expect(await told(fixture, async (ctx) => ctx.say("Wait, please."))).toContain("main lane, emitted");
  });

  it("compares a run that its budget has stopped up to there", async () => {
    const spending: Code = async (ctx, isLive) => {
      const look = tool({
        ...{ name: "look", description: "Looks.", effect: "read", input: z.object({ n: z.number() }) },
        call: ({ n }) => (isLive ? n : never()),
      });
      ctx.say("Looking.");
      return [await ctx.call(look, { n: 1 }), await ctx.call(look, { n: 2 })];
    };
    const fixture = await recorded(spending, { budget: { calls: 1 } });
    expect(fixture.logs.at(-1)?.at(-1)).toMatchObject({ kind: "run.finished", outcome: "failed" });
    expect(await told(fixture, spending)).toContain("does and asks");
    expect(await told(fixture, async (ctx) => ctx.say("Looking again."))).toContain("main lane, emitted");
  });

  it("knows code that begins a second time, races, and the runs of other agents", async () => {
    const code =
      ({ task = "this", choice = "Which?" } = {}): Code =>
      async (ctx, isLive) => {
        const won = await ctx.race<string>([
          (lane) => lane.once("quick", { effect: "read" }, () => (isLive ? "quick" : never())),
          async (lane) => {
            await lane.sleep("3d");
            return "slow";
          },
        ]);
        const reply = ctx.resumeFor("q");
        if (reply === undefined) {
          ctx.say(`${won}.`);
          await ctx.interrupt({ id: "q", message: choice });
        }
        const id = ctx.uuid();
        ctx.custom("id", id);
        return await ctx.spawn(child, task);
      };
    const fixture = await recorded(code());
    expect(await told(fixture, code())).toContain("does and asks");
    expect(await told(fixture, code({ task: "that" }))).toMatch(
      /step 1, input: child child [\s\S]*\+ {3}"task": "that"/,
    );
    const asking = await recorded(code(), { answers: 0 });
    expect(await told(asking, code())).toContain("does and asks");
    expect(await told(asking, code({ choice: "Which one?" }))).toMatch(
      /the code asks something else[\s\S]*\+ {5}"message": "Which one\?"/,
    );
    expect(await told(asking, async (ctx) => void ctx.say("quick."))).toContain('step 0.0.0 was custom "quick"');
    expect(worked).toEqual(["this"]);
  });

  it("lets code do what is no step, and says when that has no end", async () => {
    const fixture = await recorded(async (ctx) => void ctx.say("Hi."));
    const slow: Code = async (ctx) => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      ctx.say("Hi.");
    };
    expect(await told(fixture, slow)).toContain("does and asks");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    let stuck: unknown;
    told(fixture, async () => await new Promise(() => {})).catch((error: unknown) => {
      stuck = error;
    });
    while (stuck === undefined) {
      await new Promise((resolve) => setImmediate(resolve));
      vi.advanceTimersToNextTimer();
    }
    expect(stuck).toBeInstanceOf(ReplayStuckError);
  });
});
