/** Random conversations that are forked at every entry: their calls are told by the plan, their effects stand in a ledger. */
import fc from "fast-check";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { agentTool } from "../../src/agent/agent-tool.ts";
import type { Prompt } from "../../src/agent/model-port.ts";
import { createRuntimeFrom } from "../../src/http/create-runtime.ts";
import { applied, HandlerError, memory, type Runtime, suspend, tool, unknown } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { Agent, AgentTool } from "../../src/runtime/agent-definition.ts";
import type { Run } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { offence } from "../agent/strict-prompt.ts";
import { asking } from "./asking.ts";

export interface ForkedCall {
  readonly effect: "read" | "idempotent" | "write";
  /** `agent`: another one does it, in a run of its own. */
  readonly where: "server" | "client" | "agent";
  readonly approval: "none" | "approve" | "edit" | "reject";
  readonly suspends: boolean;
  readonly key: boolean;
  readonly fails: "no" | "error" | "unknown";
  readonly publishes: boolean;
}

/** Calls by turn of the model, by turn of the user. */
export interface Talk {
  readonly turns: readonly (readonly (readonly ForkedCall[])[])[];
  readonly says: "text" | "nothing";
}

const call: fc.Arbitrary<ForkedCall> = fc.record({
  effect: fc.constantFrom("read", "idempotent", "write", "write"),
  where: fc.constantFrom("server", "server", "server", "client", "agent"),
  approval: fc.constantFrom("none", "none", "approve", "edit", "reject"),
  suspends: fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  key: fc.boolean(),
  fails: fc.constantFrom("no", "no", "no", "error", "unknown"),
  publishes: fc.boolean(),
});

export const talk: fc.Arbitrary<Talk> = fc.record({
  turns: fc.array(fc.array(fc.array(call, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 2 }), {
    minLength: 1,
    maxLength: 2,
  }),
  says: fc.constantFrom("text", "nothing"),
});

/** An agent that says so twice, with a look at what it is about in between. */
function agentOf(name: string): AgentTool {
  const look = tool({
    ...{ name: "look", description: "Look.", effect: "read", input: z.object({}) },
    async call(_, ctx) {
      await ctx.subagent({ name: "mole" }, async (mole) => void mole.say(`In ${name}.`));
      return { seen: name };
    },
  });
  const model = scriptedModel(({ messages }) =>
    messages.at(-1)?.role === "tool"
      ? { text: `Helped ${name}.` }
      : { text: `Helping ${name}.`, calls: [{ name: "look", input: {} }] },
  );
  const helper = agent({ name: `helper-${name}`, model, instructions: "Help.", tools: [look] });
  return agentTool(helper as Agent, { name, description: name, input: z.object({ n: z.number() }) });
}

interface Effect {
  readonly run: string;
  readonly path: string;
  readonly name: string;
}

/** What a body has done, whose it was, and what the model was asked. */
export class Talking {
  readonly ledger: Effect[] = [];
  readonly offences: string[] = [];
  readonly prompts: Prompt[] = [];
  readonly store = memory();
  readonly agent: Agent;
  readonly runtime: Runtime;
  readonly reported: unknown[] = [];
  readonly #names = new Map<string, ForkedCall>();

  constructor(private readonly talk: Talk) {
    talk.turns.forEach((turn, t) => {
      turn.forEach((calls, m) => {
        calls.forEach((one, c) => void this.#names.set(`t${t}m${m}c${c}`, one));
      });
    });
    this.agent = agent({
      name: "talk",
      model: this.#model(),
      instructions: "Talk.",
      tools: [...this.#names].flatMap(([name, one]): readonly (ToolDefinition | AgentTool)[] => {
        if (one.where === "client") return [];
        return one.where === "agent" ? [agentOf(name)] : [this.#tool(name, one)];
      }),
      state: { initial: () => ({ notes: [] as string[] }) },
    }) as Agent;
    this.runtime = createRuntimeFrom(
      { random: () => 0 },
      { agents: [this.agent], store: this.store, onError: (error) => this.reported.push(error) },
    );
  }

  /** Turn t is due when the user has spoken t + 1 times; within it, what comes next is told by the answers behind that. */
  #model() {
    const scripted = scriptedModel(({ messages }) => {
      const said = messages.filter(({ role }) => role === "user").length;
      const last = messages.findLastIndex(({ role }) => role === "user");
      const answers = messages.slice(last + 1).filter(({ role }) => role === "assistant").length;
      const calls = this.talk.turns[said - 1]?.[answers];
      if (calls === undefined) return { text: `Done ${said}.` };
      return {
        ...(this.talk.says === "text" && { reasoning: "Hm.", text: `Turn ${said}, ${answers}.` }),
        calls: calls.map((_, c) => ({ name: `t${said - 1}m${answers}c${c}`, input: { n: c } })),
      };
    });
    return {
      ...scripted,
      doStream: (options: Parameters<typeof scripted.doStream>[0]) => {
        const prompt = options.prompt as Prompt;
        this.prompts.push(prompt);
        const fault = offence(prompt);
        if (fault !== null) this.offences.push(fault);
        return scripted.doStream(options);
      },
    };
  }

