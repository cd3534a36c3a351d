import type { Context } from "hono";
import type { Agent } from "../runtime/agent-definition.ts";
import type { Env } from "./control-plane.ts";
import { eventFormat } from "./event-format.ts";
import { eventStreamResponse } from "./event-stream.ts";
import { type PostOptions, readInput } from "./post-agent.ts";
import { problem } from "./problem.ts";

/**
 * `GET` or `POST /threads/:id/stream`: what a thread shows. With a cursor (`Last-Event-ID`, or `?after=`) exactly the rest; without, a prelude
 * and then what is live. By POST for stock clients, which can only send a RunAgentInput; nothing is started by it.
 */
export async function threadStream(
  c: Context<Env, "/threads/:id/stream">,
  agents: ReadonlyMap<string, Agent>,
  options: Omit<PostOptions, "principal">,
): Promise<Response> {
  const threadId = c.req.param("id");
  const agent = c.req.query("agent") ?? (agents.size === 1 ? [...agents.keys()][0] : undefined);
  if (agent === undefined) {
    return problem(400, "AGENT_NEEDED", `several agents may have a thread "${threadId}"; say which with ?agent=NAME`);
  }
  const format = await eventFormat(c.req.header("accept"));
  if (format instanceof Response) return format;
  const input = c.req.method === "POST" ? await readInput(c.req.raw, options) : undefined;
  if (input instanceof Response) return input;
  const gone = new AbortController();
  const stream = await options.streams.ofThread({
    ...{ threadId, agent, gone: gone.signal, principal: c.get("principal") },
    cursor: c.req.query("after") ?? c.req.header("last-event-id") ?? null,
    isFollowing: c.req.query("follow") === "1",
    runId: input?.runId ?? null,
  });
  if (stream === null) {
    return problem(
      404,
      "THREAD_NOT_FOUND",
      `agent "${agent}" has no thread "${threadId}"; POST /agents/${agent} begins one`,
    );
  }
  const protocolVersion =
    input?.protocolVersion ?? c.req.query("protocolVersion") ?? (input === undefined ? "1.0" : undefined);
  return await eventStreamResponse({ ...stream, gone }, { format, protocolVersion }, options);
}
