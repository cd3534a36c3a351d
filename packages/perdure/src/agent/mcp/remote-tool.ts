/** A server's tool as one of ours. What it does to the world is the operator's word, else the server's, else the worst. */
import type { Tool } from "@modelcontextprotocol/client";
import { parseDuration } from "../../protocol/duration.ts";
import { isJsonObject, type Json, toJson } from "../../protocol/json.ts";
import type { Effect } from "../../protocol/words.ts";
import type { ToolContext } from "../../tool/definition.ts";
import type { DynTool } from "../../tool/dyn-tool.ts";
import { erase } from "../../tool/erase.ts";
import { HandlerError } from "../../tool/errors.ts";
import { jsonSchema } from "../../tool/json-schema.ts";
import type { Reply, ToolOutcome } from "../../tool/outcome.ts";
import { Asks, type Calls, type RemoteCall } from "./calls.ts";
import type { McpCommonOptions } from "./options.ts";

/** @throws {@link ToolDefinitionError}, {@link JsonSchemaError} when no model could call it */
export function remoteTool(
  tool: Tool,
  { name: prefix, tools = {}, defaults = {} }: McpCommonOptions,
  calls: Calls,
): DynTool {
  const own = Object.hasOwn(tools, tool.name) ? tools[tool.name] : undefined;
  const said = { ...defaults, ...own };
  const { name, description, errorsMean = "unknown", idleTimeout, effect = effectOf(tool), ...rest } = said;
  const silence = idleTimeout === undefined ? undefined : parseDuration(idleTimeout, `idleTimeout of "${tool.name}"`);
  const remote = (input: unknown, ctx: ToolContext<unknown>): RemoteCall => ({
    ...{ tool, effect, errorsMean, idleTimeout: silence, ctx: ctx as ToolContext },
    // What is no object does not fit its schema, which has to describe one.
    input: isJsonObject(input as Json) ? (input as { readonly [name: string]: Json }) : {},
  });
  const erased = erase({
    ...rest,
    name: localName(prefix, name ?? tool.name),
    description: description ?? describe(tool),
    effect,
    input: jsonSchema(tool.inputSchema),
    ...(tool.outputSchema !== undefined && { output: jsonSchema(tool.outputSchema) }),
    call: (input, ctx) => calls.call(remote(input, ctx)),
    resume: (reply, input, ctx) => calls.goOn(reply as unknown as Reply, remote(input, ctx)),
  });
  return Object.freeze({
    ...erased,
    callJson: (input: Json, ctx: ToolContext) => orAsks(erased.callJson(input, ctx)),
    goOnJson: (reply: Reply, input: Json, ctx: ToolContext) =>
      orAsks(erased.resumeJson(toJson(reply), input, ctx).then((output) => ({ type: "output", output }) as const)),
  });
}

/** A question leaves the tool's body as an error, for only so can it say what an answer has to look like. */
async function orAsks(outcome: Promise<ToolOutcome<Json>>): Promise<ToolOutcome<Json>> {
  try {
    return await outcome;
  } catch (error) {
    const cause = error instanceof HandlerError ? error.cause : undefined;
    if (cause instanceof Asks) return cause.outcome;
    throw error;
  }
}

/** Servers may use dots and slashes, which model APIs refuse. */
function localName(prefix: string | undefined, name: string): string {
  return `${prefix === undefined ? "" : `${prefix}_`}${name.replaceAll(/[^A-Za-z0-9_-]/g, "_")}`;
}

function effectOf({ annotations = {} }: Tool): Effect {
  if (annotations.readOnlyHint === true) return "read";
  return annotations.idempotentHint === true ? "idempotent" : "write";
}

function describe({ name, title, description, annotations }: Tool): string {
  return [description, title, annotations?.title].find((text) => text !== undefined && text.trim() !== "") ?? name;
}
