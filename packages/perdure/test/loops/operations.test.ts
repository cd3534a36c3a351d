/** What the operations of a custom loop do, one by one, over a runtime that is stopped and started again. */
import {
  type Agent,
  AskCancelled,
  agent,
  agentTool,
  createRuntime,
  HandlerError,
  type LoopContext,
  memory,
  RaceLost,
  RunInterrupted,
  type Runtime,
  StepFailed,
  streamRun,
  tool,
} from "perdure";
import type { AGUIEvent, Json } from "perdure/protocol";
import { scriptedModel } from "perdure/testing";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { z } from "zod";

type Code = (ctx: LoopContext) => Promise<unknown>;

/** One thread of one agent; its server can be started again. */
function serverOf(code: Code, others: readonly Agent[] = [], agents: readonly Agent[] = []) {
  const store = memory();
  const loop: Agent = agent<Json>({ name: "loop", run: code, agents });
  const start = (): Runtime => createRuntime({ agents: [loop, ...others], store, onError: () => {} });
  let runtime = start();
  onTestFinished(() => runtime.close());
  let runs = 0;
  const fetch = (path: string, body?: object): Promise<Response> =>
    runtime.fetch(
      new Request(`http://localhost${path}`, {
        ...(body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
      }),
    );
  return {
    store,
    restart: async (): Promise<void> => {
      await runtime.close();
      runtime = start();
      await runtime.open();
    },
    send: async (resume: readonly object[] = []): Promise<readonly AGUIEvent[]> => {
      const runId = `r${++runs}`;
      const messages = [{ id: "u", role: "user", content: "go" }];
      const body = { threadId: "t", runId, messages, tools: [], context: [], protocolVersion: "1.0", resume };
      const text = await (await fetch("/agents/loop", body)).text();
      return text
        .split("\n")
        .flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6)) as AGUIEvent] : []));
    },
    run: async (): Promise<string> => {
      for (;;) {
        const { runs: all } = (await (await fetch("/runs")).json()) as { runs: { uid: string }[] };
        if (all[0] !== undefined) return all[0].uid;
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    },
    fetch,
    signal: (run: string, name: string, payload?: unknown) => runtime.signal(run, name, payload),
  };
}

const resultOf = (events: readonly AGUIEvent[]): unknown => {
  const last = events.at(-1);
  return last?.type === "RUN_FINISHED" ? last.result : last;
};
const asked = (events: readonly AGUIEvent[]): readonly string[] => {
  const last = events.at(-1);
  return last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt"
    ? last.outcome.interrupts.map(({ id }) => id)
    : [];
};
const failing = tool({
  ...{ name: "failing", description: "Fails", effect: "write", input: z.object({}) },
  call() {
    throw new HandlerError("the shop is closed", { applied: "no", code: "CLOSED" });
  },
});

describe("failures", () => {
  it("reject with the code and with what is known of the effect", async () => {
    const { send } = serverOf(async (ctx) => {
      const error = await ctx.call(failing, {}).catch((thrown: unknown) => thrown);
      if (!(error instanceof StepFailed)) throw error;
      const { code, applied, step, path } = error;
      return { code, applied, step, path };
    });
    expect(resultOf(await send())).toEqual({ code: "CLOSED", applied: "no", step: "failing", path: "0" });
  });

  it("that nobody catches end the run with their code", async () => {
    const { send } = serverOf((ctx) => ctx.call(failing, {}));
    expect((await send()).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "CLOSED" });
  });

  it("of a step that nobody waits for take nobody down, and the run ends when the step has", async () => {
    const done: string[] = [];
    const { send } = serverOf(async (ctx) => {
      void ctx.call(failing, {});
      void ctx.once("late", { effect: "read" }, async () => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        done.push("late");
      });
      return "over";
    });
    expect(resultOf(await send())).toBe("over");
    expect(done).toEqual(["late"]);
  });
});

describe("ask", () => {
  const quiz: Code = async (ctx) => {
    try {
      return await ctx.ask({ message: "How many?", schema: z.number(), audience: "count" });
    } catch (error) {
      return error instanceof AskCancelled ? { because: error.because, code: error.code } : null;
    }
  };

  it("gets the answer, also after a restart, and checks it first", async () => {
    const server = serverOf(quiz);
    const [interruptId] = asked(await server.send());
    await server.restart();
    const wrong = await server.send([{ interruptId, status: "resolved", payload: "three" }]);
    expect(wrong).toEqual([]);
    expect(resultOf(await server.send([{ interruptId, status: "resolved", payload: 3 }]))).toBe(3);
  });

  it("rejects when it is cancelled", async () => {
    const server = serverOf(quiz);
    const [interruptId] = asked(await server.send());
    expect(resultOf(await server.send([{ interruptId, status: "cancelled" }]))).toEqual({
      because: "cancelled",
      code: "ASK_CANCELLED",
    });
  });

  it("is refused while a block of its lane is open", async () => {
    const { send } = serverOf(async (ctx) => {
      using message = ctx.message();
      message.delta("Half a ");
      return await ctx.ask({ message: "What?" });
    });
    expect((await send()).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "BLOCK_OPEN" });
  });
});