  #tool(name: string, { effect, approval, suspends, key, fails, publishes }: ForkedCall): ToolDefinition {
    const act = (run: string, path: string) => void this.ledger.push({ run, path, name });
    return tool({
      ...{ name, description: name, effect, settle: 0 },
      input: z.object({ n: z.number() }),
      output: z.object({ ok: z.string() }),
      ...(suspends && { answer: z.object({ ok: z.string() }) }),
      state: z.custom<{ notes: string[] }>(),
      ...(approval !== "none" && { approval: { message: `Run ${name}?` } }),
      ...(key && effect !== "read" && { idempotencyKey: () => ["talk", name] }),
      async call(_, ctx) {
        if (publishes) {
          ctx.state.notes.push(`${name} begins`);
          ctx.publishState();
          await ctx.subagent({ name: "mole" }, async (mole) => void mole.say(`Of ${name}.`));
        }
        if (suspends) return suspend({ message: `What of ${name}?` });
        if (fails !== "error") act(ctx.run, ctx.path);
        if (fails === "error") throw new HandlerError("gone", { applied: "no", retryable: false, code: "GONE" });
        if (fails === "unknown" && effect === "write") throw new Error("reset");
        return { ok: name };
      },
      ...(suspends && {
        async resume({ ok }: { ok: string }, _: unknown, ctx: { run: string; path: string }) {
          act(ctx.run, ctx.path);
          return { ok };
        },
      }),
      async reconcile() {
        return fails === "unknown" ? unknown() : applied({ ok: name });
      },
      reduce(state, { ok }) {
        state.notes.push(ok);
      },
    }) as ToolDefinition;
  }

  /** The conversation, to its end. @returns its runs, oldest first */
  async talks(thread: string): Promise<readonly Run[]> {
    for (let turn = 0; turn < this.talk.turns.length; turn++) {
      await this.ask("/agents/talk", {
        ...{ threadId: thread, runId: `${thread}-${turn}`, tools: this.clientTools },
        messages: [{ id: `u${turn}`, role: "user", content: `say ${turn}` }],
      });
      await this.toTheEnd(thread);
    }
    return [...(await this.store.runs({ tenant: "local", thread })).items].reverse();
  }

  /** Of its tools. */
  get names(): readonly string[] {
    return [...this.#names.keys()];
  }

  get clientTools() {
    return [...this.#names].flatMap(([name, { where }]) => (where === "client" ? [{ name, description: name }] : []));
  }

  /** Answers whatever is asked in the newest run of a thread until it has ended. */
  async toTheEnd(thread: string, agentName = "talk"): Promise<Run> {
    for (let tries = 0; tries < 2_000; tries++) {
      const run = (await this.store.runs({ tenant: "local", thread, limit: 1 })).items[0];
      if (run === undefined) throw new Error(`thread ${thread} has no run`);
      if (run.outcome !== null) return run;
      if (run.aside !== null) throw new Error(run.aside);
      const open = (await this.store.questions({ tenant: "local", run: run.uid })).items;
      for (const { interrupt } of open) {
        const name = /t\d+m\d+c\d+/.exec(interrupt.message)?.[0] ?? "";
        await this.ask(`/inbox/${encodeURIComponent(interrupt.id)}`, {
          status: "resolved",
          payload: this.#said(interrupt.kind, name),
        });
      }
      if (open.length === 0 && !run.legOpen && run.owner === null) await this.#answerCalls(thread, run, agentName);
      await new Promise((resolve) => setImmediate(resolve));
    }
    throw new Error(`thread ${thread} does not end: ${this.reported.map(String).join("; ")}`);
  }

  #said(kind: string, name: string): Json {
    const { approval } = this.#names.get(name) ?? { approval: "none" };
    if (kind === "suspension") return { ok: name };
    if (kind === "unknown-write") return { did: "yes", output: { ok: name } };
    if (approval === "reject") return { approved: false };
    return { approved: true, ...(approval === "edit" && { editedArgs: { n: 99 } }) };
  }

  async #answerCalls(thread: string, run: Run, agentName: string): Promise<void> {
    const calls = new Map<string, string>();
    for (const entry of await this.log(run.uid)) {
      if (entry.kind === "step.started" && entry.step === "client-tool") calls.set(entry.path, entry.toolCallId ?? "");
      if (entry.kind === "step.finished") calls.delete(entry.path);
    }
    if (calls.size === 0) return;
    await this.ask(`/agents/${agentName}`, {
      ...{ threadId: thread, runId: `${run.uid}-${run.leg}`, tools: this.clientTools },
      messages: [...calls.values()].map((id) => ({
        ...{ id: `result-${id}`, role: "tool", toolCallId: id, content: "painted" },
      })),
    });
  }

  async ask(path: string, body?: object) {
    return await asking(this.runtime)(path, body);
  }

  async log(uid: Uid): Promise<readonly Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read(uid, -1)) entries.push(entry);
    return entries;
  }
}
