import { checkName } from "./check-definition.ts";
import type { ToolDefinition } from "./definition.ts";
import type { DynTool } from "./dyn-tool.ts";
import { erase } from "./erase.ts";
import { ToolDefinitionError } from "./errors.ts";

/** Tools by name. Iterates over them in the order in which they were given. */
export interface ToolRegistry extends Iterable<DynTool> {
  readonly size: number;
  /** The tool of this name, or the one that was called so before. */
  get(name: string): DynTool | undefined;
}

/**
 * Collects tools, typed or erased.
 *
 * @throws {@link ToolDefinitionError} when two share a name or alias, or a name is not 1 to 64 of `A-Z a-z 0-9 _ -`
 */
export function registry(tools: Iterable<ToolDefinition | DynTool>): ToolRegistry {
  const all: DynTool[] = [];
  const byName = new Map<string, DynTool>();
  for (const given of tools) {
    const tool = "callJson" in given ? given : erase(given);
    for (const name of [tool.name, ...tool.aliases]) {
      checkName(name, tool.name);
      const other = byName.get(name);
      if (other) {
        const who = other === tool ? "itself" : `tool \`${other.name}\``;
        throw new ToolDefinitionError(
          tool.name,
          `the name "${name}" is taken by ${who}; names and aliases must differ`,
        );
      }
      byName.set(name, tool);
    }
    all.push(tool);
  }
  return {
    size: all.length,
    get: (name) => byName.get(name),
    [Symbol.iterator]: () => all[Symbol.iterator](),
  };
}
