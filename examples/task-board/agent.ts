import { agent, type RunContext } from "perdure";
import { z } from "zod";

const Board = z.object({
  tasks: z.array(z.object({ title: z.string(), done: z.boolean() })),
});
type Board = z.infer<typeof Board>;

const AddTask = z.object({ title: z.string().min(1) });
const Clear = z.object({ approved: z.boolean() });

/**
 * A task board that a person and an agent share. Scripted, so that it needs no key: "add …" adds a task, "clear" asks before it empties
 * the board, anything else is answered in words.
 */
export const taskBoard = agent({
  name: "task-board",
  state: { schema: Board, initial: (): Board => ({ tasks: [] }) },
  async run(ctx) {
    const answer = ctx.resumeFor(CLEAR, Clear);
    if (answer) return clearBoard(ctx, answer.status === "resolved" && answer.payload?.approved === true);
    const text = ctx.lastUserText().trim();
    if (/^add\b/i.test(text)) return addTask(ctx, text.replace(/^add\s*/i, ""));
    if (/^clear\b/i.test(text)) return askToClear(ctx);
    return speak(ctx, `There are ${ctx.state.tasks.length} tasks. Say "add TITLE" or "clear".`);
  },
});

const CLEAR = "clear-board";

async function addTask(ctx: RunContext<Board>, title: string): Promise<void> {
  await speak(ctx, "On it.");
  const call = ctx.toolCall("add_task");
  // Arguments arrive in pieces from a real model.
  call.args('{"title":');
  call.args(`${JSON.stringify(title || "something")}}`);
  const task = call.parseArgs(AddTask);
  // Published while the call is open: a client watches the task land.
  call.updateState((board) => board.tasks.push({ title: task.title, done: false }));
  call.resultJson({ ok: true, tasks: ctx.state.tasks.length });
  await speak(ctx, `Added "${task.title}".`);
}

async function askToClear(ctx: RunContext<Board>): Promise<never> {
  const call = ctx.toolCall("clear_board");
  call.end();
  return ctx.interrupt({
    id: CLEAR,
    toolCallId: call.id,
    message: `Remove all ${ctx.state.tasks.length} tasks?`,
    schema: Clear,
  });
}

async function clearBoard(ctx: RunContext<Board>, approved: boolean): Promise<void> {
  const asked = ctx.messages.findLast((message) => message.role === "assistant" && message.toolCalls?.some(isClear));
  const call = asked?.role === "assistant" ? asked.toolCalls?.find(isClear) : undefined;
  if (approved) {
    ctx.updateState((board) => {
      board.tasks = [];
    });
  }
  if (call) ctx.toolResultJson(call.id, { cleared: approved });
  await speak(ctx, approved ? "The board is empty." : "Nothing was removed.");
}

function isClear(call: { function: { name: string } }): boolean {
  return call.function.name === "clear_board";
}

/** Streams words as a model would. */
async function speak(ctx: RunContext<Board>, text: string): Promise<void> {
  using message = ctx.message();
  for (const word of text.split(/(?<= )/)) {
    message.delta(word);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
