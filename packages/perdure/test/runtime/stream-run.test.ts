/** The leg runner without a log: how a leg begins, how it ends on every way out, and what is never sent. */
import {
  type Agent,
  AgentError,
  AnswerInvalidError,
  agent,
  BacklogFullError,
  DuplicateInterruptError,
  InputError,
  NotJsonError,
  type RunAgentInput,
  type RunContext,
  RunInterrupted,
  type StreamRunOptions,
  streamRun,
  type Transformer,
  TransformerStateError,
} from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { StateInvalidError } from "../../src/runtime/starting-state.ts";

const request = (more: Partial<RunAgentInput> = {}): RunAgentInput => ({
  threadId: "t",
  runId: "r",
  messages: [],
  tools: [],
  context: [],
  ...more,
});

interface Ran {
  readonly events: AGUIEvent[];
  readonly types: string[];
  readonly last: AGUIEvent | undefined;
  readonly reported: unknown[];
}

async function play<S>(subject: Agent<S>, input = request(), options: StreamRunOptions = {}): Promise<Ran> {
  const reported: unknown[] = [];
  const events: AGUIEvent[] = [];
  const onError = (error: unknown): void => void reported.push(error);
  for await (const event of streamRun(subject, input, { onError, ...options })) events.push(event);
  return { events, types: events.map(({ type }) => type), last: events.at(-1), reported };
}

const body = <S>(run: (ctx: RunContext<S>) => Promise<unknown>): Agent<S> => agent<S>({ name: "subject", run });
const FINISHED = { type: "RUN_FINISHED", threadId: "t", runId: "r" };