describe("receive", () => {
  it("gets signals in the order of their coming, those that came before it, too, and after a restart", async () => {
    const server = serverOf(async (ctx) => {
      const first = await ctx.receive("paid", z.object({ cents: z.number() }));
      ctx.say(`Got ${first.cents}.`);
      return [first, await ctx.receive("shipped"), await ctx.receive("paid")];
    });
    const ended = server.send();
    const run = await server.run();
    expect(await server.signal(run, "paid", { cents: 1 })).toBe("put");
    expect((await server.fetch(`/runs/${run}/signals/paid`, { cents: 2 })).status).toBe(202);
    await server.restart();
    await ended;
    expect(await server.signal(run, "shipped")).toBe("put");
    for (;;) {
      const detail = (await (await server.fetch(`/runs/${run}`)).json()) as { run: { state: string } };
      if (detail.run.state === "success") break;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(resultOf(await server.send())).toEqual([{ cents: 1 }, null, { cents: 2 }]);
    expect(await server.signal(run, "paid")).toBe("finished");
  });
});

describe("parallel", () => {
  it("gives what each branch gives, at its place and of its type", async () => {
    const server = serverOf(async (ctx) => {
      const [title, paper, nothing] = await ctx.parallel([
        (lane) => lane.ask({ message: "Which title?", schema: z.string() }),
        (lane) => lane.once("stock", { effect: "read" }, () => ({ sheets: 12 })),
        (lane) => lane.sleep(1),
      ]);
      expectTypeOf(title).toEqualTypeOf<string>();
      expectTypeOf(paper).toEqualTypeOf<{ sheets: number }>();
      expectTypeOf(nothing).toEqualTypeOf<void>();
      const pages = await ctx.parallel(
        ["a", "b"].map((page) => (lane) => lane.once(page, { effect: "read" }, () => page)),
      );
      expectTypeOf(pages).toEqualTypeOf<string[]>();
      return [title, paper.sheets, ...pages];
    });
    const [interruptId] = asked(await server.send());
    await server.restart();
    const resume = [{ interruptId, status: "resolved", payload: "Tides" }];
    expect(resultOf(await server.send(resume))).toEqual(["Tides", 12, "a", "b"]);
  });
});

describe("race", () => {
  it("gives what the first lane gives, whichever type that is of", async () => {
    const server = serverOf(async (ctx) => {
      const won = await ctx.race([
        (lane) => lane.ask({ message: "Express?", schema: z.boolean() }),
        async (lane) => {
          await lane.once("quick", { effect: "read" }, () => null);
          return "nobody" as const;
        },
      ]);
      expectTypeOf(won).toEqualTypeOf<boolean | "nobody">();
      return won;
    });
    expect(resultOf(await server.send())).toBe("nobody");
  });

  it("of no branches would wait for ever, and is refused", async () => {
    const server = serverOf(async (ctx) => {
      try {
        return await ctx.race([]);
      } catch (error) {
        return String(error);
      }
    });
    expect(resultOf(await server.send())).toMatch(/race.*no branches/);
  });

  it("ends with the first lane; what the others wait for is withdrawn and rejects", async () => {
    const lost: unknown[] = [];
    const server = serverOf(async (ctx) => {
      const won = await ctx.race<string>([
        async (lane) => {
          try {
            return await lane.ask({ message: "Faster?", schema: z.string() });
          } catch (error) {
            lost.push(error instanceof RaceLost);
            throw error;
          }
        },
        (lane) => lane.once("quick", { effect: "read" }, () => "quick"),
      ]);
      return won;
    });
    expect(resultOf(await server.send())).toBe("quick");
    expect(lost).toEqual([true]);
    const { items } = await server.store.questions({ tenant: "local" });
    expect(items).toEqual([]);
  });
});

describe("cancel", () => {
  it("rejects what the code waits for; it may say last words, and begins nothing more", async () => {
    const begun: string[] = [];
    const server = serverOf(async (ctx) => {
      try {
        await ctx.once("slow", { effect: "read" }, async ({ signal }) => {
          begun.push("slow");
          await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        });
      } catch (error) {
        ctx.say(error instanceof RunInterrupted ? `Stopped: ${error.because}.` : "?");
        await ctx.once("cleanup", () => void begun.push("cleanup")).catch(() => ctx.say("Nothing is begun."));
        throw error;
      }
    });
    const sent = server.send();
    const run = await server.run();
    while (begun.length === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    expect((await server.fetch(`/runs/${run}/cancel`, {})).status).toBe(202);
    const events = await sent;
    expect(events.flatMap((event) => (event.type === "TEXT_MESSAGE_CONTENT" ? [event.delta] : []))).toEqual([
      "Stopped: cancelled.",
      "Nothing is begun.",
    ]);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
    expect(begun).toEqual(["slow"]);
  });

  it("of a run at rest withdraws its question, and does not run the code again", async () => {
    let began = 0;
    const server = serverOf(async (ctx) => {
      began += 1;
      await ctx.ask({ message: "Go on?" });
    });
    expect(asked(await server.send())).toHaveLength(1);
    expect((await server.fetch(`/runs/${await server.run()}/cancel`, {})).status).toBe(202);
    expect((await server.send()).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
    expect(began).toBe(1);
  });
});

describe("model", () => {
  it("streams, returns text and calls, and goes on with what its calls gave", async () => {
    const look = tool({
      ...{ name: "look", description: "Looks", effect: "read", input: z.object({ id: z.string() }) },
      call: ({ id }) => ({ found: id }),
    });
    const model = scriptedModel([
      { text: "Looking.", calls: [{ name: "look", input: { id: "a" } }] },
      { text: "Found a." },
    ]);
    const server = serverOf(async (ctx) => {
      const turn = await ctx.model({ model, instructions: "Be brief.", messages: ctx.messages, tools: [look] });
      const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
      const last = await ctx.model({ model, messages: [...ctx.messages, turn, ...results], tools: [look] });
      return { first: turn.text, results, last: last.text, reason: last.finishReason };
    });
    const events = await server.send();
    expect(resultOf(events)).toEqual({
      first: "Looking.",
      results: [{ callId: expect.any(String), name: "look", output: { found: "a" } }],
      last: "Found a.",
      reason: "stop",
    });
    const types = new Set(events.map(({ type }) => type));
    expect([...types]).toEqual(expect.arrayContaining(["TEXT_MESSAGE_CONTENT", "TOOL_CALL_START", "TOOL_CALL_RESULT"]));
  });
});

describe("an agent as a tool", () => {
  it("is called like any tool: a run of its own, shown as it goes, whose questions its caller asks", async () => {
    const child = agent<Json>({
      name: "child",
      async run(ctx) {
        ctx.say("Let me see.");
        return await ctx.ask({ message: "Which one?", schema: z.string() });
      },
    });
    const asking = agentTool(child, { name: "ask_child", description: "Asks the child." });
    const server = serverOf((ctx) => ctx.call(asking, { task: "Choose." }), [child]);
    const first = await server.send();
    expect(first).toContainEqual(expect.objectContaining({ delta: "Let me see." }));
    const [interruptId] = asked(first);
    await server.restart();
    const events = await server.send([{ interruptId, status: "resolved", payload: "this" }]);
    expect(resultOf(events)).toBe("this");
  });

  it("is spawned with a message, also when only the agent that does so lists it", async () => {
    const child = agent<Json>({
      name: "child",
      run: (ctx) => ctx.ask({ message: `${ctx.lastUserText()} Which one?` }),
    });
    const server = serverOf((ctx) => ctx.spawn(child, "Choose."), [], [child]);
    const first = await server.send();
    const last = first.at(-1);
    const open = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    expect(open.map(({ message }) => message)).toEqual(["Choose. Which one?"]);
    await server.restart();
    const events = await server.send([{ interruptId: open[0]?.id, status: "resolved", payload: "this" }]);
    expect(resultOf(events)).toBe("this");
    const routed = await server.fetch("/agents/child", {
      threadId: "t",
      runId: "r",
      messages: [],
      tools: [],
      context: [],
    });
    expect(routed.status).toBe(404);
  });

  it("returns what it has, also where its call is not shown", async () => {
    const child = agent<Json>({
      name: "child",
      description: "Helps.",
      run: async (ctx) => `did ${ctx.lastUserText()}`,
    });
    const server = serverOf((ctx) => ctx.call(agentTool(child), { task: "it" }, { show: false }), [], [child]);
    const events = await server.send();
    expect(resultOf(events)).toBe("did it");
    expect(events.map(({ type }) => type)).not.toContain("TOOL_CALL_START");
    expect(events.find(({ type }) => type === "SUBAGENT_STARTED")).not.toHaveProperty("parentToolCallId");
  });

  it("that nobody lists is an error for the code that calls it, which says where to list it", async () => {
    const child = agent<Json>({ name: "child", run: async () => "done" });
    const server = serverOf(async (ctx) => {
      const failure: unknown = await ctx.spawn(child, "Choose.").catch((error: unknown) => error);
      return failure instanceof StepFailed ? [failure.code, failure.applied, failure.message] : null;
    });
    const said = resultOf(await server.send());
    expect(said).toEqual(["AGENT_MISSING", "no", expect.stringContaining('list it in the `agents` of "loop"')]);
  });
});

it("without a log each durable operation says what it lacks", async () => {
  const loop = agent<Json>({ name: "loop", run: (ctx) => ctx.once("x", () => 1) });
  const input = { threadId: "t", runId: "r", messages: [], tools: [], context: [] };
  const events: AGUIEvent[] = [];
  for await (const event of streamRun(loop, input, { onError: () => {} })) events.push(event);
  expect(events.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "AGENT_NEEDS_STORE" });
});
