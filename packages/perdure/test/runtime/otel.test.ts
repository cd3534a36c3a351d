import { context, propagation, SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type Agent, agent, applied, createRuntime, HandlerError, memory, notApplied, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { type OpenTelemetryOptions, openTelemetry } from "../../src/runtime/otel.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { memoryDisk, Outside } from "../../src/testing/outside.ts";
import { cutHere } from "../../src/testing/places.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { asking, posts, saying } from "./asking.ts";

const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
});
afterAll(() => {
  context.disable();
  propagation.disable();
});
beforeEach(() => exporter.reset());

const tracer = provider.getTracer("test");

function desk(ledger: string[] = []): Agent {
  const work = async (what: string) => tracer.startActiveSpan(`works at ${what}`, async (span) => span.end());
  const search = tool({
    ...{ name: "search", description: "Searches.", effect: "read", input: z.object({ email: z.string() }) },
    output: z.array(z.string()),
    async call({ email }) {
      await work(email);
      return ["7"];
    },
  });
  const refund = tool({
    ...{ name: "refund", description: "Refunds.", effect: "write", settle: 0, input: z.object({ order: z.string() }) },
    ...{ output: z.object({ ok: z.boolean() }), approval: ({ order }) => order === "2" },
    async call({ order }) {
      if (order === "0") throw new HandlerError("no such order", { applied: "no", code: "NO_ORDER" });
      ledger.push(order);
      await cutHere("refund: has acted");
      return { ok: true };
    },
    reconcile: async ({ order }) => (ledger.includes(order) ? applied({ ok: true }) : notApplied()),
  });
  const model = scriptedModel(
    ({ messages, lastUserText }) => {
      const last = messages.at(-1);
      if (last?.role !== "user") return { text: "Done." };
      return { text: "Hm.", calls: JSON.parse(lastUserText) as { name: string; input: { [name: string]: string } }[] };
    },
    { modelId: "m-1" },
  );
  return agent({ name: "desk", model, tools: [search, refund], settings: { temperature: 0.5 } }) as Agent;
}

function serving(options: OpenTelemetryOptions = {}) {
  const store = memory();
  const telemetry = openTelemetry({ tracer, ...options });
  const runtime = createRuntime({ agents: [desk()], store, telemetry, onError: () => {} });
  onTestFinished(() => runtime.close());
  return { store, runtime, ask: asking(runtime) };
}

const spans = (): ReadableSpan[] => exporter.getFinishedSpans();
const named = (name: string): ReadableSpan => {
  const span = spans().find((one) => one.name === name);
  if (span === undefined)
    throw new Error(
      `no span ${name} among ${spans()
        .map((one) => one.name)
        .join(", ")}`,
    );
  return span;
};
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}
const left = (n: number) => until(() => spans().filter((span) => span.name === "invoke_agent desk").length >= n);

const both = JSON.stringify([
  { name: "search", input: { email: "ann@example.org" } },
  { name: "refund", input: { order: "0" } },
]);