describe("how a leg begins", () => {
  const State = z.object({ n: z.number(), list: z.array(z.string()).default([]) });
  const initial = () => ({ n: 1, list: ["a"] });
  const stateful = agent({ name: "stateful", state: { schema: State, initial }, run: async (ctx) => ctx.state.n });

  it("RUN_STARTED is first, names run, thread and version, and is there before the body does anything", async () => {
    let called = false;
    const subject = body(async () => {
      called = true;
    });
    const stream = streamRun(subject, request({ parentRunId: "p" }));
    expect(called).toBe(false);
    expect(await stream.next()).toEqual({
      done: false,
      value: { type: "RUN_STARTED", threadId: "t", runId: "r", parentRunId: "p", protocolVersion: "1.0" },
    });
  });

  it.each([
    ["absent", {}],
    ["null", { state: null }],
    ["{}", { state: {} }],
  ])("a state that is %s means the agent's initial one, sent as STATE_SNAPSHOT", async (_, more) => {
    const { events, last } = await play(stateful, request(more));
    expect(events[1]).toEqual({ type: "STATE_SNAPSHOT", snapshot: { n: 1, list: ["a"] } });
    expect(last).toMatchObject({ result: 1 });
  });

  it("the request's state wins, and is not sent back while it is what the client holds", async () => {
    const { types, last } = await play(stateful, request({ state: { list: [], n: 7 } }));
    expect(types).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(last).toMatchObject({ result: 7 });
  });

  it("a state that the schema completes is sent, because the client does not hold it", async () => {
    const { events } = await play(stateful, request({ state: { n: 7 } }));
    expect(events[1]).toEqual({ type: "STATE_SNAPSHOT", snapshot: { n: 7, list: [] } });
  });

  it("without a state of its own the agent starts from the request's, or from {} and sends nothing", async () => {
    expect((await play(body(async (ctx) => ctx.state))).last).toMatchObject({ result: {} });
    const { types, last } = await play(
      body(async (ctx) => ctx.state),
      request({ state: { any: 1 } }),
    );
    expect(types).not.toContain("STATE_SNAPSHOT");
    expect(last).toMatchObject({ result: { any: 1 } });
  });

  it("a state that does not fit rejects the first next(), before any event; then it is over", async () => {
    const stream = streamRun(stateful, request({ state: { n: "seven" } }));
    const failure = await stream.next().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(StateInvalidError);
    expect(failure).toMatchObject({ code: "STATE_INVALID", agent: "stateful", issues: [{ path: "/n" }] });
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("a request that is none rejects the first next() too, and the body does not run", async () => {
    let called = false;
    const subject = body(async () => {
      called = true;
    });
    const failure = await streamRun(subject, { threadId: "t" } as RunAgentInput)
      .next()
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(InputError);
    expect(called).toBe(false);
  });

  it("the body reads the request: messages, newest user text, tools, context, props, principal", async () => {
    const tools = [{ name: "pick", description: "Pick", parameters: { type: "object" } }];
    const input = request({
      messages: [
        { id: "1", role: "user", content: "first" },
        {
          id: "2",
          role: "user",
          content: [
            { type: "text", text: "one" },
            { type: "text", text: "two" },
          ],
        },
      ],
      tools,
      context: [{ description: "who", value: "Ann" }],
      forwardedProps: { theme: "dark" },
    });
    const seen = body(async (ctx) => ({
      texts: ctx.messages.length,
      last: ctx.lastUserText(),
      tool: ctx.clientTool("pick")?.description,
      none: ctx.clientTool("other") === undefined,
      context: ctx.context,
      props: ctx.forwardedProps,
      principal: ctx.principal.subject,
      isResume: ctx.isResume,
    }));
    expect((await play(seen, input)).last).toMatchObject({
      result: {
        texts: 2,
        last: "one\ntwo",
        tool: "Pick",
        none: true,
        context: input.context,
        props: { theme: "dark" },
        principal: "anonymous",
        isResume: false,
      },
    });
  });
});

describe("how a body ends", () => {
  it("what it returns is the result; nothing is null", async () => {
    expect((await play(body(async () => ({ answer: 42 })))).last).toEqual({
      ...FINISHED,
      result: { answer: 42 },
      outcome: { type: "success" },
    });
    expect((await play(body(async () => {}))).last).toEqual({ ...FINISHED, outcome: { type: "success" } });
  });

  it("usage is summed by provider and model, and stands on RUN_FINISHED and on RUN_ERROR", async () => {
    const spend = async (ctx: RunContext): Promise<void> => {
      ctx.usage({ provider: "p", model: "m", inputTokens: 3, outputTokens: 1 });
      ctx.usage({ provider: "p", model: "m", inputTokens: 4 });
      ctx.usage({ provider: "p", model: "n", inputTokens: 5 });
    };
    const usage = [
      { provider: "p", model: "m", inputTokens: 7, outputTokens: 1 },
      { provider: "p", model: "n", inputTokens: 5 },
    ];
    expect((await play(body(spend))).last).toMatchObject({ usage });
    const failing = body(async (ctx: RunContext) => {
      await spend(ctx);
      throw new Error("no");
    });
    expect((await play(failing)).last).toMatchObject({ type: "RUN_ERROR", usage });
  });

  it("a wrong usage entry is told at its line, not at the run's end", async () => {
    const { last, reported } = await play(
      body(async (ctx) => {
        expect(() => ctx.usage({ inputTokens: -1 })).toThrow(/\/usage\/0\/inputTokens/);
        return "fine";
      }),
    );
    expect(last).toMatchObject({ result: "fine" });
    expect(reported).toEqual([]);
  });

  it("an AgentError speaks for itself: its code and message are public, its cause goes to onError", async () => {
    const cause = new Error("timeout at 10.0.0.7");
    const { last, reported } = await play(
      body(async () => {
        throw new AgentError("The shop is closed.", { code: "SHOP_CLOSED", cause });
      }),
    );
    expect(last).toEqual({ type: "RUN_ERROR", code: "SHOP_CLOSED", message: "The shop is closed." });
    expect(reported).toEqual([expect.objectContaining({ cause })]);
  });

  it.each([
    ["an Error", new Error("postgres://u:pw@db"), "INTERNAL"],
    ["a string", "postgres://u:pw@db", "INTERNAL"],
    ["nothing", undefined, "INTERNAL"],
    ["an error of ours", new DuplicateInterruptError("pw"), "DUPLICATE_INTERRUPT"],
  ])("of %s only the code is told; the rest goes to onError", async (_, thrown, code) => {
    const { last, reported } = await play(body(() => Promise.reject(thrown)));
    expect(last).toEqual({ type: "RUN_ERROR", code, message: `The agent failed (${code}).` });
    expect(reported).toEqual([thrown]);
  });

  it("a body that throws before its first await fails like any other", async () => {
    const { types, reported } = await play(
      body(() => {
        throw new Error("at once");
      }),
    );
    expect(types).toEqual(["RUN_STARTED", "RUN_ERROR"]);
    expect(reported).toHaveLength(1);
  });

  it("an onError that throws does not cost the terminal event", async () => {
    const printed = vi.spyOn(console, "error").mockReturnValue();
    onTestFinished(() => printed.mockRestore());
    const { types } = await play(
      body(() => Promise.reject(new Error("no"))),
      request(),
      {
        onError: () => {
          throw new Error("the log is full");
        },
      },
    );
    expect(types).toEqual(["RUN_STARTED", "RUN_ERROR"]);
  });

  it("unpublished changes of the state go out when it succeeds, and are dropped when it fails", async () => {
    const change = (then: () => void) =>
      body(async (ctx: RunContext<{ n?: number }>) => {
        ctx.state.n = 1;
        then();
      });
    expect((await play(change(() => {}))).types).toEqual(["RUN_STARTED", "STATE_DELTA", "RUN_FINISHED"]);
    const failing = change(() => {
      throw new Error("no");
    });
    expect((await play(failing)).types).toEqual(["RUN_STARTED", "RUN_ERROR"]);
  });

  it("what JSON cannot hold as a result is NOT_JSON, whose message names the agent and the place", async () => {
    const { last, reported } = await play(body(async () => ({ deep: [1n] })));
    expect(last).toMatchObject({ type: "RUN_ERROR", code: "NOT_JSON" });
    expect(reported[0]).toBeInstanceOf(NotJsonError);
    expect(String(reported[0])).toMatch(/result of agent "subject".*BigInt.*\/deep\/0/);
  });
});

describe("what is left open", () => {
  const leave = (how: (ctx: RunContext) => Promise<unknown>) =>
    body(async (ctx: RunContext) => {
      ctx.step("outer");
      ctx.step("inner");
      ctx.reasoning().delta("hm");
      return how(ctx);
    });

  it("is closed innermost first before the terminal event", async () => {
    const { events } = await play(leave(async () => {}));
    expect(events.slice(-5)).toMatchObject([
      { type: "REASONING_MESSAGE_END" },
      { type: "REASONING_END" },
      { type: "STEP_FINISHED", stepName: "inner" },
      { type: "STEP_FINISHED", stepName: "outer" },
      FINISHED,
    ]);
  });

  it("a text that is whole ends plain; one cut by a failure or a cancel is marked incomplete, reasoning too", async () => {
    const whole = await play(leave(async () => {}));
    expect(whole.events.at(-5)).not.toHaveProperty("metadata");
    const failed = await play(leave(() => Promise.reject(new Error("no"))));
    expect(failed.events.at(-5)).toMatchObject({ metadata: { perdure: { incomplete: true } } });
    const stop = new AbortController();
    const cancelled = await play(
      leave(async () => stop.abort()),
      request(),
      { signal: stop.signal },
    );
    expect(cancelled.events.at(-5)).toMatchObject({ metadata: { perdure: { incomplete: true } } });
    expect(cancelled.last).toEqual({ ...FINISHED, outcome: { type: "cancelled" } });
  });

  it("a call with partial arguments is taken back before its END, whichever way the run ends", async () => {
    const user = { id: "u", role: "user" as const, content: "go" };
    for (const how of [async () => {}, () => Promise.reject(new Error("no"))]) {
      const { events } = await play(
        body(async (ctx) => {
          ctx.toolCall("refund").args('{"cents":1');
          return how();
        }),
        request({ messages: [user] }),
      );
      expect(events.slice(-3, -1)).toEqual([
        { type: "MESSAGES_SNAPSHOT", messages: [user] },
        { type: "TOOL_CALL_END", toolCallId: "r:c0" },
      ]);
    }
  });
});

describe("an ending that cannot be sent", () => {
  it.each([
    ["it succeeds", async () => {}],
    ["it asks", (ctx: RunContext<{ n?: unknown }>) => ctx.interrupt({ message: "?" })],
  ])("is RUN_ERROR with everything closed, when %s with a state that JSON cannot hold", async (_, how) => {
    const { events, reported } = await play(
      body(async (ctx: RunContext<{ n?: unknown }>) => {
        ctx.step("s");
        ctx.message().delta("half");
        ctx.state.n = 1n;
        await how(ctx);
      }),
    );
    expect(events.slice(-3)).toMatchObject([
      { type: "TEXT_MESSAGE_END", metadata: { perdure: { incomplete: true } } },
      { type: "STEP_FINISHED" },
      { type: "RUN_ERROR", code: "NOT_JSON" },
    ]);
    expect(reported).toEqual([expect.any(NotJsonError)]);
  });
});

describe("cancelling", () => {
  const talkative = () =>
    body(async (ctx: RunContext) => {
      using step = ctx.step("s");
      ctx.say("one");
      await Promise.resolve();
      using call = step && ctx.toolCall("c");
      call.args("{");
      await Promise.resolve();
      call.args("}");
      call.result("done");
    });

  it("by the signal, at each event: whatever has gone out, one terminal event ends it, and everything is closed", async () => {
    const total = (await play(talkative())).events.length;
    for (let at = 1; at <= total; at++) {
      const stop = new AbortController();
      const types: string[] = [];
      for await (const { type } of streamRun(talkative(), request(), { signal: stop.signal })) {
        types.push(type);
        if (types.length === at) stop.abort();
      }
      const count = (wanted: string) => types.filter((type) => type === wanted).length;
      expect(count("RUN_FINISHED") + count("RUN_ERROR")).toBe(1);
      expect(types.at(-1)).toBe("RUN_FINISHED");
      expect(count("TOOL_CALL_END")).toBe(count("TOOL_CALL_START"));
      expect(count("STEP_FINISHED")).toBe(count("STEP_STARTED"));
    }
  });

  it("by a signal that was aborted before the start: the run begins, is cancelled, and the body never runs", async () => {
    let called = false;
    const subject = body(async () => {
      called = true;
    });
    const { events } = await play(subject, request(), { signal: AbortSignal.abort() });
    expect(events).toMatchObject([{ type: "RUN_STARTED" }, { ...FINISHED, outcome: { type: "cancelled" } }]);
    expect(called).toBe(false);
  });

  it("while the state is still being validated: neither signal nor return() is forgotten", async () => {
    let called = 0;
    let release = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      release = resolve;
    });
    const schema = z.object({ n: z.number() }).refine(() => waiting.then(() => true));
    const slow = agent({ name: "slow", state: { schema, initial: () => ({ n: 0 }) }, run: async () => void called++ });
    const stop = new AbortController();
    const bySignal = play(slow, request({ state: { n: 1 } }), { signal: stop.signal });
    const stream = streamRun(slow, request({ state: { n: 1 } }));
    const first = stream.next();
    stop.abort();
    await stream.return?.();
    release();
    expect((await bySignal).types).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(await first).toEqual({ done: true, value: undefined });
    expect(called).toBe(0);
  });

  it("ctx.signal fires, and a body that was left behind gets RunInterrupted from every operation", async () => {
    const stop = new AbortController();
    let inside: RunContext | undefined;
    const subject = body(async (ctx: RunContext) => {
      inside = ctx;
      await new Promise(() => {});
    });
    const stream = streamRun(subject, request(), { signal: stop.signal });
    await stream.next();
    stop.abort();
    const ctx = inside as RunContext;
    expect(ctx.signal.aborted).toBe(true);
    const operations: (() => unknown)[] = [
      () => ctx.say("x"),
      () => ctx.think("x"),
      () => ctx.message(),
      () => ctx.reasoning(),
      () => ctx.toolCall("x"),
      () => ctx.toolResult("x", "y"),
      () => ctx.step("x"),
      () => ctx.activity("X", {}),
      () => ctx.state,
      () => ctx.setState({}),
      () => ctx.publishState(),
      () => ctx.custom("x.y", 1),
      () => ctx.raw({}),
      () => ctx.usage({ inputTokens: 1 }),
      () => ctx.emit({ type: "CUSTOM", name: "x.y", value: 1 }),
      () => ctx.interrupt({ message: "?" }),
      () => ctx.parallel([]),
    ];
    for (const operation of operations) expect(operation).toThrow(RunInterrupted);
  });

  it("a body that gives up because of it is not reported as a failure", async () => {
    const stop = new AbortController();
    const { reported, types } = await play(
      body(async (ctx: RunContext) => {
        stop.abort();
        await Promise.resolve();
        ctx.say("too late");
      }),
      request(),
      { signal: stop.signal },
    );
    expect(types).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    expect(reported).toEqual([]);
  });

  it("return() stops the body, and a second one is fine", async () => {
    let signal: AbortSignal | undefined;
    const subject = body(async (ctx: RunContext) => {
      signal = ctx.signal;
      await new Promise(() => {});
    });
    const stream = streamRun(subject, request());
    await stream.next();
    expect(signal?.aborted).toBe(false);
    await stream.return?.();
    await stream.return?.();
    expect(signal?.aborted).toBe(true);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("return() before next() means that nothing ever ran", async () => {
    let called = false;
    const stream = streamRun(
      body(async () => {
        called = true;
      }),
      request(),
    );
    await stream.return?.();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(called).toBe(false);
  });
});

describe("questions", () => {
  const Yes = z.object({ approved: z.boolean() });
  const resume = (interruptId: string, payload: unknown): RunAgentInput =>
    request({ runId: "r2", resume: [{ interruptId, status: "resolved", payload: payload as never }] });

  it("an interrupt ends the leg with the question, after both snapshots, and never resolves", async () => {
    let after = false;
    const { events } = await play(
      body(async (ctx: RunContext<{ n?: number }>) => {
        ctx.say("Well.");
        ctx.state.n = 1;
        await ctx.interrupt({ id: "q", message: "Really?", schema: z.boolean(), metadata: { risk: "low" } });
        after = true;
      }),
    );
    expect(events.slice(-3)).toEqual([
      { type: "STATE_SNAPSHOT", snapshot: { n: 1 } },
      { type: "MESSAGES_SNAPSHOT", messages: [{ id: "r:m0", role: "assistant", content: "Well." }] },
      {
        ...FINISHED,
        outcome: {
          type: "interrupt",
          interrupts: [
            {
              id: "q",
              reason: "confirmation",
              message: "Really?",
              responseSchema: expect.objectContaining({ type: "boolean" }),
              metadata: { risk: "low" },
            },
          ],
        },
      },
    ]);
    expect(after).toBe(false);
  });

  it("reasons follow what is asked about, ids follow the run, and expiry is a moment", async () => {
    const { last } = await play(
      body(async (ctx) => {
        const call = ctx.toolCall("refund");
        call.end();
        await ctx.interrupt(
          { message: "Refund?", toolCallId: call.id },
          { message: "Name?", schema: z.string(), expiresIn: "1h" },
          { message: "Colour?", reason: "shop:colour" },
        );
      }),
    );
    if (last?.type !== "RUN_FINISHED" || last.outcome?.type !== "interrupt") throw new Error("no interrupt");
    const [refund, name, colour] = last.outcome.interrupts;
    expect(refund).toMatchObject({ id: "r:i0", reason: "tool_call", toolCallId: "r:c0" });
    expect(name).toMatchObject({ id: "r:i1", reason: "input_required" });
    expect(Date.parse(name?.expiresAt ?? "")).toBeGreaterThan(Date.now());
    expect(colour).toMatchObject({ reason: "shop:colour" });
  });

  it("in parallel branches the leg ends when every other branch has ended or asked, and lists all questions", async () => {
    const steps: string[] = [];
    const { last, types } = await play(
      body(async (ctx) => {
        await ctx.parallel([
          (lane) => lane.interrupt({ id: "a", message: "A?" }),
          async (lane) => {
            for (let i = 0; i < 20; i++) await Promise.resolve();
            lane.say("busy");
            steps.push("worked on");
            return lane.interrupt({ id: "b", message: "B?" });
          },
          async () => void steps.push("ended"),
          (lane) =>
            lane.parallel([
              (inner) => inner.interrupt({ id: "c", message: "C?" }),
              async () => void steps.push("nested"),
            ]),
        ]);
        steps.push("never");
      }),
    );
    expect(last).toMatchObject({ outcome: { type: "interrupt", interrupts: [{ id: "a" }, { id: "c" }, { id: "b" }] } });
    expect(steps).toEqual(["ended", "nested", "worked on"]);
    expect(types).toContain("TEXT_MESSAGE_END");
  });

  it("a failure in another branch wins over a question", async () => {
    const { last, reported } = await play(
      body(async (ctx) => {
        await ctx.parallel([
          (lane) => lane.interrupt({ id: "a", message: "A?" }),
          () => Promise.reject(new AgentError("No.", { code: "NO" })),
        ]);
      }),
    );
    expect(last).toMatchObject({ type: "RUN_ERROR", code: "NO" });
    expect(reported).toHaveLength(1);
  });

  it("a body that catches that failure and returns has its result, and no question stands that nobody waits for", async () => {
    const { last } = await play(
      body(async (ctx) => {
        try {
          await ctx.parallel([(lane) => lane.interrupt({ message: "A?" }), () => Promise.reject(new Error("no"))]);
        } catch {
          return "managed";
        }
      }),
    );
    expect(last).toMatchObject({ result: "managed", outcome: { type: "success" } });
  });

  it("two questions of one id are refused, naming it, and none of that call is asked", async () => {
    const { last } = await play(
      body(async (ctx) => {
        expect(() => ctx.interrupt({ id: "q", message: "1" }, { id: "q", message: "2" })).toThrow(
          DuplicateInterruptError,
        );
        await ctx.interrupt({ id: "q", message: "3" });
      }),
    );
    expect(last).toMatchObject({ outcome: { interrupts: [{ id: "q", message: "3" }] } });
  });

  it("a question that the wire cannot carry is refused at its line", async () => {
    const { last } = await play(
      body(async (ctx) => {
        expect(() => ctx.interrupt({ id: "a\nb", message: "?" })).toThrow(
          /\/interrupts\/0\/id is an id with a control/,
        );
        return "fine";
      }),
    );
    expect(last).toMatchObject({ result: "fine" });
  });

  it("the next run has the answer, typed by the schema; an answer that does not fit is ANSWER_INVALID", async () => {
    const subject = body(async (ctx) => {
      expect(ctx.isResume).toBe(true);
      return ctx.resumeFor("q", Yes)?.payload?.approved satisfies boolean | undefined;
    });
    expect((await play(subject, resume("q", { approved: true }))).last).toMatchObject({ result: true });
    const { last, reported } = await play(subject, resume("q", { approved: "yes" }));
    expect(last).toMatchObject({ type: "RUN_ERROR", code: "ANSWER_INVALID" });
    expect(reported[0]).toBeInstanceOf(AnswerInvalidError);
    expect(reported[0]).toMatchObject({ interruptId: "q", issues: [{ path: "/approved" }] });
  });

  it("false, 0, the empty string and null are answers; a cancelled one is not held against the schema", async () => {
    const echo = (schema: z.ZodType) => body(async (ctx) => ctx.resumeFor("q", schema) ?? null);
    for (const [schema, payload] of [
      [z.boolean(), false],
      [z.number(), 0],
      [z.string(), ""],
    ] as const) {
      expect((await play(echo(schema), resume("q", payload))).last).toMatchObject({
        result: { status: "resolved", payload },
      });
    }
    expect((await play(echo(z.null()), resume("q", null))).last).toMatchObject({ result: { status: "resolved" } });
    const cancelled = request({ resume: [{ interruptId: "q", status: "cancelled" }] });
    expect((await play(echo(Yes), cancelled)).last).toMatchObject({ result: { status: "cancelled" } });
    expect((await play(echo(Yes), resume("other", 1))).last).not.toHaveProperty("result");
  });
});

describe("calls that somebody else answers", () => {
  const pick = { name: "pick", description: "Pick", parameters: { type: "object" } };

  it("calls left to the client are listed as pending, the answered ones are not", async () => {
    const { last } = await play(
      body(async (ctx) => {
        ctx.toolCall("pick").end();
        ctx.toolCall("own").result("done");
        ctx.toolCall("pick").end();
      }),
      request({ tools: [pick] }),
    );
    expect(last).toMatchObject({ outcome: { type: "success", pendingToolCallIds: ["r:c0", "r:c2"] } });
  });

  it("a call of an earlier run is answered by its result alone", async () => {
    const { events } = await play(
      body(async (ctx) => ctx.toolResultJson("old", { ok: true })),
      request({
        messages: [
          {
            id: "a",
            role: "assistant",
            toolCalls: [{ id: "old", type: "function", function: { name: "refund", arguments: "{}" } }],
          },
        ],
      }),
    );
    expect(events.slice(1, -1)).toEqual([
      { type: "TOOL_CALL_RESULT", messageId: "r:t0", toolCallId: "old", content: '{"ok":true}', role: "tool" },
    ]);
    expect(events.at(-1)).toMatchObject({ result: "r:t0", outcome: { type: "success" } });
  });

  it("a result for a call that nobody made is refused, naming it", async () => {
    const { reported, last } = await play(body(async (ctx) => ctx.toolResult("ghost", "boo")));
    expect(last).toMatchObject({ type: "RUN_ERROR", code: "PROTOCOL_VIOLATION" });
    expect(reported[0]).toMatchObject({ rule: "result-without-call", id: "ghost" });
  });
});

describe("ids", () => {
  const everything = body(async (ctx: RunContext) => {
    ctx.say("a");
    ctx.think("b");
    ctx.activity("PLAN", {});
    await ctx.parallel([
      async (lane) => void lane.toolCall("x").result("1"),
      async (lane) => {
        await Promise.resolve();
        lane.say("c");
      },
    ]);
    ctx.say("d");
  });
  const idsOf = (events: readonly AGUIEvent[]): string[] =>
    events.flatMap((event) =>
      "messageId" in event && event.messageId !== undefined
        ? [event.messageId]
        : "toolCallId" in event && event.toolCallId !== undefined
          ? [event.toolCallId]
          : [],
    );

  it("are the same when it runs again, and others in another run", async () => {
    const first = idsOf((await play(everything)).events);
    expect(idsOf((await play(everything)).events)).toEqual(first);
    const other = idsOf((await play(everything, request({ runId: "r2" }))).events);
    expect(other).toHaveLength(first.length);
    for (const id of other) expect(first).not.toContain(id);
  });

  it("never collide with the history, even when a run id comes again", async () => {
    const history = idsOf((await play(everything)).events);
    const messages = [...new Set(history)].map((id) => ({ id, role: "user" as const, content: "old" }));
    const again = idsOf((await play(everything, request({ messages }))).events);
    for (const id of again) expect(history).not.toContain(id);
    expect(idsOf((await play(everything, request({ messages }))).events)).toEqual(again);
  });

  it("fit the wire also when the run id is as long as it may be, wherever it would be cut", async () => {
    for (const runId of ["r".repeat(1024), `r${"\u{1f600}".repeat(500)}`]) {
      expect((await play(everything, request({ runId }))).last).toMatchObject({ outcome: { type: "success" } });
    }
  });
});

describe("texts", () => {
  it("a surrogate pair that was split over deltas comes out whole, in texts, reasoning and arguments", async () => {
    const [high, low] = ["\u{1f600}".charAt(0), "\u{1f600}".charAt(1)];
    const { events } = await play(
      body(async (ctx) => {
        await ctx.message((message) => void [message.delta(`a${high}`), message.delta(`${low}b`)]);
        await ctx.reasoning((reasoning) => void [reasoning.delta(high), reasoning.delta(low)]);
        await ctx.toolCall("x", (call) => void [call.args(`"${high}`), call.args(`${low}"`), call.result("ok")]);
      }),
    );
    const deltas = events.flatMap((event) => ("delta" in event ? [event.delta] : []));
    expect(deltas).toEqual(["a", "\u{1f600}b", "\u{1f600}", '"', '\u{1f600}"']);
  });

  it("half a pair whose other half never comes ends as U+FFFD", async () => {
    const { events } = await play(body(async (ctx) => ctx.say("a\ud83d")));
    expect(events.flatMap((event) => ("delta" in event ? [event.delta] : []))).toEqual(["a", "\ufffd"]);
  });
});

describe("transformers", () => {
  it("carry a memo from event to event, and run in their order", async () => {
    const count: Transformer<number> = {
      name: "count",
      initial: 0,
      step: (n, event) => ({
        memo: n + 1,
        events: [event.type === "TEXT_MESSAGE_CONTENT" ? { ...event, delta: `${n}:${event.delta}` } : event],
      }),
    };
    const shout: Transformer<null> = {
      name: "shout",
      initial: null,
      step: (memo, event) => ({
        memo,
        events: [event.type === "TEXT_MESSAGE_CONTENT" ? { ...event, delta: `${event.delta}!` } : event],
      }),
    };
    const subject = agent({
      name: "subject",
      transformers: [count, shout] as readonly Transformer[],
      run: async (ctx) => void [ctx.say("a"), ctx.say("b")],
    });
    const { events } = await play(subject);
    expect(events.flatMap((event) => ("delta" in event ? [event.delta] : []))).toEqual(["1:a!", "4:b!"]);
  });

  it("may drop and multiply, and never see what only the runner writes", async () => {
    const seen: string[] = [];
    const edit: Transformer<null> = {
      name: "edit",
      initial: null,
      step(memo, event) {
        seen.push(event.type);
        if (event.type === "RAW") return { memo, events: [] };
        if (event.type === "CUSTOM") return { memo, events: [event, event] };
        return { memo, events: [event] };
      },
    };
    const run = async (ctx: RunContext, then: () => unknown): Promise<unknown> => {
      ctx.raw({ secret: 1 });
      ctx.custom("app.tick", 1);
      return then();
    };
    const fail = () => {
      throw new Error("no");
    };
    for (const [then, terminal] of [
      [() => 1, "RUN_FINISHED"],
      [fail, "RUN_ERROR"],
    ] as const) {
      const subject = agent({
        name: "subject",
        transformers: [edit] as readonly Transformer[],
        run: (ctx: RunContext) => run(ctx, then),
      });
      expect((await play(subject)).types).toEqual(["RUN_STARTED", "CUSTOM", "CUSTOM", terminal]);
    }
    expect(new Set(seen)).toEqual(new Set(["RAW", "CUSTOM"]));
  });

  it("what they make is verified, and of an event that was refused no memo knows", async () => {
    const memos: number[] = [];
    const bad: Transformer<number> = {
      name: "bad",
      initial: 0,
      step(n, event) {
        memos.push(n);
        const isBad = event.type === "CUSTOM" && event.value === "bad";
        return { memo: n + 1, events: [isBad ? { type: "TEXT_MESSAGE_END", messageId: "ghost" } : event] };
      },
    };
    const subject = agent({
      name: "subject",
      transformers: [bad] as readonly Transformer[],
      async run(ctx) {
        expect(() => ctx.custom("a", "bad")).toThrow(/ghost/);
        ctx.custom("a", "good");
        ctx.custom("a", "good");
      },
    });
    expect((await play(subject)).types).toEqual(["RUN_STARTED", "CUSTOM", "CUSTOM", "RUN_FINISHED"]);
    expect(memos).toEqual([0, 0, 1]);
  });
});

describe("a transformer and the state", () => {
  it.each([
    ["drops", () => []],
    ["doubles", (event: AGUIEvent) => [event, event]],
    ["rewrites", (event: AGUIEvent) => [{ ...event }]],
  ] as const)("one that %s a STATE event is refused by name, so that no client is led astray", async (_, change) => {
    const meddler: Transformer<null> = {
      name: "meddler",
      initial: null,
      step: (memo, event) => ({ memo, events: event.type.startsWith("STATE") ? change(event) : [event] }),
    };
    const subject = agent({
      name: "subject",
      state: { initial: () => ({ n: 0, filler: "f".repeat(99) }) },
      transformers: [meddler] as readonly Transformer[],
      async run(ctx) {
        ctx.state.n = 1;
        ctx.publishState();
      },
    });
    const { types, reported } = await play(subject);
    expect(types).toEqual(["RUN_STARTED", "STATE_SNAPSHOT", "RUN_ERROR"]);
    expect(reported[0]).toBeInstanceOf(TransformerStateError);
    expect(reported[0]).toMatchObject({ code: "TRANSFORMER_STATE", transformer: "meddler" });
  });
});

describe("a reader that lags", () => {
  const MEBIBYTE = "x".repeat(1024 * 1024);

  it("flushed() resolves when everything was read, not before", async () => {
    const order: string[] = [];
    const stream = streamRun(
      body(async (ctx: RunContext) => {
        ctx.say("a");
        await ctx.flushed();
        order.push("flushed");
      }),
      request(),
    );
    await stream.next();
    for (const _ of [1, 2]) {
      await stream.next();
      await new Promise((resolve) => setImmediate(resolve));
    }
    order.push("two of three read");
    await stream.next();
    await new Promise((resolve) => setImmediate(resolve));
    expect(order).toEqual(["two of three read", "flushed"]);
  });

  it("over 16 MiB emitting throws BACKLOG_FULL; ENDs and the terminal event still pass", async () => {
    let refused: unknown;
    const stream = streamRun(
      body(async (ctx: RunContext) => {
        const message = ctx.message();
        try {
          for (let i = 0; i < 100; i++) message.delta(MEBIBYTE);
        } catch (error) {
          refused = error;
        }
        message.end();
      }),
      request(),
    );
    await stream.next();
    await new Promise((resolve) => setImmediate(resolve));
    const types: string[] = [];
    for await (const { type } of stream) types.push(type);
    expect(refused).toBeInstanceOf(BacklogFullError);
    expect(refused).toMatchObject({ code: "BACKLOG_FULL", message: expect.stringContaining("ctx.flushed()") });
    expect(types.filter((type) => type === "TEXT_MESSAGE_CONTENT").length).toBeLessThan(20);
    expect(types.slice(-2)).toEqual(["TEXT_MESSAGE_END", "RUN_FINISHED"]);
  });

  it("a delta that was refused can be given again, and nothing is lost or doubled", async () => {
    const [high, low] = ["\u{1f600}".charAt(0), "\u{1f600}".charAt(1)];
    const stream = streamRun(
      body(async (ctx: RunContext) => {
        using message = ctx.message();
        message.delta(`${MEBIBYTE.repeat(17)}${high}`);
        expect(() => message.delta(`${low}!`)).toThrow(BacklogFullError);
        await ctx.flushed();
        message.delta(`${low}!`);
      }),
      request(),
    );
    const deltas: string[] = [];
    for await (const event of stream) if (event.type === "TEXT_MESSAGE_CONTENT") deltas.push(event.delta.slice(-3));
    expect(deltas).toEqual(["xxx", "\u{1f600}!"]);
  });
});
