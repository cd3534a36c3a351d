import type { CallToolResult } from "@modelcontextprotocol/client";
import { type Json, toJson } from "../../protocol/json.ts";
import { HandlerError } from "../../tool/errors.ts";
import type { FailedCall } from "./failures.ts";

/**
 * What a server answered, as the tool's output: its structured content where it gives some; else text, where it is text alone; else the parts
 * as they are.
 *
 * @throws {@link HandlerError} for an answer that is an error; the model reads what it says
 */
export function outputOf({ content, structuredContent, isError }: CallToolResult, failed: FailedCall): Json {
  if (isError) {
    const said = textOf(content);
    throw new HandlerError(said === "" ? `tool \`${failed.tool}\` failed and did not say why` : said, {
      applied: failed.errorsMean === "notApplied" ? "no" : "unknown",
      code: "MCP_TOOL_ERROR",
    });
  }
  if (structuredContent !== undefined) return toJson(structuredContent);
  if (content.every(({ type }) => type === "text")) return textOf(content);
  return toJson({ content });
}

function textOf(content: CallToolResult["content"]): string {
  return content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}
