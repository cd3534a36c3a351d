/**
 * The HTTP APIs of providers as their published packages meet them: the frames in which an answer comes, and what each refuses in a request.
 * Written from the services' documentation, apart from our own code. A fake keeps what it has issued: a signature that is not its own, or does
 * not belong to its text, is refused as the services refuse it.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { CallSettings, LanguageModel } from "../../src/agent/model-port.ts";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";
import { delta, finished, historyOffence, usageFrame } from "./fake-openai.ts";

/** What a model says in one answer. */
export interface Saying {
  readonly reasoning?: string;
  readonly text?: string;
  readonly calls?: readonly { readonly id: string; readonly name: string; readonly args: string }[];
}

export type Body = { readonly [key: string]: Json };

export interface Api {
  readonly name: string;
  /** The published provider, asking this. */
  model(where: { readonly baseURL?: string; readonly fetch?: typeof fetch }): LanguageModel;
  /** With which it reasons, and leaves the keeping to us. */
  readonly settings: CallSettings;
  /** The whole answer as the service sends it. */
  frames(saying: Saying): readonly string[];
  /** What the service says of a request that it does not take; null for one that it takes. */
  offence(body: Body): string | null;
  /** What of a request's history carries reasoning, as it was sent. */
  reasoningIn(body: Body): readonly Json[];
}

/** What the service has encrypted or signed, so that it can tell. */
const seal = (text: string): string => `sealed:${Buffer.from(text).toString("base64")}`;
const unseal = (sealed: unknown): string | undefined =>
  typeof sealed === "string" && sealed.startsWith("sealed:")
    ? Buffer.from(sealed.slice("sealed:".length), "base64").toString()
    : undefined;

/** Cut where the next piece may begin anywhere, also within an escape. */
function pieces(text: string, length = 5): readonly string[] {
  return text.match(new RegExp(`.{1,${length}}`, "gsu")) ?? [];
}

const data = (frame: Json): string => `data: ${JSON.stringify(frame)}\n\n`;
const event = (frame: Body): string => `event: ${string(frame.type)}\n${data(frame)}`;
const string = (value: Json | undefined): string => (typeof value === "string" ? value : "");
const list = (value: Json | undefined): readonly Body[] =>
  Array.isArray(value) ? value.filter((item: Json): item is Body => isJsonObject(item)) : [];

function chatFrames({ reasoning = "", text = "", calls = [] }: Saying): readonly string[] {
  return [
    delta({ role: "assistant", content: "" }),
    ...pieces(reasoning).map((piece) => delta({ reasoning_content: piece })),
    ...pieces(text).map((piece) => delta({ content: piece })),
    ...calls.flatMap(({ id, name, args }, index) => [
      delta({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] }),
      ...pieces(args).map((piece) => delta({ tool_calls: [{ index, function: { arguments: piece } }] })),
    ]),
    finished(calls.length > 0 ? "tool_calls" : "stop"),
    usageFrame(),
  ]
    .map(data)
    .concat("data: [DONE]\n\n");
}

const chat = {
  frames: chatFrames,
  offence: ({ messages }: Body) => historyOffence(messages ?? null),
  reasoningIn: ({ messages }: Body) => list(messages).flatMap(({ reasoning_content: own }) => own ?? []),
};

export const compatible: Api = {
  ...chat,
  name: "@ai-sdk/openai-compatible",
  settings: {},
  model: (where) =>
    createOpenAICompatible({ name: "fake", baseURL: "http://fake/v1", apiKey: "k", includeUsage: true, ...where })(
      "m-1",
    ),
};

export const openaiChat: Api = {
  ...chat,
  name: "@ai-sdk/openai, chat completions",
  settings: {},
  // This package gives no reasoning of that API.
  frames: ({ reasoning: _, ...saying }) => chatFrames(saying),
  reasoningIn: () => [],
  model: (where) => createOpenAI({ baseURL: "http://fake/v1", apiKey: "k", ...where }).chat("gpt-4.1"),
};

