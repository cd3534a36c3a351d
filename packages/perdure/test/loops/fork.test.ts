/** Forks of custom loops: what of a run is history for the code that goes on elsewhere, and what is begun anew. */
import {
  type Agent,
  agent,
  createRuntime,
  type LoopContext,
  memory,
  type Runtime,
  suspend,
  type Transformer,
  tool,
} from "perdure";
import type { Json } from "perdure/protocol";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Entry, Interrupt } from "../../src/log/entries.ts";
import { fold, type RunState } from "../../src/log/fold.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { ForkOptions } from "../../src/runtime/fork.ts";
import { asking, saying } from "../runtime/asking.ts";
import { StockClient } from "../runtime/world.ts";

type Code = (ctx: LoopContext<Json>, world: World) => Promise<unknown>;

/** What nothing takes back. */
class World {
  readonly effects: string[] = [];
}

const Order = z.object({ id: z.string() });

const payer = ({ effects }: World, approval = false) =>
  tool({
    ...{ name: "pay", description: "Pays.", effect: "write", settle: 0, input: Order, approval },
    call({ id }, ctx) {
      effects.push(`paid ${id} ${ctx.idempotencyKey}`);
      return { paid: id };
    },
  });

/** One store, and a server of it that may be deployed again. */
class Shop {
  readonly world = new World();
  readonly store = memory();
  readonly reported: string[] = [];
  runtime: Runtime | undefined;

  async deploy(
    code: Code,
    more: {
      readonly agents?: readonly Agent[];
      readonly schema?: z.ZodType;
      readonly transformers?: readonly Transformer[];
    } = {},
  ): Promise<void> {
    await this.runtime?.close();
    const loop: Agent = agent<Json>({
      ...{ name: "loop", agents: more.agents ?? [], transformers: more.transformers ?? [] },
      run: (ctx) => code(ctx, this.world),
      state: { initial: () => ({}), ...(more.schema && { schema: more.schema as never }) },
    });
    const other = agent({ name: "other", model: scriptedModel([{ text: "Hello." }]) }) as Agent;
    this.runtime = createRuntime({
      agents: [loop, other],
      store: this.store,
      onError: (error) => void this.reported.push((error as { code?: string }).code ?? String(error)),
    });
    await this.runtime.open();
  }

  async ask(path: string, body?: object) {
    if (this.runtime === undefined) throw new Error("nothing is deployed");
    return await asking(this.runtime)(path, body);
  }

  /** @returns the uid of the run that it begins */
  async say(content: string, more: object = {}): Promise<string> {
    const text = (await this.ask("/agents/loop", { ...saying(content), ...more })).text;
    expect(text).toContain("RUN_STARTED");
    const { items } = await this.store.runs({ tenant: "local" });
    const uid = items.find(({ parent }) => parent === null)?.uid ?? "";
    await this.rests(uid);
    return uid;
  }

  async fork(uid: string, options: ForkOptions = {}): Promise<string> {
    const begun = await this.runtime?.fork(uid, options);
    await this.rests(begun?.uid ?? "");
    return begun?.uid ?? "";
  }

  async rests(uid: string): Promise<void> {
    for (;;) {
      const run = await this.store.run(uid as Uid);
      const isBusy = run === null || run.owner !== null || (run.outcome === null && run.legOpen);
      if (!isBusy && (await this.store.inbox(uid as Uid)).length === 0) return;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async log(uid: string): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read(uid as Uid, -1)) entries.push(entry);
    return entries;
  }

  async state(uid: string): Promise<RunState> {
    return fold(await this.log(uid));
  }

  async open(uid: string) {
    return (await this.store.questions({ tenant: "local", run: uid as Uid })).items.map(({ interrupt }) => interrupt);
  }

