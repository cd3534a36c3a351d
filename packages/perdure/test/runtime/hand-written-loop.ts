/** The built-in loop as code of a user's would have it. */
import type { LoopContext, ModelCallOptions, ModelTurn, ToolResult } from "../../src/index.ts";
import type { Message } from "../../src/protocol/events.ts";
import type { Json } from "../../src/protocol/json.ts";

type Conversation = readonly (Message | ModelTurn | ToolResult)[];

/** Asks a model, and runs what it calls, side by side, until it has nothing to call. @returns what it has said last */
export async function converse(
  ctx: LoopContext<Json>,
  asking: Omit<ModelCallOptions, "prompt" | "messages">,
  said: Conversation,
): Promise<string> {
  for (let messages = said; ; ) {
    const turn = await ctx.model({ ...asking, messages });
    if (turn.calls.length === 0) return turn.text;
    const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
    messages = [...messages, turn, ...results];
  }
}
