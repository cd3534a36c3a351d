/** Whatever fails, and wherever: a status before the stream, or RUN_ERROR as its last event. Never silence, and never a success. */
import { type BaseEvent, verifyEvents } from "@ag-ui/client";
import { type Agent, agent, type BodyAgent, type RunContext, tool } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { type Script, scriptedModel } from "perdure/testing";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type Answer, ask, ended, eventsOf, fresh, open, readUntil, says, served, serving, textOf } from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

const SECRET = "the cause at https://internal";
const fail = (): never => {
  throw new Error(SECRET);
};

const body = (run: (ctx: RunContext) => unknown, more: Partial<BodyAgent> = {}): Agent =>
  agent({ name: "failing", ...more, run: run as BodyAgent["run"] });
const model = (script: Script): Agent =>
  agent({ name: "failing", model: scriptedModel(script), settings: {}, tools: [broken] });

const broken = tool({
  name: "broken",
  description: "Never works.",
  effect: "read",
  input: z.object({}),
  retry: { attempts: 1 },
  call: fail,
});
const refusal = { message: SECRET, status: 400 };

const failing: Record<string, Agent> = {
  "a body that throws before its first await": body(fail),
  "a body that rejects": body(async () => fail()),
  "a body that throws a string": body(async () => {
    throw SECRET;
  }),
  "a body that throws nothing": body(async () => {
    throw undefined;
  }),
  "a body that throws with a text, a call, thoughts and a step open": body(async (ctx) => {
    ctx.step("plan");
    await ctx.parallel([
      async (lane) => lane.message().delta("Half"),
      async (lane) => lane.toolCall("look").args('{"id":'),
      async (lane) => {
        lane.reasoning().delta("Hm");
        await ctx.flushed();
        fail();
      },
    ]);
  }),
  "a body whose result JSON cannot hold": body(async () => 1n),
  "a body whose state JSON cannot hold": body(async (ctx) => {
    (ctx.state as Record<string, unknown>).n = 1n;
  }),
  "a transformer that throws": body(async (ctx) => ctx.say("Hi"), {
    transformers: [
      {
        name: "t",
        initial: null,
        step: (memo, event) => (event.type === "TEXT_MESSAGE_CONTENT" ? fail() : { memo, events: [event] }),
      },
    ],
  }),
  "a model that is refused": model([{ error: refusal }]),
  "a model that breaks off in a text": model([{ text: "Half of", error: refusal }]),
  "a model that breaks off in a call": model([{ calls: [{ name: "broken", input: {} }], error: refusal }]),
  "a model that is cut at its length": model([{ text: "Half of", finishReason: "length" }]),
  "a model that is withheld": model([{ text: "Half of", finishReason: "content-filter" }]),
  "a model whose script throws": model(fail),
  "a model that fails after a call": model([{ calls: [{ name: "broken", input: {} }] }, { error: refusal }]),
};

/** What a client would still wait for. RUN_ERROR is accepted with things open, so no verifier asks. */
function leftOpen(events: readonly AGUIEvent[]): string[] {
  const open = new Set<string>();
  for (const event of events) {
    const [, kind, what] = /^(.*)_(START|STARTED|END|FINISHED)$/.exec(event.type) ?? [];
    if (kind === undefined || kind === "RUN") continue;
    const { messageId, toolCallId, stepName } = event as Record<string, unknown>;
    const item = `${kind} ${String(messageId ?? toolCallId ?? stepName)}`;
    if (what?.startsWith("START")) open.add(item);
    else open.delete(item);
  }
  return [...open];
}

async function post(failed: Agent): Promise<Answer> {
  const { url } = await serving([failed]);
  return await ask(`${url}/agents/failing`, { body: JSON.stringify(fresh({ messages: [says("u", "go")] })) });
}

describe.each(Object.entries(failing))("%s", (_, failed) => {
  it("ends the stream with RUN_ERROR, once, with everything closed before it", async () => {
    const { status, text } = await post(failed);
    expect(status).toBe(200);
    const events = eventsOf(text);
    expect(events[0]).toMatchObject({ type: "RUN_STARTED" });
    expect(events.filter(({ type }) => /^RUN_(ERROR|FINISHED)$/.test(type)).map(({ type }) => type)).toEqual([
      "RUN_ERROR",
    ]);
    expect(events.at(-1)).toMatchObject({ type: "RUN_ERROR", code: expect.stringMatching(/^[A-Z_]+$/) });
    expect(leftOpen(events)).toEqual([]);
    await lastValueFrom(from(events as unknown as BaseEvent[]).pipe(verifyEvents(false), toArray()));
  });

  it("is told in RUN_ERROR alone, by code and without its cause", async () => {
    const { text } = await post(failed);
    const error = eventsOf(text).at(-1);
    expect(error).toMatchObject({ type: "RUN_ERROR", message: expect.stringMatching(/\S/) });
    const { message } = error as { message: string };
    expect(text.split(JSON.stringify(message).slice(1, -1))).toHaveLength(2);
    expect(text).not.toContain(SECRET);
  });
});

describe("what fails before the stream is a status, never an empty 200", () => {
  const schema = z.object({ n: z.number() });
  it.each([
    ["an agent whose initial state cannot be made", body(async () => {}, { state: { initial: fail } })],
    [
      "a schema that throws",
      body(async () => {}, { state: { initial: () => ({ n: 0 }), schema: schema.refine(fail) } }),
    ],
  ])("500 without the cause for %s", async (_, failed) => {
    const { url } = await serving([failed]);
    const state = failed.state?.schema === undefined ? {} : { n: 1 };
    const { status, text } = await ask(`${url}/agents/failing`, { body: JSON.stringify(fresh({ state })) });
    expect(status).toBe(500);
    expect(JSON.parse(text)).toMatchObject({ error: { code: "INTERNAL" } });
    expect(text).not.toContain(SECRET);
  });
});

describe("a cancelled run", () => {
  const waiting = async (ctx: RunContext): Promise<void> => {
    const message = ctx.message();
    message.delta("Half");
    await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
  };

  it.each([
    ["1.0", { type: "cancelled" }],
    [undefined, undefined],
  ])("is neither a success nor an error: to a reader of %s", async (protocolVersion, outcome) => {
    const { url } = await served({ waiting });
    const request = { ...fresh(), protocolVersion };
    const { response } = await open(`${url}/agents/waiting`, { body: JSON.stringify(request) });
    const begun = await readUntil(response, "Half");
    const { uid } = await ended(url, request.threadId, ["running"]);
    await ask(`${url}/runs/${uid}/cancel`, { body: "{}" });
    const events = eventsOf(begun + (await textOf(response)));
    const last = events.at(-1);
    expect(last?.type).toBe("RUN_FINISHED");
    expect(last?.type === "RUN_FINISHED" && last.outcome).toEqual(outcome);
    expect(events.map(({ type }) => type)).not.toContain("RUN_ERROR");
  });

  it.each(versions)("is one that the published client %s survives, and it keeps what was said", async (version) => {
    const { url } = await served({ waiting });
    const client = stockClient(version, { url: `${url}/agents/waiting`, threadId: `c-${version}` });
    const running = client.run({ runId: "r" });
    const { uid } = await ended(url, `c-${version}`, ["running"]);
    await expect.poll(() => client.messages.length).toBe(1);
    await ask(`${url}/runs/${uid}/cancel`, { body: "{}" });
    expect((await running).types.at(-1)).toBe("RUN_FINISHED");
    expect(client.messages).toMatchObject([{ role: "assistant", content: "Half" }]);
  });
});
