import type { Json } from "../protocol/json.ts";
import type { ToolDefinition } from "./definition.ts";
import type { DynTool } from "./dyn-tool.ts";
import { erase } from "./erase.ts";
import { jsonSchema } from "./json-schema.ts";

const nothing = jsonSchema<Json>(true);

type Inline = Pick<ToolDefinition, "name" | "effect" | "timeout" | "settle" | "retry" | "reconcile" | "call">;

/** A step that is written where it is needed, as a tool: so it has attempts, a key, time limits and `reconcile` like one. */
export function inlineTool(definition: Inline): DynTool {
  // Whoever begins two at a time has said so; nothing has to be kept apart.
  return erase({ ...definition, description: "A step of a custom loop.", input: nothing, parallel: true });
}
