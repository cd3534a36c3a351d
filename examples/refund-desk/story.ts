/**
 * The story that `npm start` plays: a run streams to the official client, its server is killed inside a refund, another one goes on, a human
 * approves. Nothing here knows how Perdure does it: it starts and kills processes, and reads what any client could.
 */
import process from "node:process";
import { type AgentStateMutation, type AgentSubscriber, HttpAgent } from "@ag-ui/client";
import { euros, type LedgerRow } from "./books.ts";
import { type ServerOptions, ServerProcess } from "./server-process.ts";
import { bold, dim, endLine, green, label, print, red, shortened, write } from "./terminal.ts";

export const REQUEST = "I am anna@example.com. Both lamps came broken: please refund A-1001 and A-1002.";

export const THREAD = "story";

export interface Played {
  readonly client: HttpAgent;
  /** Where the second server listens. */
  readonly url: string;
}

/**
 * @param where - the port and the folder, which two servers share one after the other
 * @param started - gets each server, so that none is left behind
 */
export async function playStory(where: ServerOptions, started: (server: ServerProcess) => void): Promise<Played> {
  const first = await ServerProcess.start({ ...where, hold: true });
  started(first);
  const client = new HttpAgent({ url: `${first.url}/agents/refund-desk`, threadId: THREAD });

  print(bold(`1. A customer writes, the agent works. Server: process ${first.pid}.`));
  print(`${label("customer")}${REQUEST}`);
  client.addMessage({ id: "u1", role: "user", content: REQUEST });
  using _ = ignoreCutSocket();
  let failure: Error | undefined;
  let sawCall = (): void => {};
  const callSeen = new Promise<void>((resolve) => {
    sawCall = resolve;
  });
  const run = client.runAgent(
    { runId: "r1" },
    {
      ...shown(client),
      onToolCallEndEvent({ toolCallName, toolCallArgs }) {
        printCall(toolCallName, toolCallArgs);
        if (toolCallName === "refund") sawCall();
      },
      onRunFailed({ error }) {
        failure = error;
        return QUIETLY;
      },
    },
  );
  // The call reaches the client while the money moves.
  const moved = callSeen.then(() => first.moved);
  const refundId = await Promise.race([moved, run.then(() => null)]);
  if (refundId === null) throw new Error("the run was over before it refunded anything", { cause: failure });

  print();
  print(bold(`2. The money has moved (${refundId}), nobody has been told yet: kill -9 ${first.pid}.`));
  await first.kill();
  await run;
  print(`${label("client")}${red("connection lost")}, ${heldBy(client)}`);

  const second = await ServerProcess.start(where);
  started(second);
  print();
  print(bold(`3. Same files, same port, process ${second.pid}. The client asks for the same run again.`));
  await client.runAgent({ runId: "r1" }, shown(client));

  for (let leg = 2; client.pendingInterrupts.length > 0; leg++) {
    if (leg > 9) throw new Error("the agent does not stop asking");
    print();
    print(bold("4. It needs a human, and the run rests. The human approves."));
    const resume = client.pendingInterrupts.map(({ id, message }) => {
      print(`${label("question")}${message} ${green("→ approved")}`);
      return { interruptId: id, status: "resolved" as const, payload: { approved: true } };
    });
    await client.runAgent({ runId: `r${leg}`, resume }, shown(client));
  }
  return { client, url: second.url };
}

/** Keeps the client from printing a stack trace for a connection that is meant to be cut. Its types do not know that it looks at this there. */
const QUIETLY: AgentStateMutation = { stopPropagation: true };

/** What is wrong with how the story ended: in the world, and at the client, which has seen two servers and a cut connection. */
export function faultsOf(
  ledger: readonly LedgerRow[],
  { messages, state }: Pick<HttpAgent, "messages" | "state">,
): string[] {
  const faults: string[] = [];
  for (const orderId of ["A-1001", "A-1002"]) {
    const times = ledger.filter((row) => row.orderId === orderId).length;
    if (times !== 1) faults.push(`the ledger has ${times} refunds of ${orderId}, and should have one`);
  }
  if (ledger.length > 2) faults.push(`the ledger has ${ledger.length} rows, and should have two`);

  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  for (const { id, function: called } of calls) {
    const results = messages.filter((message) => message.role === "tool" && message.toolCallId === id).length;
    if (results !== 1) faults.push(`the client holds ${results} results of ${called.name} ${called.arguments}`);
  }
  for (const { refundId } of ledger) {
    const shown = messages.filter((message) => message.role === "tool" && contentOf(message).includes(`"${refundId}"`));
    if (shown.length !== 1) faults.push(`the client was told of refund ${refundId} ${shown.length} times`);
    if (!JSON.stringify(state).includes(`"${refundId}"`))
      faults.push(`refund ${refundId} is not in the client's state`);
  }
  const last = messages.at(-1);
  if (last?.role !== "assistant" || contentOf(last) === "") faults.push("the agent has not had the last word");
  return faults;
}

function contentOf({ content }: { readonly content?: unknown }): string {
  return typeof content === "string" ? content : "";
}

function heldBy({ messages, state }: HttpAgent): string {
  return `it holds ${messages.length} messages and ${JSON.stringify(state)}`;
}

/** Writes what arrives while it arrives, and of a snapshot what the client did not have. */
function shown(client: HttpAgent): AgentSubscriber {
  // A message that the snapshot has half goes on where it stopped.
  let half: string | undefined;
  return {
    onMessagesSnapshotEvent({ event }) {
      const held = new Set(client.messages.map(({ id }) => id));
      for (const message of event.messages.filter(({ id }) => !held.has(id))) {
        if (message.role === "tool") printResult(contentOf(message));
        if (message.role !== "assistant") continue;
        half = message.id;
        if (contentOf(message) !== "") write(label("agent") + contentOf(message));
        for (const { function: called } of message.toolCalls ?? [])
          printCall(called.name, JSON.parse(called.arguments));
      }
    },
    onTextMessageStartEvent: ({ event }) => {
      if (event.messageId !== half) write(label("agent"));
    },
    onTextMessageContentEvent: ({ event }) => write(event.delta),
    onTextMessageEndEvent: endLine,
    onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => printCall(toolCallName, toolCallArgs),
    onToolCallResultEvent: ({ event }) => printResult(contentOf(event)),
    onRunErrorEvent: ({ event }) => print(`${label("error")}${red(event.message)}`),
  };
}

function printCall(tool: string, { cents, ...rest }: Record<string, unknown>): void {
  const words = [...Object.values(rest).map(String), ...(typeof cents === "number" ? [euros(cents)] : [])];
  print(`${label("call")}${tool} ${words.join(", ")}`);
}

function printResult(content: string): void {
  print(`${label("result")}${dim(shortened(content, 70))}`);
}

/**
 * When a socket is cut, the stock client rejects a promise that nobody can reach, besides its own
 * (https://github.com/ag-ui-protocol/ag-ui/issues/2510), and Node ends a process for that.
 */
function ignoreCutSocket(): Disposable {
  const ignore = (error: unknown): void => {
    if (!(error instanceof TypeError && error.message === "terminated")) throw error;
  };
  process.on("unhandledRejection", ignore);
  return { [Symbol.dispose]: () => process.off("unhandledRejection", ignore) };
}
