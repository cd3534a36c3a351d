/** The one border where what a server, or the way to it, fails of becomes ours: whether a call was applied, and whether to try again. */
import { ProtocolError, ProtocolErrorCode, SdkError, SdkErrorCode, SdkHttpError } from "@modelcontextprotocol/client";
import { PerdureError } from "../../protocol/errors.ts";
import { HandlerError } from "../../tool/errors.ts";
import type { McpToolOverride } from "./options.ts";

/** There is no connection to a server, so nothing was asked of it. */
export class McpConnectionError extends PerdureError {
  override readonly name = "McpConnectionError";
  constructor(
    readonly server: string,
    cause: unknown,
    /** What the server's process said before it ended. */
    lastWords = "",
  ) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const said = lastWords.trim() === "" ? "" : `; it wrote: ${lastWords.trim()}`;
    super("MCP_UNAVAILABLE", `the MCP server ${server} cannot be reached: ${why}${said}`, { cause });
  }
}

/** Refused before the method was looked at. Not `InvalidParams`: servers say that, too, of what their tool has returned. */
const NOT_RUN: ReadonlySet<number> = new Set([
  ProtocolErrorCode.ParseError,
  ProtocolErrorCode.InvalidRequest,
  ProtocolErrorCode.MethodNotFound,
]);

/** The statuses with which a server refuses a request that it does not work on. */
const REFUSED: ReadonlySet<number> = new Set([400, 401, 403, 404, 405, 406, 411, 413, 415, 421, 429, 431]);

/** Nobody was there to take the request. */
const NOBODY = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

/** What stands in an answer that no server gave: the stream in which it should have come has ended without it. */
export const STREAM_ENDED = "perdure:stream-ended";

export interface FailedCall {
  readonly server: string;
  readonly tool: string;
  readonly errorsMean: NonNullable<McpToolOverride["errorsMean"]>;
}

/** What went wrong with a call, as a tool says it. The raw text stays in `cause`, but for the server's own words to the model. */
export function toHandlerError(error: unknown, { server, tool, errorsMean }: FailedCall): HandlerError {
  if (error instanceof HandlerError) return error;
  const what = `tool \`${tool}\` of the MCP server ${server}`;
  const fail = (why: string, applied: "no" | "unknown", retryable: boolean, code: string): HandlerError =>
    new HandlerError(`${what} ${why}`, { applied, retryable, code, cause: error });
  if (error instanceof McpConnectionError) return fail("cannot be reached now", "no", true, "MCP_UNAVAILABLE");
  if (error instanceof ProtocolError && error.data !== STREAM_ENDED) {
    const applied = NOT_RUN.has(error.code) || errorsMean === "notApplied" ? "no" : "unknown";
    return fail(`refused the call: ${error.message}`, applied, false, "MCP_REFUSED");
  }
  if (error instanceof SdkHttpError) {
    const { status } = error;
    const applied = REFUSED.has(status) ? "no" : "unknown";
    return fail(`answered with HTTP ${status}`, applied, status === 429 || status >= 500, "MCP_HTTP");
  }
  if (error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout) {
    return fail("did not answer in time", "unknown", true, "MCP_TIMEOUT");
  }
  if (error instanceof SdkError && error.code === SdkErrorCode.NotConnected) {
    return fail("cannot be reached now", "no", true, "MCP_UNAVAILABLE");
  }
  if (isNobody(error)) return fail("cannot be reached now", "no", true, "MCP_UNAVAILABLE");
  return fail("was cut off in the middle of the call", "unknown", true, "MCP_CUT");
}

/** Whether the server no longer knows the session: then it has not looked at the request. */
export function isSessionLost(error: unknown): boolean {
  if (!(error instanceof SdkHttpError)) return false;
  return error.status === 404 || (error.status === 400 && /session/i.test(error.message));
}

function isNobody(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    if ("code" in at && typeof at.code === "string" && NOBODY.test(at.code)) return true;
  }
  return false;
}
