/**
 * Calls of a server's tools, from their beginning to their end, across the questions that the server asks.
 *
 * 1. A call is sent once. Only when the server says that it does not know our session, and so has not looked at it, is it sent once more.
 * 2. A call whose server waits for a human stays open here; its step is suspended. Where it is resumed in another process, what may run again
 *    is called again, and what was answered is answered again. A write that may not is unknown.
 */
import { type CallToolResult, isInputRequiredResult, type Progress, type Tool } from "@modelcontextprotocol/client";
import { canonicalJson } from "../../protocol/canonical.ts";
import type { Json } from "../../protocol/json.ts";
import type { Effect } from "../../protocol/words.ts";
import type { ToolContext } from "../../tool/definition.ts";
import { HandlerError } from "../../tool/errors.ts";
import type { Reply, ToolOutcome } from "../../tool/outcome.ts";
import type { Connection } from "./connection.ts";
import {
  answered,
  type Exchange,
  elicitResult,
  formOf,
  type Memo,
  openRequest,
  readMemo,
  suspension,
} from "./elicitation.ts";
import { type FailedCall, isSessionLost, McpConnectionError, toHandlerError } from "./failures.ts";
import { OpenCall } from "./open-call.ts";
import { outputOf } from "./results.ts";

/** Where a call's idempotency key stands in its `_meta`. */
export const KEY_META = "perdure/idempotencyKey";

/** Where the run and its epoch stand there, for servers that can refuse an outdated driver. */
export const FENCE_META = "perdure/fence";

/** How often a server may answer that it wants to be asked again. */
const ROUNDS = 10;

/** One attempt of one of our tools that is a server's. */
export interface RemoteCall {
  readonly tool: Tool;
  readonly input: { readonly [name: string]: Json };
  readonly ctx: ToolContext;
  readonly effect: Effect;
  readonly errorsMean: FailedCall["errorsMean"];
  /** Milliseconds. */
  readonly idleTimeout: number | undefined;
}

/** The way to a server. */
export interface Line {
  readonly name: string;
  connected(signal: AbortSignal): Promise<Connection>;
  /** The server does not know it any more. */
  forget(connection: Connection): Promise<void>;
}

/** The server asks: thrown to whoever made the attempt, which ends with it. */
export class Asks extends Error {
  constructor(readonly outcome: ToolOutcome<Json>) {
    super("the server asks");
  }
}

/** What a call has been through. */
interface Past {
  readonly key: string;
  readonly said: readonly Exchange[];
  /** What will be asked again, and is answered as it was. */
  readonly replay: readonly Exchange[];
  /** What a request of 2026 is made again with. */
  readonly again?: { readonly inputResponses?: object; readonly requestState?: string };
  readonly round: number;
}

export class Calls {
  /** Those that wait for a human, by run and path. */
  readonly #waiting = new Map<string, OpenCall>();
  readonly #line: Line;

  constructor(line: Line) {
    this.#line = line;
  }

  /** @throws {@link Asks}, {@link HandlerError} */
  async call(remote: RemoteCall): Promise<Json> {
    const key = remote.ctx.idempotencyKey ?? "";
    return await this.#guarded(remote, () => this.#start(remote, { key, said: [], replay: [], round: 1 }));
  }

  /** A human has answered what the server has asked, or dismissed it. @throws those of {@link call} */
  async goOn(reply: Reply, remote: RemoteCall): Promise<Json> {
    return await this.#guarded(remote, () => this.#resume(readMemo(reply), reply, remote));
  }

  /** The connection is closed, and with it what waits. */
  clear(): void {
    this.#waiting.clear();
  }

