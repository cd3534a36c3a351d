import type { RunAgentInput } from "../protocol/events.ts";
import { InputError, normaliseInput } from "../protocol/input.ts";
import type { Json } from "../protocol/json.ts";
import type { Principal } from "../protocol/words.ts";
import type { Agent } from "../runtime/agent-definition.ts";
import type { Engine } from "../runtime/engine.ts";
import { StateInvalidError } from "../runtime/starting-state.ts";
import type { Streams } from "../runtime/streams.ts";
import type { Meaning } from "../store/store.ts";
import { eventFormat } from "./event-format.ts";
import { eventStreamResponse, type SentStream, type StreamSettings } from "./event-stream.ts";
import { problem } from "./problem.ts";
import { type Body, isJson, readJsonBody } from "./read-body.ts";

export interface PostOptions extends StreamSettings {
  readonly engine: Engine;
  readonly streams: Streams;
  readonly principal: Principal;
  readonly signal: AbortSignal;
  /** Bytes. */
  readonly bodyLimit: number;
}

/** `POST /agents/:agent`: a RunAgentInput in, one leg's events out. What is wrong with the request is a status, before any event. */
export async function postAgent(agent: Agent, request: Request, options: PostOptions): Promise<Response> {
  const format = await eventFormat(request.headers.get("accept"));
  if (format instanceof Response) return format;
  const input = await readInput(request, options);
  if (input instanceof Response) return input;
  const { protocolVersion } = input;
  try {
    const stream = await answer(agent, input, options);
    if (stream instanceof Response) return stream;
    return await eventStreamResponse(stream, { format, protocolVersion }, options);
  } catch (error) {
    if (error instanceof StateInvalidError)
      return problem(422, error.code, error.message, { details: error.issues as unknown as Json });
    throw error;
  }
}

/** The RunAgentInput of a request, or what is wrong with it. */
export async function readInput(
  request: Request,
  { bodyLimit, onWarning }: Pick<PostOptions, "bodyLimit" | "onWarning">,
): Promise<RunAgentInput | Response> {
  if (!isJson(request)) return problem(415, "CONTENT_TYPE", "send the RunAgentInput as application/json");
  const body = await readJsonBody(request, bodyLimit);
  if (!body.ok) return bodyProblem(body, bodyLimit);
  try {
    const { input, warnings } = normaliseInput(body.json);
    for (const warning of warnings) onWarning?.(warning);
    return input;
  } catch (error) {
    if (error instanceof InputError)
      return problem(400, error.code, error.message, { details: error.issues as unknown as Json });
    throw error;
  }
}

function bodyProblem(body: Extract<Body, { ok: false }>, limit: number): Response {
  switch (body.because) {
    case "too-large":
      return problem(413, "BODY_TOO_LARGE", `the request body is over ${limit} bytes; send less history`);
    case "cut":
      return problem(400, "BODY_CUT", "the connection ended before the request body did; send it again");
    case "not-json":
      return problem(400, "INVALID_JSON", `the request body is not JSON: ${body.why}`);
    default:
      return body satisfies never;
  }
}

async function answer(agent: Agent, input: RunAgentInput, options: PostOptions): Promise<SentStream | Response> {
  const { engine, streams, principal, onWarning } = options;
  const clash = input.tools.find(({ name }) => agent.loop?.tool(name) !== undefined);
  if (clash !== undefined) {
    return problem(
      422,
      "TOOL_NAME_TAKEN",
      `the client's tool "${clash.name}" has the name of one of the server's; rename it`,
    );
  }
  const posted = await engine.post(agent, input, principal, (what) => onWarning?.(what));
  if (posted.meaning.is === "refuse") return refusal(posted.meaning, input.threadId);
  const gone = new AbortController();
  return { ...(await streams.ofPost(posted, input, gone.signal)), gone };
}

const explanations: Readonly<Record<string, string>> = {
  RUN_ID_REUSED: "this run id stands for another request of the thread; send a new one",
  RUN_ACTIVE: "a run of this thread is active; rejoin it, or wait for its end",
  INTERRUPTS_OPEN: "the thread waits for answers; send a resume entry for each open interrupt",
  SYSTEM_MESSAGE_REFUSED:
    'this agent takes no system or developer messages from clients; leave them out, or define it with systemMessages: "allow"',
  MESSAGE_ID_TAKEN:
    "a new message has the id of another one of the thread, or one that only a run may give; send it under one of its own",
  INTERRUPT_ANSWERED: "somebody has answered already, with something else",
  INTERRUPT_NOT_FOUND: "no such interrupt is open in this thread",
  ANSWER_FORBIDDEN: "this answer is not yours to give",
  STILL_RUNNING: "what was said not to be done still runs; say it when that has ended",
  ANSWER_INVALID: "the answer does not fit what was asked for",
};

function refusal({ status, code, details }: Extract<Meaning, { is: "refuse" }>, threadId: string): Response {
  const message = `${explanations[code] ?? code}; see /threads/${encodeURIComponent(threadId)}/stream`;
  return problem(status, code, message, { details });
}
