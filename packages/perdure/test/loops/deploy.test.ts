/** New code under runs that are under way: what it may change, what stops it, and what an operator can do about that. */
import { type Agent, agent, createRuntime, type LoopContext, memory, type Runtime, tool } from "perdure";
import type { AGUIEvent, Json } from "perdure/protocol";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";

interface Listed {
  readonly id: string;
  readonly kind: string;
  readonly message: string;
  readonly metadata: { readonly recorded: unknown; readonly wanted: unknown; readonly at: string | null };
}

type Code = (ctx: LoopContext, effects: string[]) => Promise<unknown>;

/** A thread whose server is deployed again and again over one store. */
class Deployments {
  readonly effects: string[] = [];
  readonly reported: string[] = [];
  readonly #store = memory();
  #runtime: Runtime | undefined;
  #runs = 0;

  async deploy(code: Code): Promise<void> {
    await this.#runtime?.close();
    const loop: Agent = agent<Json>({ name: "loop", run: (ctx) => code(ctx, this.effects) });
    this.#runtime = createRuntime({
      agents: [loop],
      store: this.#store,
      onError: (error) => void this.reported.push((error as { code?: string }).code ?? String(error)),
    });
    await this.#runtime.open();
  }

  async close(): Promise<void> {
    await this.#runtime?.close();
  }

  async send(resume: readonly object[] = []): Promise<readonly AGUIEvent[]> {
    const runId = `r${++this.#runs}`;
    const messages = [{ id: "u", role: "user", content: "go" }];
    const body = { threadId: "t", runId, messages, tools: [], context: [], protocolVersion: "1.0", resume };
    const text = await (await this.#ask("/agents/loop", body)).text();
    return text
      .split("\n")
      .flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6)) as AGUIEvent] : []));
  }

  /** Answers the one question that the last leg ended with. */
  async answer(asked: readonly AGUIEvent[], payload: unknown): Promise<readonly AGUIEvent[]> {
    const last = asked.at(-1);
    const open = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    return await this.send(open.map(({ id }) => ({ interruptId: id, status: "resolved", payload })));
  }

  async inbox(): Promise<readonly Listed[]> {
    const { items } = await this.#store.questions({ tenant: "local" });
    return items.map(({ interrupt }) => interrupt as unknown as Listed);
  }

  async decide(id: string, action: "accept" | "abandon"): Promise<number> {
    const body = { status: "resolved", payload: { action } };
    return (await this.#ask(`/inbox/${encodeURIComponent(id)}`, body)).status;
  }

  /** What the thread shows once its run has come to a rest. */
  async shown(): Promise<readonly AGUIEvent[]> {
    for (;;) {
      const { runs } = (await (await this.#fetch(new Request("http://localhost/runs"))).json()) as {
        runs: { state: string }[];
      };
      if (runs[0] !== undefined && !["running", "runnable"].includes(runs[0].state)) break;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return await this.send();
  }

  #ask(path: string, body: object): Promise<Response> {
    const headers = { "content-type": "application/json" };
    return this.#fetch(new Request(`http://localhost${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  #fetch(request: Request): Promise<Response> {
    if (this.#runtime === undefined) throw new Error("nothing is deployed");
    return this.#runtime.fetch(request);
  }
}

function deployments(): Deployments {
  const made = new Deployments();
  onTestFinished(() => made.close());
  return made;
}

const texts = (events: readonly AGUIEvent[]): readonly string[] =>
  events.flatMap((event) => {
    if (event.type === "TEXT_MESSAGE_CONTENT") return [event.delta];
    if (event.type !== "MESSAGES_SNAPSHOT") return [];
    return event.messages.flatMap((message) => (message.role === "assistant" ? [String(message.content)] : []));
  });

const first: Code = async (ctx, effects) => {
  ctx.say("Loading.");
  const row = await ctx.once("load", { effect: "read" }, () => ({ row: 1 }));
  const note = await ctx.once("note", () => void effects.push("noted"));
  const isSure = await ctx.ask({ message: "Go on?", schema: z.boolean() });
  ctx.say(`It is ${String(isSure)}.`);
  return { row, note };
};

it("what comes behind the place where a run waits may be anything, and what a step was given that has ended, too", async () => {
  const server = deployments();
  await server.deploy(first);
  const asked = await server.send();
  await server.deploy(async (ctx, effects) => {
    ctx.say("Loading.");
    await ctx.once("load", { effect: "read" }, () => {
      throw new Error("not again");
    });
    await ctx.once("note", () => void effects.push("noted"));
    await ctx.ask({ message: "Go on, please?", schema: z.boolean() });
    await ctx.once("another", () => void effects.push("another"));
    ctx.say("Under the new code.");
    return "new";
  });
  const after = await server.answer(asked, true);
  expect(texts(after)).toEqual(["Loading.", "Under the new code."]);
  expect(after.at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "new" });
  expect(server.effects).toEqual(["noted", "another"]);
  expect(server.reported).toEqual(["INPUT_CHANGED"]);
});

const changed: readonly (readonly [what: string, code: Code, recorded: unknown, wanted: unknown])[] = [
  [
    "a step that has another name",
    async (ctx) => {
      ctx.say("Loading.");
      await ctx.once("fetch", { effect: "read" }, () => 1);
    },
    'custom "load"',
    'custom "fetch"',
  ],
  [
    "steps that have changed places",
    async (ctx) => {
      ctx.say("Loading.");
      await ctx.once("note", () => {});
      await ctx.once("load", { effect: "read" }, () => 1);
    },
    'custom "load"',
    'custom "note"',
  ],
  [
    "a step that is gone",
    async (ctx) => {
      ctx.say("Loading.");
      await ctx.once("load", { effect: "read" }, () => 1);
      await ctx.ask({ message: "Go on?", schema: z.boolean() });
    },
    'custom "note"',
    'ask "ask"',
  ],
  [
    "another text",
    async (ctx) => {
      ctx.say(`Loading at ${Math.random()}.`);
    },
    expect.objectContaining({ type: "TEXT_MESSAGE_CONTENT", delta: "Loading." }),
    expect.objectContaining({ type: "TEXT_MESSAGE_CONTENT", delta: expect.stringContaining("Loading at") }),
  ],
  [
    "nothing where something was said",
    async (ctx) => {
      await ctx.once("load", { effect: "read" }, () => 1);
      await ctx.once("note", () => {});
      await ctx.ask({ message: "Go on?", schema: z.boolean() });
    },
    expect.objectContaining({ type: "TEXT_MESSAGE_START" }),
    "nothing: the code has ended",
  ],
];

it.each(changed)(
  "%s stops the run for an operator, with both sides and the place",
  async (_, code, recorded, wanted) => {
    const server = deployments();
    await server.deploy(first);
    const asked = await server.send();
    await server.deploy(code);
    expect((await server.answer(asked, true)).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "NEEDS_OPERATOR" });
    const [question, ...others] = (await server.inbox()).filter(({ kind }) => kind === "diverged");
    expect(others).toEqual([]);
    expect(question?.metadata).toMatchObject({ recorded, wanted });
    if (wanted !== "nothing: the code has ended") expect(question?.metadata.at).toContain("deploy.test.ts");
    expect(question?.message).toMatch(/does something else than it did: .* was recorded as .*, and now is /);
    expect(server.effects).toEqual(["noted"]);

    // The former code is deployed again: the run goes on by itself.
    await server.deploy(first);
    const shown = await server.shown();
    expect(shown.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(texts(shown)).toEqual(["Loading.", "It is true."]);
    expect(server.effects).toEqual(["noted"]);
    expect(await server.inbox()).toEqual([]);
  },
);

type Emits = (ctx: LoopContext, value: string) => void;

const emitted: readonly (readonly [what: string, emits: Emits])[] = [
  ["a custom event", (ctx, value) => ctx.custom("stage", value)],
  ["a raw event", (ctx, value) => ctx.raw({ value })],
  ["the name of a step", (ctx, value) => ctx.step(value).end()],
  ["an activity", (ctx, value) => void ctx.activity("PLAN", { value })],
  ["reasoning", (ctx, value) => void ctx.think(value)],
  [
    "the arguments of a call",
    (ctx, value) => {
      const call = ctx.toolCall("look");
      call.argsJson({ value });
      call.resultJson(1);
    },
  ],
  [
    "the result of a call",
    (ctx, value) => {
      const call = ctx.toolCall("look");
      call.argsJson({});
      call.resultJson({ value });
    },
  ],
  [
    "the state",
    (ctx, value) => {
      ctx.setState({ value });
      ctx.publishState();
    },
  ],
];

it.each(emitted)("%s with another value stops it, too; the same value does not", async (_, emits) => {
  const server = deployments();
  const saying =
    (value: string): Code =>
    async (ctx) => {
      emits(ctx, value);
      return await ctx.ask({ message: "Go on?", schema: z.boolean() });
    };
  await server.deploy(saying("one"));
  const asked = await server.send();
  await server.deploy(saying("another"));
  expect((await server.answer(asked, true)).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "NEEDS_OPERATOR" });
  await server.deploy(saying("one"));
  expect((await server.shown()).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: true });
});