  async #resume(memo: Memo, reply: Reply, remote: RemoteCall): Promise<Json> {
    const answer = elicitResult(reply);
    const said = [...memo.said, { question: memo.asks, reply: answer }];
    const past: Past = { key: memo.key, said, replay: [], round: 1 };
    if (memo.open !== undefined) {
      const { at, requests, responses, requestState } = answered(memo.open, answer);
      if (at !== undefined)
        throw this.#asks(formOf(requests[at]) ?? null, past, remote, { ...memo.open, responses, at });
      const again = { inputResponses: responses, ...(requestState !== undefined && { requestState }) };
      return await this.#start(remote, { ...past, again });
    }
    const id = idOf(remote);
    const open = this.#waiting.get(id);
    if (open !== undefined) {
      this.#waiting.delete(id);
      open.answer(answer);
      return await this.#follow(open, remote, past);
    }
    // A later attempt of a write is made only when it is known that nothing was applied.
    if (remote.effect === "write" && remote.ctx.attempt === memo.attempt + 1) {
      const what = `tool \`${remote.tool.name}\` of the MCP server ${this.#line.name}`;
      throw new HandlerError(`${what} waited for an answer, and the process in which it did is gone`, {
        code: "MCP_CUT",
      });
    }
    return await this.#start(remote, { ...past, replay: said });
  }

  async #start(remote: RemoteCall, past: Past): Promise<Json> {
    const { tool, input, ctx, idleTimeout } = remote;
    for (let isAgain = false; ; isAgain = true) {
      const connection = await this.#line.connected(ctx.signal).catch((error: unknown) => {
        throw ctx.signal.aborted ? new McpConnectionError(this.#line.name, error) : error;
      });
      const call = new OpenCall(idleTimeout);
      const params = { name: tool.name, arguments: { ...input }, _meta: metaOf(remote, past.key), ...past.again };
      connection.send(call, tool, params);
      try {
        return await this.#follow(call, remote, past);
      } catch (error) {
        if (!isSessionLost(error)) throw error;
        await this.#line.forget(connection);
        if (isAgain) throw error;
      }
    }
  }

  async #follow(call: OpenCall, remote: RemoteCall, past: Past): Promise<Json> {
    let replay = past.replay;
    for (;;) {
      const next = await call.next(remote.ctx.signal, progressOf(remote));
      if (next.is === "result") return await this.#ended(next.result, remote, past);
      const question = canonicalJson(next.params);
      const known = replay.find((one) => one.question === question);
      if (known === undefined) {
        this.#waiting.set(idOf(remote), call);
        throw this.#asks(next.params, past, remote);
      }
      replay = replay.filter((one) => one !== known);
      call.answer(known.reply);
    }
  }

  async #ended(result: CallToolResult, remote: RemoteCall, past: Past): Promise<Json> {
    // The client's types do not say so: asked for with `allowInputRequired`, this is what a server of 2026 may answer.
    const answer: unknown = result;
    if (!isInputRequiredResult(answer)) return outputOf(result, this.#failed(remote));
    const open = openRequest(answer);
    if (open !== undefined) {
      const strange = Object.values(open.requests).find((request) => formOf(request) === undefined);
      if (strange !== undefined) throw this.#cannot(remote, "asks for something that nobody can give it here");
      throw this.#asks(formOf(open.requests[open.at]) ?? null, past, remote, open);
    }
    if (past.round >= ROUNDS) throw this.#cannot(remote, `wants to be asked again, ${ROUNDS} times by now`);
    const { requestState } = answer;
    return await this.#start(remote, {
      ...past,
      round: past.round + 1,
      again: requestState === undefined ? {} : { requestState },
    });
  }

  #asks(params: Json, { key, said }: Past, { ctx }: RemoteCall, open?: Memo["open"]): Asks {
    const memo = { key, attempt: ctx.attempt, said, ...(open !== undefined && { open }) };
    return new Asks(suspension(params, memo, this.#line.name));
  }

  #cannot({ tool }: RemoteCall, why: string): HandlerError {
    return new HandlerError(`tool \`${tool.name}\` of the MCP server ${this.#line.name} ${why}`, {
      code: "MCP_REFUSED",
    });
  }

  #failed({ tool, errorsMean }: RemoteCall): FailedCall {
    return { server: this.#line.name, tool: tool.name, errorsMean };
  }

  async #guarded(remote: RemoteCall, work: () => Promise<Json>): Promise<Json> {
    try {
      return await work();
    } catch (error) {
      throw error instanceof Asks ? error : toHandlerError(error, this.#failed(remote));
    }
  }
}

function idOf({ ctx }: RemoteCall): string {
  return `${ctx.run} ${ctx.path}`;
}

function metaOf({ effect, ctx: { fence } }: RemoteCall, key: string): Record<string, unknown> {
  return effect === "read" ? {} : { [KEY_META]: key, [FENCE_META]: { run: fence.run, epoch: fence.epoch } };
}

function progressOf({ ctx }: RemoteCall): (progress: Progress) => void {
  return ({ progress, total, message }) => {
    // A server may go on about a call whose attempt is over.
    if (ctx.signal.aborted) return;
    ctx.progress({ progress, ...(total !== undefined && { total }), ...(message !== undefined && { message }) });
  };
}
