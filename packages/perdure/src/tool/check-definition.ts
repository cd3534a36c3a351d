import { parseDuration } from "../protocol/duration.ts";
import { isSchema, NO_SCHEMA } from "../protocol/schema.ts";
import type { Duration, Effect } from "../protocol/words.ts";
import type { ToolDefinition } from "./definition.ts";
import type { ToolPolicy } from "./dyn-tool.ts";
import { ToolDefinitionError } from "./errors.ts";

/** What every model API takes as a tool's name. */
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

const EFFECTS: Readonly<Record<Effect, string>> = {
  read: "changes nothing",
  idempotent: "changes nothing more under the same key",
  write: "happens again",
};

const DEFAULTS = { timeout: "5m", settle: "10s", keyWait: "60s" } as const;

/** @throws {@link ToolDefinitionError} when a name cannot be one */
export function checkName(name: unknown, whose: string): void {
  if (typeof name === "string" && NAME.test(name)) return;
  throw new ToolDefinitionError(whose, `the name ${JSON.stringify(name)} must be 1 to 64 of A-Z a-z 0-9 _ -`);
}

/**
 * Checks what a definition says about itself, for those that no compiler has checked, and fills in its limits.
 *
 * @throws {@link ToolDefinitionError}
 */
export function readPolicy(tool: ToolDefinition): ToolPolicy {
  const whose = String(tool.name);
  for (const name of [tool.name, ...(tool.aliases ?? [])]) checkName(name, whose);
  if (typeof tool.description !== "string" || tool.description.trim() === "") {
    throw new ToolDefinitionError(whose, "it needs a description, by which the model chooses it");
  }
  if (!Object.hasOwn(EFFECTS, tool.effect)) {
    const known = Object.entries(EFFECTS).map(([effect, meaning]) => `"${effect}" (run again it ${meaning})`);
    throw new ToolDefinitionError(
      whose,
      `its effect is ${JSON.stringify(tool.effect)}; it must be ${known.join(", ")}`,
    );
  }
  if (typeof tool.call !== "function") throw new ToolDefinitionError(whose, "it needs a `call`");
  for (const member of ["input", "output", "answer"] as const) checkSchema(tool, member);

  const attempts = tool.retry?.attempts ?? 3;
  if (!Number.isInteger(attempts) || attempts < 1) {
    throw new ToolDefinitionError(whose, `retry.attempts is ${attempts}; it must be a whole number of 1 or more`);
  }
  const ms = (member: keyof typeof DEFAULTS): number => readDuration(whose, member, tool[member] ?? DEFAULTS[member]);
  return {
    timeout: ms("timeout"),
    settle: ms("settle"),
    keyWait: ms("keyWait"),
    parallel: tool.parallel ?? tool.effect === "read",
    attempts,
  };
}

function checkSchema(tool: ToolDefinition, member: "input" | "output" | "answer"): void {
  const schema: unknown = tool[member];
  if (schema === undefined && member !== "input") return;
  if (!isSchema(schema)) throw new ToolDefinitionError(tool.name, `its ${member} ${NO_SCHEMA}`);
}

function readDuration(whose: string, member: string, duration: Duration): number {
  try {
    return parseDuration(duration, member);
  } catch (cause) {
    throw new ToolDefinitionError(whose, cause instanceof Error ? cause.message : String(cause), { cause });
  }
}
