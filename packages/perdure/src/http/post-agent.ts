import type { RunAgentInput } from "../protocol/events.ts";
import { InputError } from "../protocol/input.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { acceptsEventStream, EVENT_STREAM } from "../protocol/negotiate.ts";
import type { Principal } from "../protocol/words.ts";
import type { Agent } from "../runtime/agent-definition.ts";
import { StateInvalidError } from "../runtime/starting-state.ts";
import { type StreamRunOptions, streamRun } from "../runtime/stream-run.ts";
import { eventStreamResponse } from "./event-stream.ts";
import { problem } from "./problem.ts";
import { readJsonBody } from "./read-body.ts";

/** `POST /agents/:agent`: a RunAgentInput in, one leg's events out. What is wrong with the request is a status, before any event. */
export async function postAgent<S>(
  agent: Agent<S>,
  request: Request,
  options: {
    readonly principal: Principal;
    readonly signal: AbortSignal;
    /** Bytes. */
    readonly bodyLimit: number;
    /** Milliseconds. */
    readonly keepAlive: number;
    readonly onError: StreamRunOptions["onError"];
    readonly onWarning: StreamRunOptions["onWarning"];
  },
): Promise<Response> {
  if (!/^application\/json\s*(;|$)/i.test(request.headers.get("content-type") ?? "")) {
    return problem(415, "CONTENT_TYPE", "send the RunAgentInput as application/json");
  }
  if (!acceptsEventStream(request.headers.get("accept"))) {
    return problem(406, "NOT_ACCEPTABLE", `the answer is ${EVENT_STREAM}; accept it`);
  }
  const body = await readJsonBody(request, options.bodyLimit);
  if (!body.ok) {
    switch (body.because) {
      case "too-large":
        return problem(413, "BODY_TOO_LARGE", `the request body is over ${options.bodyLimit} bytes; send less history`);
      case "cut":
        return problem(400, "BODY_CUT", "the connection ended before the request body did; send it again");
      case "not-json":
        return problem(400, "INVALID_JSON", `the request body is not JSON: ${body.why}`);
    }
  }
  const { principal, signal, keepAlive, onError, onWarning } = options;
  try {
    // streamRun normalises what it is given, so the claim about its type is checked there.
    const events = streamRun(agent, body.json as RunAgentInput, {
      principal,
      signal,
      ...(onError && { onError }),
      ...(onWarning && { onWarning }),
    });
    return await eventStreamResponse(events, declaredVersion(body.json), keepAlive);
  } catch (error) {
    if (error instanceof InputError)
      return problem(400, error.code, error.message, { details: error.issues as unknown as Json });
    if (error instanceof StateInvalidError)
      return problem(422, error.code, error.message, { details: error.issues as unknown as Json });
    throw error;
  }
}

function declaredVersion(body: unknown): string | undefined {
  if (!isJsonObject(body)) return undefined;
  const version = body.protocolVersion ?? body.protocol_version;
  return typeof version === "string" ? version : undefined;
}
