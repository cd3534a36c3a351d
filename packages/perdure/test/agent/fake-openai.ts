import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";

/** What the fake sends to one request. The frame "[DONE]" goes out bare, all others as JSON. */
export type Reply =
  | {
      readonly frames: readonly Json[];
      readonly newline?: "\n" | "\r\n";
      readonly cutAfter?: number;
      readonly hang?: boolean;
    }
  | { readonly status: number; readonly body: Json; readonly headers?: Record<string, string> };

/**
 * A provider's chat completions API on a loopback port: real sockets, frames as OpenAI sends them, and its rules for histories.
 * It answers its requests with the replies in order, or with what the function makes of each, and keeps what it was sent.
 */
export async function fakeOpenAI(replies: readonly Reply[] | ((request: { readonly [key: string]: Json }) => Reply)) {
  const requests: { readonly [key: string]: Json }[] = [];
  let hungUp = 0;
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    if (!isJsonObject(body)) throw new TypeError("a request that is no object");
    const at = requests.push(body) - 1;
    const none: Reply = { status: 500, body: { error: { message: "no reply left" } } };
    const reply = typeof replies === "function" ? replies(body) : (replies[at] ?? none);
    const offence = historyOffence(body.messages ?? null);
    if (offence !== null || "status" in reply) {
      const refusal =
        "status" in reply
          ? reply
          : { status: 400, body: { error: { message: offence, type: "invalid_request_error" } } };
      response.writeHead(refusal.status, {
        "content-type": "application/json",
        ...("headers" in refusal && refusal.headers),
      });
      response.end(JSON.stringify(refusal.body));
      return;
    }
    const { frames, newline = "\n", cutAfter, hang } = reply;
    const text = frames
      .map((frame) => `data: ${frame === "[DONE]" ? frame : JSON.stringify(frame)}${newline}${newline}`)
      .join("");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.on("close", () => {
      if (!response.writableFinished) hungUp++;
    });
    // In small writes, so that the provider's parser meets frames cut anywhere.
    const bytes = Buffer.from(text).subarray(0, cutAfter);
    for (let i = 0; i < bytes.length && !response.destroyed; i += 37) {
      response.write(bytes.subarray(i, i + 37));
      await new Promise((resolve) => setImmediate(resolve));
    }
    // Not destroy(): its reset may overtake what was written, headers included.
    if (cutAfter !== undefined) response.socket?.destroySoon();
    else if (hang !== true) response.end();
  };
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseURL: `http://127.0.0.1:${port}/v1`,
    requests,
    /** Connections that the client closed before the reply's end. */
    hungUp: () => hungUp,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** One frame with a delta of the answer. */
export function delta(of: { readonly [key: string]: Json }): Json {
  return frame([{ index: 0, delta: of, finish_reason: null }]);
}

export function finished(reason: string): Json {
  return frame([{ index: 0, delta: {}, finish_reason: reason }]);
}

/** The last frame before `[DONE]`, with `stream_options.include_usage`. */
export function usageFrame(): Json {
  const usage = {
    prompt_tokens: 20,
    completion_tokens: 7,
    total_tokens: 27,
    prompt_tokens_details: { cached_tokens: 16 },
    completion_tokens_details: { reasoning_tokens: 3 },
  };
  return { ...frame([]), usage };
}

function frame(choices: readonly Json[]): { readonly [key: string]: Json } {
  return { id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_790_000_000, model: "fake-1-0801", choices };
}

/** OpenAI's rule: each assistant message with tool_calls is followed by tool messages for exactly those, and there are no others. */
export function historyOffence(messages: Json): string | null {
  if (!Array.isArray(messages)) return "messages is no list";
  let due: unknown[] = [];
  for (const message of messages) {
    if (!isJsonObject(message)) return "a message is no object";
    if (message.role === "tool") {
      if (due.shift() !== message.tool_call_id)
        return `tool message ${JSON.stringify(message.tool_call_id)} answers no call, or out of turn`;
      continue;
    }
    if (due.length > 0) return `no tool message for ${due.join(", ")}`;
    const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
    due = calls.map((call: Json) => (isJsonObject(call) ? call.id : null));
  }
  return due.length > 0 ? `no tool message for ${due.join(", ")}` : null;
}
