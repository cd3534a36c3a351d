/** An agent whose one tool waits for a human, and a conversation with it: benches of what a question costs, in bytes and in time. */
import { agent, createRuntime, type EventStore, type Runtime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";

/**
 * @param result - what the tool returns for the nth order
 * @param approval - whether a human has to allow it
 */
export function desk(store: EventStore, result: (order: number) => unknown, approval = true): Runtime {
  const fetchReport = tool({
    name: "fetch_report",
    description: "Fetches a report, if a human allows it.",
    effect: "write",
    input: z.object({ order: z.number() }),
    approval,
    async call({ order }) {
      return result(order);
    },
  });
  let orders = 0;
  const model = scriptedModel(({ messages }) =>
    messages.at(-1)?.role === "tool"
      ? { text: "Done." }
      : { calls: [{ name: "fetch_report", input: { order: orders++ } }] },
  );
  return createRuntime({ agents: [agent({ name: "desk", model, tools: [fetchReport] })], store });
}

/** One turn without a question. @returns bytes that the client was sent */
export async function straightTurn(runtime: Runtime, threadId: string, n: number): Promise<number> {
  const answer = await post(runtime, { threadId, runId: `r${n}`, messages: [user(n)] });
  if (!answer.includes("Done.")) throw new Error(`the turn does not end: ${answer.slice(-500)}`);
  return answer.length;
}

/** One turn: a message, the question, its answer, the end. @returns bytes that the client was sent */
export async function turn(runtime: Runtime, threadId: string, n: number): Promise<number> {
  const asked = await post(runtime, { threadId, runId: `r${n}`, messages: [user(n)] });
  const interrupt = /"interrupts":\[\{"id":"([^"]+)"/.exec(asked)?.[1];
  if (interrupt === undefined) throw new Error(`the turn does not wait for a human: ${asked.slice(-500)}`);
  const resume = [{ interruptId: interrupt, status: "resolved", payload: { approved: true } }];
  const answered = await post(runtime, { threadId, runId: `r${n}-answered`, messages: [user(n)], resume });
  if (!answered.includes("Done.")) throw new Error(`the turn does not end: ${answered.slice(-500)}`);
  return asked.length + answered.length;
}

const user = (n: number) => ({ id: `u${n}`, role: "user", content: "The report, please." });

async function post(runtime: Runtime, body: object): Promise<string> {
  const request = new Request("http://127.0.0.1/agents/desk", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, protocolVersion: "1.0" }),
  });
  return await (await runtime.fetch(request)).text();
}
