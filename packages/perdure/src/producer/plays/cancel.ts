import { setTimeout as sleep } from "node:timers/promises";
import { Conversation, type Session, says } from "../conversation.ts";

/** Stops the run of a request by means of the server's own; the protocol has none. */
export type StopRun = (run: { readonly threadId: string; readonly runId: string }) => Promise<unknown>;

/** Long enough for a request to have arrived, milliseconds; one that has not, or a run that has ended, is stopped too late and tells nothing. */
const BEFORE_STOP = 50;

/** Stops a run while it goes on, and looks how it says that it ended. */
export async function playCancel(session: Session, prompt: string, stop: StopRun): Promise<void> {
  const { book } = session;
  if (!book.wants("run.cancelled")) return;
  const conversation = new Conversation(session);
  let hasEnded = false;
  const going = conversation.send("stopped", { messages: [says(prompt)] }).finally(() => {
    hasEnded = true;
  });
  await sleep(BEFORE_STOP);
  if (!hasEnded) await stop({ threadId: conversation.threadId, runId: conversation.last.input.runId });
  const isLate = hasEnded;
  const { ending, name } = await going;
  if (isLate) return;
  book.check(
    "run.cancelled",
    { input: name },
    ending === "success" ? "the run was stopped, and ended as success" : undefined,
  );
}