describe("the spans of a run", () => {
  it("are one trace: the agent, in it its model calls and tools, in them what bodies do", async () => {
    const { ask, store } = serving();
    await ask("/agents/desk", saying(both));
    await left(1);
    const [run] = (await store.runs({ tenant: "local" })).items;
    const root = named("perdure.run desk");
    const drive = named("invoke_agent desk");
    const search = named("execute_tool search");
    expect(new Set(spans().map((span) => span.spanContext().traceId)).size).toBe(1);
    expect(drive.parentSpanContext?.spanId).toBe(root.spanContext().spanId);
    expect(search.parentSpanContext?.spanId).toBe(drive.spanContext().spanId);
    expect(named("works at ann@example.org").parentSpanContext?.spanId).toBe(search.spanContext().spanId);
    expect(run?.labels.traceparent).toContain(root.spanContext().traceId);
    expect(drive.attributes).toEqual({
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": "desk",
      "gen_ai.conversation.id": "t",
      "perdure.run": run?.uid,
      "perdure.epoch": 1,
      "perdure.outcome": "success",
      "perdure.left": "finished",
    });
    const chats = spans().filter((span) => span.name === "chat m-1");
    expect(chats).toHaveLength(2);
    expect(chats[0]?.kind).toBe(SpanKind.CLIENT);
    expect(chats[0]?.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "scripted",
      "gen_ai.request.model": "m-1",
      "gen_ai.request.temperature": 0.5,
      "gen_ai.response.finish_reasons": ["tool-calls"],
      "gen_ai.usage.input_tokens": 1,
      "perdure.step": "0",
      "perdure.attempt": 1,
    });
    expect(search.attributes).toMatchObject({
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "search",
      "gen_ai.tool.call.id": `${run?.uid}:0.1:c0`,
      "perdure.effect": "read",
      "perdure.status": "ok",
    });
    const failed = named("execute_tool refund");
    expect(failed.status.code).toBe(SpanStatusCode.ERROR);
    expect(failed.attributes).toMatchObject({ "error.type": "NO_ORDER", "perdure.applied": "no" });
  });

  it("say nothing of what was said, unless they are asked to", async () => {
    const quiet = serving();
    await quiet.ask("/agents/desk", saying(both));
    await left(1);
    const secret = /ann@example\.org|Hm\.|no such/;
    const said = () =>
      JSON.stringify(
        spans().map(({ attributes, events }) => ({ attributes, events: events.map((e) => e.attributes) })),
      );
    expect(said()).not.toMatch(secret);
    exporter.reset();
    const open = serving({ content: true });
    await open.ask("/agents/desk", saying(both));
    await left(1);
    const { attributes } = named("execute_tool search");
    expect(attributes["gen_ai.tool.call.arguments"]).toBe('{"email":"ann@example.org"}');
    expect(attributes["gen_ai.tool.call.result"]).toBe('["7"]');
    const last = spans().findLast((span) => span.name === "chat m-1")?.attributes;
    expect(JSON.parse(String(last?.["gen_ai.input.messages"]))).toHaveLength(3);
    expect(String(last?.["gen_ai.output.messages"])).toContain("Done.");
  });

  it("join the trace of the request that began the run, also those of a later driver", async () => {
    const { ask, store, runtime } = serving();
    const asked = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const request = posts(saying(JSON.stringify([{ name: "refund", input: { order: "2" } }])));
    const headers = { "content-type": "application/json", traceparent: asked };
    await (await runtime.fetch(new Request("http://localhost/agents/desk", { ...request, headers }))).text();
    await left(1);
    const first = named("invoke_agent desk");
    expect(first.parentSpanContext?.spanId).toBe("b7ad6b7169203331");
    expect(first.attributes["perdure.left"]).toBe("parked");
    expect(first.events.map(({ name }) => name)).toEqual(["perdure.interrupt.opened"]);
    const [question] = (await store.questions({ tenant: "local" })).items;
    const answer = { status: "resolved", payload: { approved: true } };
    await ask(`/inbox/${encodeURIComponent(question?.interrupt.id ?? "")}`, answer);
    await left(2);
    expect(new Set(spans().map((span) => span.spanContext().traceId))).toEqual(
      new Set(["0af7651916cd43dd8448eb211c80319c"]),
    );
    expect(spans().map((span) => span.name)).not.toContain("perdure.run desk");
  });

  it("go on in one trace after a crash, in another process, which says what became of what was cut", async () => {
    const ledger: string[] = [];
    const outside = new Outside(memoryDisk());
    const telemetry = openTelemetry({ tracer });
    const request = posts(saying(JSON.stringify([{ name: "refund", input: { order: "1" } }])));
    const live = (fate: Fate | null) => new Life(outside, fate, desk(ledger) as LoopAgent, undefined, telemetry);
    // Its write is done, and nobody has heard of it.
    const first = live({ at: "refund: has acted", nth: 1 });
    void first.fetch("http://localhost/agents/desk", request).catch(() => {});
    await first.mortal.died;
    await first.bodiesEnded(1_000, new Set());
    first.mortal.bury();
    expect(ledger).toEqual(["1"]);
    expect(spans().map((span) => span.name)).toContain("perdure.run desk");
    const before = spans().length;
    const second = live(null);
    await second.runtime.open();
    await left(1);
    await second.runtime.close();
    const after = spans().slice(before);
    expect(new Set(spans().map((span) => span.spanContext().traceId)).size).toBe(1);
    const root = named("perdure.run desk").spanContext().spanId;
    const drive = after.find((span) => span.name === "invoke_agent desk");
    expect(drive?.parentSpanContext?.spanId).toBe(root);
    expect(drive?.attributes["perdure.epoch"]).toBe(2);
    const judged = after.find((span) => span.name === "execute_tool refund");
    expect(judged?.attributes).toMatchObject({ "perdure.via": "reconcile", "perdure.status": "ok" });
    expect(ledger).toEqual(["1"]);
  });
});

it("a runtime without telemetry never loads OpenTelemetry", async () => {
  const { readFileSync, readdirSync } = await import("node:fs");
  const room = new URL("../../src/", import.meta.url);
  const files = readdirSync(room, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  const importing = files.filter((file) => readFileSync(new URL(file, room), "utf8").includes('"@opentelemetry/api"'));
  expect(importing).toEqual(["runtime/otel.ts"]);
  const named = files.filter((file) => /from "\.[^"]*\/otel\.ts"/.test(readFileSync(new URL(file, room), "utf8")));
  expect(named).toEqual(["otel.ts"]);
});