  /** Answers the one question of a run. */
  async answer(uid: string, payload: unknown): Promise<string> {
    const [question, ...others] = await this.open(uid);
    expect(others).toEqual([]);
    const path = `/inbox/${encodeURIComponent(question?.id ?? "")}`;
    expect((await this.ask(path, { status: "resolved", payload })).status).toBe(200);
    await this.rests(uid);
    return question?.id ?? "";
  }

  /** The entry at which a step has ended. */
  async endOf(uid: string, path: string): Promise<number> {
    const end = (await this.log(uid)).find((entry) => entry.kind === "step.finished" && entry.path === path);
    return end?.seq ?? -1;
  }
}

function shop(): Shop {
  const made = new Shop();
  onTestFinished(async () => await made.runtime?.close());
  return made;
}

const result = ({ finished, lastLeg }: RunState): unknown => finished?.output ?? lastLeg?.result ?? null;
const texts = ({ messages }: RunState): readonly unknown[] =>
  messages.flatMap(({ role, content }) => (role === "assistant" && content !== undefined ? [content] : []));

const forkAt = (question: Interrupt | undefined): number => {
  expect(question?.kind).toBe("diverged");
  return (question as Interrupt & { metadata: { forkAt: number } }).metadata.forkAt;
};

const checkout: Code = async (ctx, world) => {
  ctx.say("Looking.");
  const row = await ctx.once("load", { effect: "read" }, () => {
    world.effects.push("loaded");
    return 7;
  });
  const isSure = await ctx.ask({ message: "Pay?", schema: z.boolean() });
  if (isSure) await ctx.call(payer(world), { id: "a" });
  await ctx.once("note", () => void world.effects.push("noted"));
  ctx.say(`Paid for ${row}.`);
  return { row, isSure };
};

const of = (world: World) => world.effects.map((effect) => effect.replace(/ [0-9a-f]{64}$/, ""));

