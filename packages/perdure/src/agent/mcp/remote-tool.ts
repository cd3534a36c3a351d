/** A server's tool as one of ours. What it does to the world is the operator's word, else the server's, else the worst. */
import type { Tool } from "@modelcontextprotocol/client";
import { parseDuration } from "../../protocol/duration.ts";
import { isJsonObject, type Json } from "../../protocol/json.ts";
import type { Effect } from "../../protocol/words.ts";
import type { ToolContext } from "../../tool/definition.ts";
import type { DynTool } from "../../tool/dyn-tool.ts";
import { erase } from "../../tool/erase.ts";
import { jsonSchema } from "../../tool/json-schema.ts";
import type { McpCommonOptions, McpToolOverride } from "./options.ts";

/** What calls a tool of a server. */
export interface RemoteCall {
  readonly tool: Tool;
  readonly input: { readonly [name: string]: Json };
  readonly ctx: ToolContext;
  readonly effect: Effect;
  readonly errorsMean: NonNullable<McpToolOverride["errorsMean"]>;
  /** Milliseconds. */
  readonly idleTimeout: number | undefined;
}

/**
 * @param call - asks the server
 * @throws {@link ToolDefinitionError}, {@link JsonSchemaError} when no model could call it
 */
export function remoteTool(
  tool: Tool,
  { name: prefix, tools = {}, defaults = {} }: McpCommonOptions,
  call: (remote: RemoteCall) => Promise<Json>,
): DynTool {
  const own = Object.hasOwn(tools, tool.name) ? tools[tool.name] : undefined;
  const said = { ...defaults, ...own };
  const { name, description, errorsMean = "unknown", idleTimeout, effect = effectOf(tool), ...rest } = said;
  const silence = idleTimeout === undefined ? undefined : parseDuration(idleTimeout, `idleTimeout of "${tool.name}"`);
  return erase({
    ...rest,
    name: localName(prefix, name ?? tool.name),
    description: description ?? describe(tool),
    effect,
    input: jsonSchema(tool.inputSchema),
    ...(tool.outputSchema !== undefined && { output: jsonSchema(tool.outputSchema) }),
    call: (input, ctx) =>
      call({
        ...{ tool, effect, errorsMean, idleTimeout: silence, ctx: ctx as ToolContext },
        // What is no object does not fit its schema, which has to describe one.
        input: isJsonObject(input as Json) ? (input as { readonly [name: string]: Json }) : {},
      }),
  });
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