export const openaiResponses: Api = {
  name: "@ai-sdk/openai, responses",
  settings: { providerOptions: { openai: { store: false } } },
  model: (where) => createOpenAI({ baseURL: "http://fake/v1", apiKey: "k", ...where }).responses("gpt-5"),
  frames({ reasoning, text = "", calls = [] }) {
    const items: Body[] = [];
    const frames: Body[] = [
      { type: "response.created", response: { id: "resp_1", created_at: 1, model: "gpt-5-0801" } },
    ];
    const item = (added: Body, done: Body, between: (index: number) => Body[]): void => {
      const output_index = items.push(done) - 1;
      frames.push({ type: "response.output_item.added", output_index, item: added });
      frames.push(...between(output_index), { type: "response.output_item.done", output_index, item: done });
    };
    if (reasoning !== undefined) {
      const id = `rs_${Buffer.from(reasoning).toString("hex").slice(0, 12)}`;
      const sealed = { id, type: "reasoning", encrypted_content: seal(reasoning) };
      item(
        { ...sealed, summary: [], encrypted_content: seal("") },
        { ...sealed, summary: summaryOf(reasoning) },
        () => {
          if (reasoning === "") return [];
          const at = { item_id: id, summary_index: 0 };
          return [
            { type: "response.reasoning_summary_part.added", ...at },
            ...pieces(reasoning).map((piece) => ({
              type: "response.reasoning_summary_text.delta",
              ...at,
              delta: piece,
            })),
            { type: "response.reasoning_summary_part.done", ...at },
          ];
        },
      );
    }
    if (text !== "") {
      const message = { type: "message", id: "msg_1", role: "assistant" };
      item({ ...message, content: [] }, { ...message, content: [] }, (output_index) =>
        pieces(text).map((piece) => ({
          ...{ type: "response.output_text.delta", item_id: "msg_1", output_index, content_index: 0, delta: piece },
        })),
      );
    }
    for (const { id, name, args } of calls) {
      const call = { type: "function_call", id: `fc_${id}`, call_id: id, name };
      item({ ...call, arguments: "" }, { ...call, arguments: args, status: "completed" }, (output_index) =>
        pieces(args).map((piece) => ({
          ...{ type: "response.function_call_arguments.delta", item_id: call.id, output_index, delta: piece },
        })),
      );
    }
    const usage = {
      ...{ input_tokens: 20, input_tokens_details: { cached_tokens: 16 } },
      ...{ output_tokens: 7, output_tokens_details: { reasoning_tokens: 3 } },
    };
    frames.push({ type: "response.completed", response: { incomplete_details: null, usage } });
    return frames.map(event);
  },
  offence({ input, store }) {
    const items = list(input);
    const open = new Set<string>();
    const seen = new Set<string>();
    for (const [i, item] of items.entries()) {
      if (item.type === "item_reference") {
        if (store === false || !/^(rs|msg)_/.test(string(item.id)))
          return `item ${i}: ${string(item.id)} is not stored`;
      } else if (item.type === "function_call") {
        const id = string(item.call_id);
        if (seen.has(id)) return `item ${i}: call ${id} twice`;
        seen.add(id);
        open.add(id);
      } else if (item.type === "function_call_output") {
        if (!open.delete(string(item.call_id))) return `item ${i}: output of no call, or a second one`;
      } else if (item.type === "reasoning") {
        const text = unseal(item.encrypted_content);
        if (store !== false || text === undefined) return `item ${i}: reasoning that is not sealed`;
        if (JSON.stringify(item.summary) !== JSON.stringify(summaryOf(text)))
          return `item ${i}: a seal of other reasoning`;
        const next = items[i + 1];
        const follows = next?.type === "function_call" || next?.role === "assistant";
        if (!follows) return `item ${i}: reasoning without what followed it`;
      } else if (open.size > 0) return `item ${i}: no output for ${[...open].join(", ")}`;
    }
    return open.size > 0 ? `no output for ${[...open].join(", ")}` : null;
  },
  reasoningIn: ({ input }) => list(input).filter(({ type }) => type === "reasoning"),
};

function summaryOf(text: string): Json {
  return text === "" ? [] : [{ type: "summary_text", text }];
}

