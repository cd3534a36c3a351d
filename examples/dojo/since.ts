import type { ScriptRequest } from "perdure/testing";
import { z } from "zod";

const Result = z.object({
  type: z.literal("tool-result"),
  toolName: z.string(),
  output: z.object({ value: z.unknown() }),
});

/** What tools gave since the user last spoke, by tool. What a front end gave is text, and read as JSON where it is. */
export function resultsSince({ messages }: ScriptRequest): ReadonlyMap<string, unknown> {
  const turn = messages.slice(messages.findLastIndex(({ role }) => role === "user") + 1);
  const parts = turn.flatMap(({ content }) => (typeof content === "string" ? [] : content));
  return new Map(
    parts.flatMap((part) => {
      const { data } = Result.safeParse(part);
      return data === undefined ? [] : [[data.toolName, readJson(data.output.value)] as const];
    }),
  );
}

function readJson(value: unknown): unknown {
  if (typeof value !== "string") return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