describe("a fork of a custom loop's run", () => {
  it("has what had ended as its history, in a conversation of its own", async () => {
    const desk = shop();
    await desk.deploy(checkout);
    const uid = await desk.say("go");
    await desk.answer(uid, true);
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted"]);
    const fork = await desk.fork(uid, { at: await desk.endOf(uid, "3"), thread: "f" });
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted"]);
    const state = await desk.state(fork);
    expect(result(state)).toEqual({ row: 7, isSure: true });
    expect(texts(state)).toEqual(["Looking.", "Paid for 7."]);
    const client = new StockClient(
      "loop",
      async (url, init) => await (desk.runtime as Runtime).fetch(new Request(url, init)),
      "f",
    );
    await client.run({ runId: "x" });
    expect(client.failure).toBeUndefined();
    expect(client.held.messages).toEqual(state.messages);
    // No text stands in two frames that clients are shown.
    const shown = (await desk.log(fork)).filter((entry) => entry.kind === "frame" && "event" in entry && !entry.past);
    expect(JSON.stringify(shown).match(/Looking\./g)).toHaveLength(1);
  });

  it("asks again what had not ended, and its answers are its own", async () => {
    const desk = shop();
    await desk.deploy(checkout);
    const uid = await desk.say("go");
    await desk.answer(uid, true);
    const asked = (await desk.log(uid)).find((entry) => entry.kind === "interrupt.answered")?.seq ?? -1;
    const fork = await desk.fork(uid, { at: asked - 1, acknowledge: ["pay", "note"] });
    expect((await desk.open(fork)).map(({ id, message }) => [id, message])).toEqual([[`${fork}:1:i0`, "Pay?"]]);
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted"]);
    await desk.answer(fork, false);
    expect(result(await desk.state(fork))).toEqual({ row: 7, isSure: false });
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted", "noted"]);
    expect(result(await desk.state(uid))).toEqual({ row: 7, isSure: true });
  });

  it("asks again for the approval of a call that had not ended, and makes it under a new key", async () => {
    const desk = shop();
    await desk.deploy(async (ctx, world) => await ctx.call(payer(world, true), { id: "a" }));
    const uid = await desk.say("go");
    await desk.answer(uid, { approved: true });
    const attempt = (await desk.log(uid)).find((entry) => entry.kind === "step.attempt")?.seq ?? -1;
    const fork = await desk.fork(uid, { at: attempt, acknowledge: ["0"] });
    expect(desk.world.effects).toHaveLength(1);
    await desk.answer(fork, { approved: true });
    expect(of(desk.world)).toEqual(["paid a", "paid a"]);
    expect(new Set(desk.world.effects).size).toBe(2);
  });

  it("is refused until each write behind its entry is acknowledged, by its path or its name", async () => {
    const desk = shop();
    await desk.deploy(checkout);
    const uid = await desk.say("go");
    await desk.answer(uid, true);
    const refused = await desk.ask(`/runs/${uid}/fork`, { at: 0, acknowledge: ["pay"] });
    expect(refused.status).toBe(409);
    expect(JSON.parse(refused.text)).toMatchObject({
      error: {
        code: "WRITES_NOT_ACKNOWLEDGED",
        details: { writes: [{ path: "3", name: "note", effect: "write", applied: "yes" }] },
      },
    });
    expect((await desk.store.runs({ tenant: "local" })).items).toHaveLength(1);
    expect((await desk.ask(`/runs/${uid}/fork`, { at: 0, acknowledge: ["pay", "3"] })).status).toBe(201);
  });

  it("begins with another message; where its history fits another one no more it stops, with both sides", async () => {
    const desk = shop();
    await desk.deploy(async (ctx) => {
      const isLoaded = await ctx.once("load", { effect: "read" }, () => true);
      ctx.say(`You said ${ctx.lastUserText()}.`);
      await ctx.ask({ message: "Go on?" });
      return isLoaded;
    });
    const uid = await desk.say("yes");
    for (const at of [0, await desk.endOf(uid, "0")]) {
      const fork = await desk.fork(uid, { at, edits: { input: "no" } });
      const state = await desk.state(fork);
      expect(texts(state)).toEqual(["You said no."]);
      expect(state.messages[0]).toMatchObject({ id: "u", content: "no" });
    }
    const fork = await desk.fork(uid, { edits: { input: "no" } });
    const [question] = await desk.open(fork);
    expect(question).toMatchObject({
      kind: "diverged",
      metadata: {
        recorded: { type: "TEXT_MESSAGE_CONTENT", delta: "You said yes." },
        wanted: { type: "TEXT_MESSAGE_CONTENT", delta: "You said no." },
        at: expect.stringContaining("fork.test.ts"),
      },
    });
  });

  it("goes on with another state from what its code has heard of last", async () => {
    const desk = shop();
    await desk.deploy(async (ctx) => {
      const seen: unknown[] = [ctx.state];
      const look = () => void seen.push(JSON.parse(JSON.stringify(ctx.state)));
      look();
      await ctx.once("first", { effect: "read" }, () => 1);
      look();
      ctx.updateState((state) => void Object.assign(state as object, { count: 1 }));
      ctx.publishState();
      look();
      await ctx.once("second", { effect: "read" }, () => 2);
      look();
      ctx.updateState((state) => void Object.assign(state as object, { last: true }));
      return seen.slice(1);
    });
    const uid = await desk.say("go", { state: { count: 0 } });
    expect(result(await desk.state(uid))).toEqual([{ count: 0 }, { count: 0 }, { count: 1 }, { count: 1 }]);
    const log = await desk.log(uid);
    const published = log.find((entry) => entry.kind === "state" && entry.path === "state0")?.seq ?? -1;
    const edits = { state: { count: 9 } };
    const at = async (seq: number): Promise<unknown> =>
      result(await desk.state(await desk.fork(uid, { at: seq, edits })));
    expect(await at(0)).toEqual([{ count: 9 }, { count: 9 }, { count: 1 }, { count: 1 }]);
    expect(await at(await desk.endOf(uid, "0"))).toEqual([{ count: 0 }, { count: 9 }, { count: 1 }, { count: 1 }]);
    expect(await at(published)).toEqual([{ count: 0 }, { count: 0 }, { count: 9 }, { count: 9 }]);
    const end = await desk.endOf(uid, "1");
    expect(await at(end)).toEqual([{ count: 0 }, { count: 0 }, { count: 1 }, { count: 9 }]);
    const fork = await desk.fork(uid, { at: end, edits });
    expect(await desk.state(fork)).toMatchObject({
      committed: { count: 9, last: true },
      shown: { count: 9, last: true },
    });
  });

  it("has none of the state of a call that waited: it is made again", async () => {
    const desk = shop();
    const choose = tool({
      ...{
        name: "choose",
        description: "Asks.",
        effect: "write",
        input: z.object({}),
        answer: z.string(),
        output: z.string(),
      },
      state: z.custom<{ asked?: number }>(),
      call(_, ctx) {
        ctx.updateState((state: { asked?: number }) => {
          state.asked = (state.asked ?? 0) + 1;
        });
        return suspend({ message: "Which?" });
      },
    });
    await desk.deploy(async (ctx) => await ctx.call(choose, {}));
    const uid = await desk.say("go");
    await desk.answer(uid, "this");
    const log = await desk.log(uid);
    for (const { seq } of log.filter(
      (entry) => entry.seq < (log.find(({ kind }) => kind === "step.finished")?.seq ?? 0),
    )) {
      const fork = await desk.fork(uid, { at: seq, acknowledge: ["choose"] });
      expect([seq, await desk.answer(fork, "that")]).toEqual([seq, `${fork}:0:i0`]);
      const state = await desk.state(fork);
      expect([result(state), state.committed]).toEqual(["that", { asked: 1 }]);
    }
  });

  it("of code that has begun a second time goes on from there, with what it was told", async () => {
    const desk = shop();
    await desk.deploy(async (ctx, world) => {
      await ctx.once("load", { effect: "read" }, () => void world.effects.push("loaded"));
      const seen = ctx.messages.length;
      ctx.updateState((state) => void Object.assign(state as object, { seen }));
      ctx.publishState();
      const reply = ctx.resumeFor("q");
      if (reply === undefined) {
        ctx.say("Wait.");
        await ctx.interrupt({ id: "q", message: "Which one?", schema: z.string() });
      }
      ctx.say(`You chose ${JSON.stringify(reply?.payload)}.`);
      return seen;
    });
    const uid = await desk.say("go");
    const [question] = await desk.open(uid);
    const resume = [{ interruptId: question?.id, status: "resolved", payload: "this" }];
    const again = { ...saying("go", { runId: "r2" }), resume };
    await desk.ask("/agents/loop", again);
    await desk.rests(uid);
    const state = await desk.state(uid);
    expect(texts(state)).toEqual(["Wait.", 'You chose "this".']);
    const log = await desk.log(uid);
    const started = log.flatMap((entry) => (entry.kind === "leg.started" ? [entry.seq] : []));
    const forks: unknown[] = [];
    for (const at of [(started[1] ?? 0) + 4, log.length - 4, log.length - 1]) {
      const fork = await desk.state(await desk.fork(uid, { at }));
      forks.push([texts(fork), result(fork), fork.committed]);
    }
    expect(forks).toEqual(Array.from({ length: 3 }, () => [texts(state), result(state), state.committed]));
    // Before the answer it asks itself.
    const early = await desk.fork(uid, { at: (started[1] ?? 0) - 1 });
    expect((await desk.open(early)).map(({ id }) => id)).toEqual([`${early}:q:0:q`]);
    expect(texts(await desk.state(early))).toEqual(["Wait."]);
    expect(of(desk.world)).toEqual(["loaded"]);
  });

  it("shows a call of the code's that was taken back where it stood, and opens it there again", async () => {
    const desk = shop();
    await desk.deploy(async (ctx, world) => {
      ctx.say("Before.");
      using outer = ctx.toolCall("outer");
      outer.args('{"a":');
      await ctx.call(payer(world, true), { id: "a" });
      outer.args("1}");
      outer.result("whole");
      ctx.say("Behind.");
    });
    const uid = await desk.say("go");
    await desk.answer(uid, { approved: true });
    const calls = ({ messages }: RunState) =>
      messages.map((message) =>
        message.role === "assistant"
          ? (message.toolCalls?.map((call) => `${call.function.name} ${call.function.arguments}`) ?? message.content)
          : message.role,
      );
    const end = calls(await desk.state(uid));
    expect(end).toEqual(["user", "Before.", ['outer {"a":1}'], "tool", ['pay {"id":"a"}'], "tool", "Behind."]);
    for (const { seq } of await desk.log(uid)) {
      const fork = await desk.fork(uid, { at: seq, acknowledge: ["pay"] });
      if ((await desk.open(fork)).length > 0) await desk.answer(fork, { approved: true });
      expect([seq, calls(await desk.state(fork))]).toEqual([seq, end]);
    }
  });

  it("has the answers of models and children that had ended, and asks for the others again", async () => {
    const desk = shop();
    let asked = 0;
    const model = scriptedModel(({ messages }) => {
      asked += 1;
      return messages.at(-1)?.role === "tool"
        ? { text: "Paid." }
        : { text: "Paying.", calls: [{ name: "pay", input: { id: "m" } }] };
    });
    const child = agent<Json>({
      name: "child",
      async run(ctx) {
        await ctx.once("work", () => void desk.world.effects.push(`worked on ${ctx.lastUserText()}`));
        return await ctx.ask({ message: "Done?" });
      },
    }) as Agent;
    await desk.deploy(
      async (ctx, world) => {
        const tools = [payer(world)];
        const turn = await ctx.model({ model, messages: ctx.messages, tools });
        const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
        const last = await ctx.model({ model, messages: [...ctx.messages, turn, ...results], tools });
        const said = await ctx.spawn(child, "this");
        return [last.text, said];
      },
      { agents: [child] },
    );
    const uid = await desk.say("go");
    const questionOf = async (run: string) =>
      (await desk.store.questions({ tenant: "local" })).items.find(({ run: { parent } }) => parent?.uid === run);
    const reply = async (run: string) => {
      const id = (await questionOf(run))?.interrupt.id ?? "";
      expect((await desk.ask(`/inbox/${encodeURIComponent(id)}`, { status: "resolved", payload: "yes" })).status).toBe(
        200,
      );
      while ((await desk.store.run(run as Uid))?.outcome === null)
        await new Promise((resolve) => setImmediate(resolve));
    };
    await reply(uid);
    expect([asked, of(desk.world)]).toEqual([2, ["paid m", "worked on this"]]);

    const whole = await desk.state(await desk.fork(uid));
    expect([asked, result(whole)]).toEqual([2, ["Paid.", "yes"]]);
    expect(texts(whole)).toEqual(texts(await desk.state(uid)));

    const log = await desk.log(uid);
    const spawned = log.find((entry) => entry.kind === "step.started" && entry.step === "child")?.seq ?? -1;
    const fork = await desk.fork(uid, { at: spawned + 3, acknowledge: ["child"] });
    await reply(fork);
    expect([asked, of(desk.world)]).toEqual([2, ["paid m", "worked on this", "worked on this"]]);
    const paid = await desk.endOf(uid, "0");
    await desk.fork(uid, { at: paid, acknowledge: ["pay", "child"] });
    expect([asked, of(desk.world).at(-2)]).toEqual([3, "paid m"]);
  });

  it("of a later turn begins with the conversation before it, and goes on into turns of its own", async () => {
    const desk = shop();
    await desk.deploy(async (ctx) => {
      const heard = ctx.messages.map(({ role }) => role).join(" ");
      await ctx.once("load", { effect: "read" }, () => 1);
      ctx.say(`${ctx.lastUserText()}: ${heard}.`);
    });
    await desk.say("one");
    const uid = await desk.say("two", { runId: "r2", messages: [{ id: "u2", role: "user", content: "two" }] });
    const said = ["one: user.", "two: user assistant user."];
    const size = (await desk.log(uid)).length;
    for (let at = 0; at < size; at++) {
      const fork = await desk.fork(uid, { at, thread: `f${at}` });
      expect([at, texts(await desk.state(fork))]).toEqual([at, said]);
    }
    await desk.say("three", { threadId: "f3", runId: "x", messages: [{ id: "u3", role: "user", content: "three" }] });
    const shown = (await desk.ask("/threads/f3/stream?agent=loop")).text;
    expect(shown).toContain("three: user assistant user assistant user.");
    expect(shown).toContain("one: user.");
  });

  it("does not begin again what had lost its race, however late its code comes to that", async () => {
    const desk = shop();
    let end = (): void => {};
    await desk.deploy(async (ctx, world) => {
      const won = await ctx.race<string>([
        async (lane) => {
          for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
          return await lane.once("quick", { effect: "read" }, () => "quick");
        },
        async (lane) =>
          await lane.once("slow", async () => {
            world.effects.push("slow");
            await new Promise<void>((resolve) => {
              end = resolve;
            });
            return "slow";
          }),
      ]);
      await ctx.once("behind", { effect: "read" }, () => end());
      return won;
    });
    const uid = await desk.say("go");
    expect(desk.world.effects).toEqual(["slow"]);
    const log = await desk.log(uid);
    const decided = log.find((entry) => entry.kind === "step.finished" && entry.path === "0")?.seq ?? -1;
    expect(log.find((entry) => entry.kind === "step.finished" && entry.path === "0.1.0")?.seq).toBeGreaterThan(decided);
    const fork = await desk.fork(uid, { at: decided, acknowledge: ["slow"] });
    expect([result(await desk.state(fork)), desk.world.effects]).toEqual(["quick", ["slow"]]);
  });

  it("has the signals that had come in, and what its transformers had noted", async () => {
    const desk = shop();
    const counting: Transformer = {
      name: "counting",
      initial: 0,
      step: (memo, event) =>
        event.type === "TEXT_MESSAGE_CONTENT"
          ? { memo: (memo as number) + 1, events: [{ ...event, delta: `${(memo as number) + 1} ${event.delta}` }] }
          : { memo, events: [event] },
    };
    await desk.deploy(
      async (ctx) => {
        ctx.say("first");
        const paid = await ctx.receive("paid");
        ctx.say(`paid ${JSON.stringify(paid)}`);
        const again = await ctx.receive("paid");
        ctx.say(`again ${JSON.stringify(again)}`);
        return [paid, again];
      },
      { transformers: [counting] },
    );
    const began = desk.ask("/agents/loop", saying("go"));
    for (;;) {
      const uid = (await desk.store.runs({ tenant: "local" })).items[0]?.uid;
      if (uid !== undefined && (await desk.log(uid)).some((entry) => entry.kind === "step.started")) break;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const uid = (await desk.store.runs({ tenant: "local" })).items[0]?.uid ?? "";
    await desk.runtime?.signal(uid, "paid", 1);
    await desk.runtime?.signal(uid, "paid", 2);
    await began;
    await desk.rests(uid);
    const end = await desk.state(uid);
    expect(texts(end)).toEqual(["1 first", "2 paid 1", "3 again 2"]);
    const log = await desk.log(uid);
    const came = log.findLast((entry) => entry.kind === "inbox.taken" && entry.item === "signal")?.seq ?? 0;
    for (const { seq } of log.filter((entry) => entry.seq >= came)) {
      const state = await desk.state(await desk.fork(uid, { at: seq }));
      expect([seq, texts(state), result(state)]).toEqual([seq, texts(end), [1, 2]]);
    }
  });

  it("can be forked itself, in its history and behind it", async () => {
    const desk = shop();
    await desk.deploy(checkout);
    const uid = await desk.say("go");
    const first = await desk.fork(uid, { edits: { state: { by: "fork" } } });
    await desk.answer(first, true);
    const end = await desk.state(first);
    const log = await desk.log(first);
    for (const at of [0, ...log.map(({ seq }) => seq)]) {
      const fork = await desk.fork(first, { at, acknowledge: ["pay", "note"] });
      if ((await desk.open(fork)).length > 0) await desk.answer(fork, true);
      const state = await desk.state(fork);
      expect([at, texts(state), result(state)]).toEqual([at, texts(end), result(end)]);
      expect([at, state.committed]).toEqual([at, fold(log.filter(({ seq }) => seq <= Math.max(at, 4))).committed]);
    }
    expect(of(desk.world).filter((effect) => effect === "loaded").length).toBeGreaterThan(1);
  });

  it("says what it cannot be: under other instructions, of a pruned run, of an agent with a model", async () => {
    const desk = shop();
    await desk.deploy(checkout, { schema: z.object({ count: z.number().optional() }) });
    const uid = await desk.say("go");
    await desk.answer(uid, true);
    const refusals = [
      [{ edits: { instructions: "Be brief." } }, 422, "FORK_EDIT"],
      [{ agent: "other" }, 422, "FORK_UNSUPPORTED"],
      [{ edits: { state: { count: "many" } } }, 422, "STATE_INVALID"],
      [{ at: 9_999 }, 422, "FORK_POINT"],
    ] as const;
    for (const [body, status, code] of refusals) {
      const refused = await desk.ask(`/runs/${uid}/fork`, body);
      expect([refused.status, (JSON.parse(refused.text) as { error: { code: string } }).error.code]).toEqual([
        status,
        code,
      ]);
    }
    await desk.runtime?.prune(uid);
    const pruned = await desk.ask(`/runs/${uid}/fork`, {});
    expect([pruned.status, pruned.text]).toEqual([409, expect.stringContaining("RUN_PRUNED")]);
  });
});

describe("where code and record part", () => {
  const renamed: Code = async (ctx, world) => {
    ctx.say("Looking.");
    await ctx.once("load", { effect: "read" }, () => void world.effects.push("loaded"));
    const isSure = await ctx.ask({ message: "Pay?", schema: z.boolean() });
    await ctx.once("book", () => void world.effects.push("booked"));
    ctx.say("Booked.");
    return { isSure };
  };
  const second: Code = async (ctx, world) => {
    await checkout(ctx, world);
    return await ctx.ask({ message: "Again?" });
  };

  /** A run that waits for an operator: its third step has another name now. */
  async function parted(desk: Shop): Promise<string> {
    await desk.deploy(second);
    const uid = await desk.say("go");
    await desk.answer(uid, true);
    await desk.deploy(renamed);
    await desk.answer(uid, "no");
    return uid;
  }

  it("a fork goes on under the new code from the last entry before it, once its writes are acknowledged; the run and its question stay", async () => {
    const desk = shop();
    const uid = await parted(desk);
    const [question] = await desk.open(uid);
    const place = forkAt(question);
    const log = await desk.log(uid);
    expect(log.find(({ seq }) => seq === place + 1)).toMatchObject({ kind: "step.started", path: "2", name: "pay" });
    const inbox = JSON.parse((await desk.ask("/inbox")).text) as { interrupts: { kind: string; metadata?: object }[] };
    expect(inbox.interrupts.find(({ kind }) => kind === "diverged")?.metadata).toMatchObject({
      ...{ recorded: 'tool "pay"', wanted: 'custom "book"', forkAt: place },
      at: expect.stringContaining("fork.test.ts"),
    });
    const path = `/inbox/${encodeURIComponent(question?.id ?? "")}`;
    const reply = (more: object) => ({ status: "resolved", payload: { action: "fork", ...more } });
    const refused = await desk.ask(path, reply({}));
    expect([refused.status, refused.text]).toEqual([409, expect.stringContaining('"path":"2","name":"pay"')]);
    const done = await desk.ask(path, reply({ acknowledge: ["pay", "note"] }));
    expect(done.status).toBe(201);
    const { fork, interrupt } = JSON.parse(done.text) as { fork: { uid: string }; interrupt: object };
    expect(interrupt).toEqual({ id: question?.id, run: uid, state: "open" });
    await desk.rests(fork.uid);
    const state = await desk.state(fork.uid);
    expect([result(state), texts(state)]).toEqual([{ isSure: true }, ["Looking.", "Booked."]]);
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted", "booked"]);

    // The same again is the same fork.
    const again = await desk.ask(path, reply({ acknowledge: ["pay", "note"] }));
    expect([again.status, (JSON.parse(again.text) as { fork: { uid: string } }).fork.uid]).toEqual([200, fork.uid]);
    expect((await desk.store.runs({ tenant: "local" })).items).toHaveLength(2);

    // The former code goes on where it was.
    expect((await desk.open(uid)).map(({ id }) => id)).toContain(question?.id);
    await desk.deploy(second);
    for (;;) {
      if ((await desk.open(uid)).every(({ kind }) => kind !== "diverged")) break;
      await new Promise((resolve) => setImmediate(resolve));
    }
    await desk.rests(uid);
    expect(result(await desk.state(uid))).toBe("no");
    expect(of(desk.world)).toEqual(["loaded", "paid a", "noted", "booked"]);
  });

  it.each<readonly [what: string, then: Code, now: Code, said: readonly string[]]>([
    [
      "a text that goes on otherwise",
      async (ctx) => ctx.say("One and two."),
      async (ctx) => ctx.say("One and three."),
      ["One and three."],
    ],
    [
      "a text where there was another block",
      async (ctx) => void ctx.think("Hm."),
      async (ctx) => ctx.say("One."),
      ["One."],
    ],
    ["a text that is not said any more", async (ctx) => ctx.say("One."), async () => {}, []],
    [
      "another state",
      async (ctx) => {
        ctx.setState({ count: 1 });
        ctx.publishState();
        ctx.say("One.");
      },
      async (ctx) => {
        ctx.setState({ count: 2 });
        ctx.publishState();
        ctx.say("Two.");
      },
      ["Two."],
    ],
    [
      "a step that is not begun any more",
      async (ctx) => {
        await ctx.once("one", { effect: "read" }, () => 1);
        ctx.say("One.");
      },
      async () => {},
      [],
    ],
  ])("is told of %s, and a fork from there comes to its end", async (_, then, now, said) => {
    const desk = shop();
    await desk.deploy(async (ctx, world) => {
      await ctx.once("load", { effect: "read" }, () => 7);
      await then(ctx, world);
      await ctx.ask({ message: "Go on?" });
    });
    const uid = await desk.say("go");
    await desk.deploy(async (ctx, world) => {
      await ctx.once("load", { effect: "read" }, () => void world.effects.push("not again"));
      await now(ctx, world);
      return "new";
    });
    await desk.ask(`/inbox/${encodeURIComponent((await desk.open(uid))[0]?.id ?? "")}`, {
      status: "resolved",
      payload: 1,
    });
    await desk.rests(uid);
    const [question] = await desk.open(uid);
    const fork = await desk.fork(uid, { at: forkAt(question) });
    const state = await desk.state(fork);
    expect([result(state), texts(state)]).toEqual(["new", said]);
    expect(desk.world.effects).toEqual([]);
  });
});