export const anthropic: Api = {
  name: "@ai-sdk/anthropic",
  settings: {
    maxOutputTokens: 4_000,
    providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1_024 } } },
  },
  model: (where) => createAnthropic({ baseURL: "http://fake/v1", apiKey: "k", ...where })("claude-sonnet-4-5"),
  frames({ reasoning, text = "", calls = [] }) {
    const frames: Body[] = [
      {
        type: "message_start",
        message: {
          ...{ id: "msg_1", type: "message", role: "assistant", model: "claude-sonnet-4-5-0929", content: [] },
          ...{ stop_reason: null, stop_sequence: null },
          usage: { input_tokens: 4, output_tokens: 1, cache_read_input_tokens: 16, cache_creation_input_tokens: 0 },
        },
      },
      { type: "ping" },
    ];
    let blocks = 0;
    const block = (content_block: Body, deltas: readonly Body[]): void => {
      const index = blocks++;
      frames.push({ type: "content_block_start", index, content_block });
      frames.push(...deltas.map((one) => ({ type: "content_block_delta", index, delta: one })));
      frames.push({ type: "content_block_stop", index });
    };
    if (reasoning === "") block({ type: "redacted_thinking", data: seal("") }, []);
    else if (reasoning !== undefined) {
      block({ type: "thinking", thinking: "", signature: "" }, [
        ...pieces(reasoning).map((thinking) => ({ type: "thinking_delta", thinking })),
        { type: "signature_delta", signature: seal(reasoning) },
      ]);
    }
    if (text !== "")
      block(
        { type: "text", text: "" },
        pieces(text).map((piece) => ({ type: "text_delta", text: piece })),
      );
    for (const { id, name, args } of calls) {
      block(
        { type: "tool_use", id, name, input: {} },
        ["", ...pieces(args)].map((partial_json) => ({ type: "input_json_delta", partial_json })),
      );
    }
    const stop_reason = calls.length > 0 ? "tool_use" : "end_turn";
    frames.push({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 7 } });
    frames.push({ type: "message_stop" });
    return frames.map(event);
  },
  offence({ messages }) {
    const turns = list(messages);
    const seen = new Set<string>();
    let due: string[] = [];
    for (const [i, { role, content }] of turns.entries()) {
      const parts = list(content);
      const results = parts.filter(({ type }) => type === "tool_result").map(({ tool_use_id: id }) => string(id));
      if (role === "user") {
        if (results.join() !== due.join()) return `message ${i}: results [${results.join()}] for calls [${due.join()}]`;
        if (parts.slice(0, results.length).some(({ type }) => type !== "tool_result"))
          return `message ${i}: results come first`;
        due = [];
        continue;
      }
      if (due.length > 0) return `message ${i}: no results for [${due.join()}]`;
      if (turns[i - 1]?.role === "assistant") return `message ${i}: two answers in a row`;
      for (const part of parts) {
        if (part.type === "text" && part.text === "") return `message ${i}: empty text`;
        if (part.type === "thinking" && unseal(part.signature) !== part.thinking)
          return `message ${i}: invalid signature in thinking block`;
        if (part.type === "redacted_thinking" && unseal(part.data) !== "")
          return `message ${i}: invalid data in redacted_thinking block`;
        if (part.type !== "tool_use") continue;
        if (seen.has(string(part.id))) return `message ${i}: call ${string(part.id)} twice`;
        seen.add(string(part.id));
        due.push(string(part.id));
      }
    }
    return due.length > 0 ? `no results for [${due.join()}]` : null;
  },
  reasoningIn: ({ messages }) =>
    list(messages).flatMap(({ content }) => list(content).filter(({ type }) => /thinking/.test(string(type)))),
};

export const apis: readonly Api[] = [compatible, openaiChat, openaiResponses, anthropic];

/** How the bytes of an answer come. */
export interface Delivery {
  /** Lengths of the chunks, over and over; all in one by default. */
  readonly chunks?: readonly number[];
  readonly newline?: "\n" | "\r\n";
  /** After so many bytes the body ends, or its connection breaks. */
  readonly cutAfter?: number;
  readonly breaks?: boolean;
}

/** A body that comes so. */
export function body(text: string, { chunks = [], newline = "\n", cutAfter, breaks }: Delivery = {}): Response {
  const bytes = Buffer.from(newline === "\n" ? text : text.replaceAll("\n", newline)).subarray(0, cutAfter);
  let [at, i] = [0, 0];
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      const length = chunks.length === 0 ? bytes.length : Math.max(1, chunks[i++ % chunks.length] ?? 1);
      const chunk = bytes.subarray(at, at + length);
      at += chunk.length;
      if (chunk.length > 0) controller.enqueue(new Uint8Array(chunk));
      else if (breaks === true) controller.error(new TypeError("terminated"));
      else controller.close();
    },
  });
  return new Response(stream, { headers: { "content-type": "text/event-stream" } });
}

/** A service that answers each request that it takes with what the function makes of it, and keeps both. */
export function service(api: Api, answer: (body: Body, n: number) => Saying | Response) {
  const requests: Body[] = [];
  const refused: string[] = [];
  const fetch = (async (_url: unknown, init?: RequestInit) => {
    const request = JSON.parse(typeof init?.body === "string" ? init.body : "{}") as Body;
    const offence = api.offence(request);
    if (offence !== null) {
      refused.push(offence);
      const error = { type: "invalid_request_error", message: offence };
      return Response.json({ type: "error", error }, { status: 400 });
    }
    const said = answer(request, requests.push(request) - 1);
    return said instanceof Response ? said : body(api.frames(said).join(""));
  }) as typeof globalThis.fetch;
  return { fetch, requests, refused, model: api.model({ fetch }) };
}

/** The service on a loopback port: real sockets, so that another process can ask. */
export async function listening(api: Api, answer: (body: Body, n: number) => Saying | Response) {
  const { fetch, requests, refused } = service(api, answer);
  const keys: unknown[] = [];
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    keys.push(request.headers.authorization ?? request.headers["x-api-key"]);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const reply = await fetch("", { body: Buffer.concat(chunks).toString() });
    response.writeHead(reply.status, Object.fromEntries(reply.headers));
    for await (const chunk of reply.body ?? []) response.write(chunk);
    response.end();
  };
  const server = createServer((request, response) => {
    respond(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseURL: `http://127.0.0.1:${port}/v1`,
    requests,
    refused,
    /** With what each request has named itself. */
    keys,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
