/** Agents of all kinds behind one runtime, a ledger outside its log, and a front end that says whatever it likes. */
import { agent, agentTool, createRuntime, type LoopContext, memory, type RuntimeOptions, suspend, tool } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";

export interface Replied {
  readonly status: number;
  readonly text: string;
  readonly events: readonly AGUIEvent[];
}

/** Tools of the server that a client may name, too. */
export const SERVERS = ["look", "pay", "note", "wait", "helper", "final_answer"];
const CLIENTS = "place";
const nothing = z.object({});

/** @param ledger - what effects have happened, by their key */
function agentsOf(ledger: string[]) {
  const look = tool({ name: "look", description: "Looks", effect: "read", input: nothing, call: () => "seen" });
  const pay = tool({
    ...{ name: "pay", description: "Pays", effect: "write", input: z.object({ n: z.number() }), approval: true },
    call: ({ n }, { idempotencyKey }) => `paid ${n}, ${ledger.push(`pay ${idempotencyKey}`) > 0}`,
  });
  /** Shows what it does as calls of a subagent, under the name that the client's tool has. */
  const note = tool({
    ...{ name: "note", description: "Notes", effect: "write", input: nothing },
    async call(_, ctx) {
      ledger.push(`note ${ctx.idempotencyKey}`);
      await ctx.subagent({ name: "clerk" }, (clerk) => {
        const call = clerk.toolCall(CLIENTS);
        call.argsJson({});
        call.resultJson("there");
      });
      return "noted";
    },
  });
  const wait = tool({
    ...{ name: "wait", description: "Waits", effect: "read", input: nothing, answer: z.boolean() },
    call: () => suspend({ message: "Go on?" }),
    resume: (answer) => `went on: ${answer}`,
  });
  const helper = agent({
    name: "helper",
    description: "Helps",
    tools: [look, note, pay],
    model: scriptedModel(({ turn }) =>
      turn === 0
        ? { text: "So.", calls: [called("look"), called("note"), called("pay", { n: 2 })] }
        : { text: "Helped." },
    ),
  });
  const helping = agentTool(helper, { description: "Helps" });
  /** Four turns: a tool of the client's, all kinds of the server's, the client's again beside one of the server's, and the end. */
  const turns = [
    { text: "First.", calls: [called(CLIENTS)] },
    { reasoning: "Hm.", calls: [called("look"), called("note"), called("pay", { n: 1 })] },
    { calls: [called("wait"), called(CLIENTS)] },
    { calls: [called("helper", { task: "help" }), called("look", "none" as never)] },
  ];
  const following = (last: object) => scriptedModel(({ messages }) => turns[sinceUser(messages)] ?? last);
  const tools = [look, pay, note, wait, helping];
  const open = { importHistory: true, systemMessages: "allow" } as const;
  return [
    agent({ name: "desk", model: following({ text: "Done." }), tools }),
    agent({
      ...open,
      name: "open",
      model: following({ text: "Done." }),
      tools,
      whileActive: "queue",
      whileParked: "queue",
    }),
    agent({
      ...{ name: "formal", model: following({ calls: [called("final_answer", { sum: 3 })] }), tools },
      ...{
        output: z.object({ sum: z.number() }),
        state: { schema: z.looseObject({ n: z.number().optional() }), initial: () => ({}) },
      },
      budget: { steps: 100 },
    }),
    agent({
      name: "loop",
      agents: [helper],
      async run(ctx: LoopContext) {
        const client = ctx.clientTool(CLIENTS);
        ctx.say("Begun.");
        const model = scriptedModel(() => ({ calls: [called("look"), called(CLIENTS)] }));
        const made = await ctx.model({ model, tools: [look], clientTools: ctx.clientTools, messages: ctx.messages });
        await ctx.parallel(made.calls.map((call) => (lane) => lane.call(call)));
        await ctx.call(note, {});
        if (client !== undefined) await ctx.call(client, { at: 1 }).catch(() => "none");
        const first = await ctx.ask({ message: "Which?" }).catch(() => "none");
        await ctx.call(pay, { n: 3 }).catch(() => "not paid");
        const helped = await ctx.spawn(helper, "help").catch(() => "not helped");
        return [first, helped];
      },
    }),
  ];
}

function called(name: string, input: object = {}) {
  return { name, input: input as Record<string, never> };
}

/** How many answers of the model the newest message of the user has got. */
function sinceUser(messages: readonly { readonly role: string }[]): number {
  const from = messages.findLastIndex(({ role }) => role === "user");
  return messages.slice(from + 1).filter(({ role }) => role === "assistant").length;
}

export function hostileWorld({ store = memory(), ...options }: Partial<RuntimeOptions> = {}) {
  const ledger: string[] = [];
  const errors: unknown[] = [];
  const runtime = createRuntime({
    agents: agentsOf(ledger),
    store,
    onError: (error) => void errors.push(error),
    ...options,
  });
  const send = async (path: string, text?: string, signal?: AbortSignal): Promise<Replied> => {
    const init =
      text === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: text };
    const response = await runtime.fetch(
      new Request(`http://localhost${path}`, { ...init, ...(signal && { signal }) }),
    );
    const whole = await response.text();
    const events = whole.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6))] : []));
    return { status: response.status, text: whole, events };
  };
  return {
    ...{ runtime, ledger, errors, send },
    post: (path: string, body: unknown) => send(path, JSON.stringify(body)),
    get: async <T>(path: string): Promise<T> => JSON.parse((await send(path)).text) as T,
  };
}

export type HostileWorld = ReturnType<typeof hostileWorld>;

export const place = { name: CLIENTS, description: "Where the user is", parameters: { type: "object" } };
export const user = (id: string, content: unknown = "go") => ({ id, role: "user", content });
export const result = (id: string, toolCallId: string, content: unknown = "here") => ({
  id,
  role: "tool",
  toolCallId,
  content,
});
export const request = (runId: string, messages: readonly unknown[], more: object = {}) => ({
  ...{
    threadId: "t",
    runId,
    messages,
    tools: [place],
    context: [],
    state: {},
    forwardedProps: {},
    protocolVersion: "1.0",
  },
  ...more,
});

/** What a leg waits for: calls of the client's, and questions with what an honest person answers. */
export function waitsFor({ events }: Replied): {
  readonly calls: readonly string[];
  readonly resume: readonly { readonly interruptId: string; readonly status: "resolved"; readonly payload: unknown }[];
} {
  const last = events.at(-1);
  const outcome = last?.type === "RUN_FINISHED" ? last.outcome : undefined;
  const calls = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
  const resume = (outcome?.type === "interrupt" ? outcome.interrupts : []).map(({ id, reason }) => ({
    ...{ interruptId: id, status: "resolved" as const },
    payload: reason === "tool_call" ? { approved: true } : true,
  }));
  return { calls, resume };
}

/** An honest client that does all it is asked for. @returns the last leg */
export async function honestly(
  { post }: HostileWorld,
  agent: string,
  named: string,
  first: Replied,
  threadId = "t",
): Promise<Replied> {
  let reply = first;
  for (let n = 0; n < 30; n++) {
    const { calls, resume } = waitsFor(reply);
    if (calls.length === 0 && resume.length === 0) break;
    const messages = calls.map((id) => result(`${named}-of-${n}-${id.length}-${id}`.slice(0, 1000), id));
    reply = await post(`/agents/${agent}`, request(`${named}-${n}`, messages, { threadId, resume }));
  }
  return reply;
}
