/**
 * What a server asks while one of its calls goes on, as a question that outlives this process.
 *
 * 1. Until 2025 a server asks in the middle of a call and waits. The call is left open in this process, and its step is suspended: the answer
 *    goes to the open call. Where that has died with its process, a tool that may run again is called again under the same key, and what was
 *    answered is answered again; of a write nobody knows how far it came.
 * 2. In 2026 a question is the end of a request, and the answer the beginning of another one, with the server's own state. Nothing is open.
 */
import type { ElicitResult, InputRequiredResult } from "@modelcontextprotocol/client";
import { canonicalJson } from "../../protocol/canonical.ts";
import { isJsonObject, type Json, toJson } from "../../protocol/json.ts";
import type { Reply, ToolOutcome } from "../../tool/outcome.ts";

/** What a server has asked, and what was answered. */
export interface Exchange {
  /** Canonical text of the question: it is the same when it is asked again. */
  readonly question: string;
  readonly reply: ElicitResult;
}

/** What a suspended call has to know again. */
export interface Memo {
  /** The key of the call's first attempt; that of a resumed one is another. */
  readonly key: string;
  /** The attempt that has asked. */
  readonly attempt: number;
  /** Canonical text of what is asked. */
  readonly asks: string;
  /** Before that. */
  readonly said: readonly Exchange[];
  /** A request of 2026 that is not whole yet. */
  readonly open?: OpenRequest;
}

export interface OpenRequest {
  readonly requests: { readonly [id: string]: Json };
  readonly responses: { readonly [id: string]: ElicitResult };
  /** Which of them is asked now. */
  readonly at: string;
  readonly requestState?: string;
}

type Suspended = Extract<ToolOutcome<Json>, { type: "suspend" }>;

export function suspension(params: Json, memo: Omit<Memo, "asks">, server: string): Suspended {
  const { message, requestedSchema } = isJsonObject(params) ? params : {};
  return {
    type: "suspend",
    message: typeof message === "string" ? message : `the MCP server ${server} asks`,
    answerSchema: requestedSchema ?? true,
    metadata: { server },
    memo: toJson({ ...memo, asks: canonicalJson(params) }),
  };
}

export function readMemo(reply: Reply): Memo {
  // Written by `suspension`, and by nobody else.
  return reply.memo as unknown as Memo;
}

/** An answer as MCP has it. Who dismisses a question has not refused what it asks. */
export function elicitResult({ status, payload }: Reply): ElicitResult {
  if (status !== "resolved") return { action: "cancel" };
  return {
    action: "accept",
    ...(isJsonObject(payload) && { content: payload as NonNullable<ElicitResult["content"]> }),
  };
}

/** The question in a request of a server's; undefined where it is none that a human could answer here. */
export function formOf(request: Json | undefined): Json | undefined {
  if (!isJsonObject(request) || request.method !== "elicitation/create" || !isJsonObject(request.params))
    return undefined;
  return request.params.mode === "url" ? undefined : request.params;
}

/** What a request of 2026 needs before it can be made again. @returns undefined where it needs nothing, or nothing of a human */
export function openRequest({ inputRequests = {}, requestState }: InputRequiredResult): OpenRequest | undefined {
  const requests = toJson(inputRequests) as { readonly [id: string]: Json };
  const [at] = Object.keys(requests);
  if (at === undefined) return undefined;
  return { requests, responses: {}, at, ...(requestState !== undefined && { requestState }) };
}

/** The same with an answer. `at` is the next that is asked; undefined when all are answered. */
export function answered(
  open: OpenRequest,
  reply: ElicitResult,
): Omit<OpenRequest, "at"> & { readonly at: string | undefined } {
  const responses = { ...open.responses, [open.at]: reply };
  return { ...open, responses, at: Object.keys(open.requests).find((id) => !Object.hasOwn(responses, id)) };
}
