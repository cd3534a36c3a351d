/**
 * An agent whose bodies say where they are. To its runtime it is the same agent: same tools, same contracts, same decisions.
 *
 * A tool is cut before its first line, at each operation on its context, and after its last line, before the driver has heard of it.
 */
import type { Branch } from "../emit/types.ts";
import type { Json } from "../protocol/json.ts";
import { type Agent, type AgentTool, type BodyAgent, isAgentTool, type Loop } from "../runtime/agent-definition.ts";
import type { LoopContext } from "../runtime/loop-context.ts";
import type { ToolContext } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { ToolOutcome } from "../tool/outcome.ts";
import { type Body, type Place, placeIn } from "./places.ts";

/** The process that the bodies run in. */
interface Host {
  pass(place: Place): void;
  runs<T>(body: Body, work: () => Promise<T>): Promise<T>;
}

/** By process: an agent that several others call is one agent. */
const made = new WeakMap<Host, WeakMap<Agent, Agent>>();

export function instrumented(agent: Agent, host: Host): Agent {
  const ofHost = made.get(host) ?? new WeakMap<Agent, Agent>();
  made.set(host, ofHost);
  const one = ofHost.get(agent) ?? instrumentedAgent(agent, host);
  ofHost.set(agent, one);
  return one;
}

function instrumentedAgent(agent: Agent, host: Host): Agent {
  if (agent.loop === undefined) return instrumentedBody(agent, host);
  return { ...agent, loop: instrumentedLoop(agent.loop, host) };
}

function instrumentedLoop(loop: Loop, host: Host): Loop {
  const tools = new Map<DynTool, DynTool>();
  return {
    get describes() {
      return loop.describes;
    },
    get tools() {
      return loop.tools.map((tool) => (isAgentTool(tool) ? calling(tool, host) : tool));
    },
    get alternatives() {
      return loop.alternatives;
    },
    get models() {
      return loop.models;
    },
    get budget() {
      return loop.budget ?? null;
    },
    settings: (run, path) => loop.settings(run, path),
    as: (fork) => instrumentedLoop(loop.as(fork), host),
    next(run, before) {
      const next = loop.next(run, before);
      if (next.next !== "own") return next;
      const { step } = next;
      const body: Body = { run: run.run.uid, step: step.path, tool: step.name, phase: "own" };
      return { next: "own", step: { ...step, run: (signal, most) => host.runs(body, () => step.run(signal, most)) } };
    },
    asks: (step) => loop.asks(step),
    tool(name, path) {
      const tool = loop.tool(name, path);
      if (tool === undefined) return undefined;
      // A call of another agent has no body here.
      const known = tools.get(tool) ?? (isAgentTool(tool) ? tool : instrumentedTool(tool, host));
      tools.set(tool, known);
      return known;
    },
    unusable: (messages) => loop.unusable(messages),
    callModel: (step) =>
      host.runs({ run: step.run.run.uid, step: step.path, tool: null, phase: "model" }, () => loop.callModel(step)),
    forDriver: () => instrumentedLoop(loop.forDriver?.() ?? loop, host),
    refresh: async (signal) => await loop.refresh?.(signal),
    close: async () => await loop.close?.(),
  };
}

/** A tool whose agent's bodies say where they are. */
function calling(tool: AgentTool, host: Host): AgentTool {
  return { ...tool, agent: instrumented(tool.agent, host) };
}

/** The code of a custom loop dies at each operation on its context, too: it is run again. */
function instrumentedBody(agent: BodyAgent, host: Host): BodyAgent {
  const body: Body = { run: null, step: null, tool: null, phase: "loop" };
  return {
    ...agent,
    ...(agent.agents && { agents: agent.agents.map((called) => instrumented(called, host)) }),
    run: (ctx) => host.runs(body, () => agent.run(watchedLane(ctx, body, host))),
    instrument: {
      tool: (tool) => instrumentedTool(tool, host),
      model: (ask) => ({
        ...ask,
        call: (request) => {
          const asked: Body = { run: request.run.run.uid, step: ask.path, tool: null, phase: "model" };
          return host.runs(asked, () => ask.call(request));
        },
      }),
    },
  };
}

function watchedLane(ctx: LoopContext<unknown>, body: Body, host: Host): LoopContext<unknown> {
  const watching = watched(ctx, body, host);
  const parallel = (branches: readonly Branch<LoopContext<unknown>>[]): Promise<unknown[]> => {
    host.pass(placeIn(body, "operation", "parallel"));
    return ctx.parallel(branches.map((branch) => (lane) => branch(watchedLane(lane, body, host))));
  };
  return new Proxy(watching, { get: (target, name) => (name === "parallel" ? parallel : Reflect.get(target, name)) });
}

function instrumentedTool(tool: DynTool, host: Host): DynTool {
  const runs = <T>(phase: Body["phase"], ctx: ToolContext, work: (watched: ToolContext) => Promise<T>): Promise<T> => {
    const body: Body = { run: ctx.run, step: ctx.path, tool: tool.name, phase };
    return host.runs(body, () => work(watched(ctx, body, host)));
  };
  return {
    ...tool,
    approvalFor: (input) =>
      host.runs({ run: null, step: null, tool: tool.name, phase: "approval" }, () => tool.approvalFor(input)),
    callJson: (input, ctx) => runs("call", ctx, (watched) => tool.callJson(input, watched)),
    resumeJson: (answer, input, ctx) => runs("resume", ctx, (watched) => tool.resumeJson(answer, input, watched)),
    ...(tool.goOnJson && {
      goOnJson: (reply, input, ctx) =>
        runs("resume", ctx, async (watched) => (await tool.goOnJson?.(reply, input, watched)) as ToolOutcome<Json>),
    }),
    reconcileJson: (input, ctx) => runs("reconcile", ctx, (watched) => tool.reconcileJson(input, watched)),
  };
}

/** What a body is told. To read it is no operation: nothing happens between it and the line before. */
const FACTS: ReadonlySet<string> = new Set(["idempotencyKey", "attempt", "fence", "run", "path", "id", "content"]);

/** The same object, each operation on which is a place. Its methods run on the object itself, which has private fields. */
function watched<T extends object>(object: T, body: Body, host: Host, prefix = ""): T {
  return new Proxy(object, {
    get(target, name) {
      if (typeof name === "string" && !FACTS.has(name)) host.pass(placeIn(body, "operation", `${prefix}${name}`));
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...args: unknown[]): unknown => {
        const returned: unknown = member.apply(target, args);
        return name === "activity" ? watched(returned as object, body, host, "activity.") : returned;
      };
    },
  });
}