it("an operator may accept the difference: what was recorded stands, and the code goes on", async () => {
  const server = deployments();
  await server.deploy(first);
  const asked = await server.send();
  await server.deploy(async (ctx) => {
    ctx.say("Loading.");
    const row = await ctx.once("fetch", { effect: "read" }, () => "never run");
    await ctx.once("note", () => {});
    await ctx.ask({ message: "Go on?", schema: z.boolean() });
    ctx.say("Accepted.");
    return row;
  });
  await server.answer(asked, true);
  const [question] = await server.inbox();
  expect(await server.decide(question?.id ?? "", "accept")).toBe(200);
  const shown = await server.shown();
  expect(shown.at(-1)).toMatchObject({ type: "RUN_FINISHED", result: { row: 1 } });
  expect(texts(shown)).toEqual(["Loading.", "Accepted."]);
});

it("an operator may abandon the run", async () => {
  const server = deployments();
  await server.deploy(first);
  const asked = await server.send();
  await server.deploy((ctx) => ctx.sleep(1));
  await server.answer(asked, true);
  const [question] = await server.inbox();
  expect(await server.decide(question?.id ?? "", "abandon")).toBe(200);
  expect((await server.shown()).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "ABANDONED" });
});

it("a write that may be half done does not go on with another input, a read does", async () => {
  const pay =
    (cents: number, effect: "write" | "read"): Code =>
    async (ctx, effects) =>
      await ctx.call(
        tool({
          ...{ name: "pay", description: "Pays", effect, approval: true, input: z.object({ cents: z.number() }) },
          call: (input) => {
            effects.push(`paid ${input.cents}`);
            return input.cents;
          },
        }),
        { cents },
      );
  for (const effect of ["write", "read"] as const) {
    const server = deployments();
    await server.deploy(pay(1, effect));
    const asked = await server.send();
    await server.deploy(pay(2, effect));
    const end = (await server.answer(asked, { approved: true })).at(-1);
    if (effect === "read") expect(end).toMatchObject({ type: "RUN_FINISHED", result: 2 });
    else expect(end).toMatchObject({ type: "RUN_ERROR", code: "NEEDS_OPERATOR" });
    expect(server.effects).toEqual(effect === "read" ? ["paid 2"] : []);
  }
});

it("new code asks for its version: runs that came past the place before do what they did, others the new", async () => {
  const server = deployments();
  await server.deploy(first);
  const asked = await server.send();
  const second: Code = async (ctx, effects) => {
    ctx.say("Loading.");
    const isNew = ctx.version("fetch", 1) >= 1;
    await ctx.once(isNew ? "fetch" : "load", { effect: "read" }, () => 1);
    await ctx.once("note", () => void effects.push("noted"));
    await ctx.ask({ message: "Go on?", schema: z.boolean() });
    return isNew ? "new" : "old";
  };
  await server.deploy(second);
  expect((await server.answer(asked, true)).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "old" });

  const other = deployments();
  await other.deploy(second);
  const began = await other.send();
  await other.deploy(second);
  expect((await other.answer(began, true)).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "new" });
});
