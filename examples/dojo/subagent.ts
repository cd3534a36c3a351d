import type { Emitting } from "perdure";

interface Delegate {
  /** Unique in the run, and the same when the work is repeated after a crash. */
  readonly id: string;
  readonly name: string;
  readonly description: string;
}

/** Says something in a subagent's name, from within a tool: `ctx.subagent` is for bodies. */
export async function delegate(
  ctx: Pick<Emitting<never>, "emit">,
  { id, name, description }: Delegate,
  text: AsyncIterable<string>,
): Promise<string> {
  const messageId = `${id}:m`;
  let said = "";
  ctx.emit({ type: "SUBAGENT_STARTED", subagentRunId: id, name, description });
  ctx.emit({ type: "TEXT_MESSAGE_START", messageId, role: "assistant", subagentRunId: id });
  for await (const delta of text) {
    said += delta;
    ctx.emit({ type: "TEXT_MESSAGE_CONTENT", messageId, delta, subagentRunId: id });
  }
  ctx.emit({ type: "TEXT_MESSAGE_END", messageId, subagentRunId: id });
  ctx.emit({ type: "SUBAGENT_FINISHED", subagentRunId: id });
  return said;
}
