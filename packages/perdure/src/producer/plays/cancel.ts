import { Conversation, type Session, says } from "../conversation.ts";

/** How a run is stopped: by means of the server's own, since the protocol has none. */
export interface Cancelling {
  /** What the user says to begin a run that is still going on when its first event is there. Default: the prompt. */
  readonly says?: string;
  readonly stop: (run: { readonly threadId: string; readonly runId: string }) => Promise<unknown>;
}

/** Stops a run when it has begun, and looks how it says that it ended. */
export async function playCancel(session: Session, prompt: string, cancelling: Cancelling): Promise<void> {
  const { book } = session;
  if (!book.wants("run.cancelled")) return;
  const conversation = new Conversation(session);
  let hasEnded = false;
  let stopping: Promise<boolean> | undefined;
  const heard = (): void => {
    const run = { threadId: conversation.threadId, runId: conversation.last.input.runId };
    // A run that has ended by then was stopped too late, which tells nothing.
    stopping = cancelling.stop(run).then(() => !hasEnded);
  };
  const messages = [says(cancelling.says ?? prompt)];
  const { ending, name } = await conversation.send("stopped", { messages }, { heard });
  hasEnded = true;
  if (ending === "none" || ending === "error" || ending === "cancelled" || (await stopping) === true) {
    book.check(
      "run.cancelled",
      { input: name },
      ending === "success" ? "the run was stopped, and ended as success" : undefined,
    );
  }
}
