/**
 * Logs as a loop has left them, to go on from: recorded once for each generation of the loop, and kept. The agent here is theirs for ever: a
 * change of its tools would be a change of contract.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import type { Prompt } from "../../src/agent/model-port.ts";
import { applied, createRuntime, memory, notApplied, type Runtime, suspend, tool } from "../../src/index.ts";
import { type Entry, type NewEntry, parseEntry } from "../../src/log/entries.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { Agent } from "../../src/runtime/agent-definition.ts";
import type { Run } from "../../src/store/store.ts";
import { type ScriptedTurn, scriptedModel } from "../../src/testing/scripted-model.ts";
import { offence } from "../agent/strict-prompt.ts";
import { asking } from "./asking.ts";

const FIXTURES = fileURLToPath(new URL("../fixtures/", import.meta.url));

/** The generations that were recorded. */
export const generations = (): readonly string[] => readdirSync(FIXTURES).filter((name) => name.startsWith("loop-v"));

export function recorded(generation: string, story: string): readonly Entry[] {
  const lines = readFileSync(`${FIXTURES}${generation}/${story}.jsonl`, "utf8").trim().split("\n");
  return lines.map((line, i) => {
    const { seq, at, ...entry } = JSON.parse(line) as Entry;
    return parseEntry(JSON.stringify(entry), { run: `line ${i}` as Uid, seq, at });
  });
}

/** Keeps a new generation. @throws where there is one of that name: what was recorded is never written over */
export function keep(generation: string, story: string, log: readonly Entry[]): void {
  mkdirSync(`${FIXTURES}${generation}`, { recursive: true });
  writeFileSync(`${FIXTURES}${generation}/${story}.jsonl`, `${log.map((e) => JSON.stringify(e)).join("\n")}\n`, {
    flag: "wx",
  });
}

const CALLS: { readonly [story: string]: readonly { readonly name: string; readonly input: Json }[] } = {
  approve: [{ name: "refund", input: { order: "1" } }],
  suspend: [{ name: "transfer", input: { cents: 100 } }],
  unknown: [{ name: "mail", input: { to: "bob" } }],
  several: [
    { name: "look_up", input: { order: "1" } },
    { name: "book", input: { order: "1" } },
  ],
  paint: [
    { name: "paint", input: { colour: "red" } },
    { name: "look_up", input: { order: "1" } },
  ],
  look: [{ name: "look_up", input: { order: "1" } }],
};

export interface DeskOptions {
  readonly instructions?: string;
  /** What the model says when it has what it wants. */
  readonly says?: string;
  readonly modelId?: string;
  /** Bodies begin and never end. */
  readonly hangs?: true;
}

/** A process with the agent of all generations. */
export class OldDesk {
  readonly ledger: string[] = [];
  readonly prompts: Prompt[] = [];
  readonly store = memory();
  readonly runtime: Runtime;

  constructor(private readonly options: DeskOptions = {}) {
    this.runtime = createRuntime({ agents: [this.#agent()], store: this.store, drainGrace: 10, onError: () => {} });
  }

  #agent(): Agent {
    const { instructions = "You run the desk.", says = "Done.", modelId = "old" } = this.options;
    const scripted = scriptedModel(
      ({ messages, lastUserText }): ScriptedTurn => {
        const calls = messages.at(-1)?.role === "user" ? CALLS[lastUserText] : undefined;
        return calls === undefined ? { text: says } : { reasoning: "Let me see.", text: "One moment, please.", calls };
      },
      { modelId },
    );
    const model = {
      ...scripted,
      doStream: (asked: Parameters<typeof scripted.doStream>[0]) => {
        this.prompts.push(asked.prompt as Prompt);
        return scripted.doStream(asked);
      },
    };
    return agent({
      name: "desk",
      model,
      instructions,
      tools: this.#tools(),
      state: { initial: () => ({ seen: 0 }) },
    }) as Agent;
  }

  #tools() {
    const act = async (row: string): Promise<void> => {
      if (this.options.hangs) await new Promise(() => {});
      this.ledger.push(row);
    };
    const common = { settle: 0, timeout: "2s" } as const;
    return [
      tool({
        ...{ name: "look_up", description: "Finds an order.", effect: "read", ...common },
        ...{ input: z.object({ order: z.string() }), output: z.object({ order: z.string() }) },
        state: z.custom<{ seen: number }>(),
        async call({ order }) {
          await act(`look ${order}`);
          return { order };
        },
        reduce(state) {
          state.seen += 1;
        },
      }),
      tool({
        ...{ name: "refund", description: "Refunds an order.", effect: "write", ...common },
        ...{ input: z.object({ order: z.string() }), output: z.object({ refunded: z.string() }) },
        approval: { message: "Refund?" },
        async call({ order }) {
          await act(`refund ${order}`);
          return { refunded: order };
        },
      }),
      tool({
        ...{ name: "transfer", description: "Transfers money.", effect: "write", ...common },
        ...{ input: z.object({ cents: z.number() }), output: z.object({ to: z.string() }), answer: z.string() },
        call: async () => suspend({ message: "To whom?" }),
        async resume(to) {
          await act(`transfer ${to}`);
          return { to };
        },
      }),
      tool({
        ...{ name: "mail", description: "Sends a letter.", effect: "write", ...common },
        ...{ input: z.object({ to: z.string() }), output: z.object({ sent: z.string() }) },
        async call({ to }) {
          await act(`mail ${to}`);
          throw new Error("connection reset");
        },
      }),
      tool({
        ...{ name: "book", description: "Books an order.", effect: "write", ...common },
        ...{ input: z.object({ order: z.string() }), output: z.object({ booked: z.string() }) },
        async call({ order }) {
          await act(`book ${order}`);
          return { booked: order };
        },
        reconcile: async ({ order }) =>
          this.ledger.includes(`book ${order}`) ? applied({ booked: order }) : notApplied(),
      }),
    ];
  }

  /** Puts a log into the store, as its process has left it. */
  async takesOver(log: readonly Entry[]): Promise<void> {
    await this.store.open("before");
    const starts = log.flatMap(({ kind }, i) => (kind === "run.started" ? [i] : []));
    for (const [i, from] of starts.entries()) {
      const entries = log.slice(from, starts[i + 1]).map(({ seq: _, at: __, ...entry }) => entry as NewEntry);
      const [start, leg] = [entries[0], entries.find(({ kind }) => kind === "leg.started")];
      if (start?.kind !== "run.started" || leg?.kind !== "leg.started") throw new Error("a log begins with its run");
      const key = { ...start.owner, agent: start.agent, thread: start.thread ?? start.uid };
      const request = { key, runId: leg.runId, owner: "before" };
      const { lease } = await this.store.post(request, () => ({ is: "run", first: entries }));
      const last = entries.at(-1)?.kind;
      const runnable = last !== "run.parked" && last !== "run.finished";
      if (lease) await this.store.append(lease, { entries: [], ends: { runnable, wakeAt: null, waitsForKey: null } });
    }
  }

  async ask(path: string, body?: object) {
    return await asking(this.runtime)(path, body);
  }

  /** Sends what the user says in the thread. */
  async says(content: string, more: object = {}): Promise<void> {
    const n = (await this.store.runs({ tenant: "local" }).catch(() => ({ items: [] }))).items.length + 1;
    const messages = [{ id: `u${n}`, role: "user", content }];
    await this.ask("/agents/desk", { threadId: "t", runId: `r${n}`, messages, tools: PAINT, ...more });
  }

  async answers(payload: Json): Promise<void> {
    const [question] = (await this.store.questions({ tenant: "local" })).items;
    await this.ask(`/inbox/${encodeURIComponent(question?.interrupt.id ?? "")}`, { status: "resolved", payload });
  }

  /** The client's result of the call that it was left. */
  async paints(): Promise<void> {
    const log = await this.log();
    const started = log.find((entry) => entry.kind === "step.started" && entry.step === "client-tool");
    const toolCallId = started?.kind === "step.started" ? started.toolCallId : "";
    const messages = [{ id: "painted", role: "tool", toolCallId, content: "painted" }];
    await this.ask("/agents/desk", { threadId: "t", runId: "r-painted", messages, tools: PAINT });
  }

  async run(): Promise<Run> {
    const [run] = (await this.store.runs({ tenant: "local", limit: 1 })).items;
    if (run === undefined) throw new Error("there is no run");
    return run;
  }

  /** Until the newest run is as wanted. */
  async until(isSo: (run: Run) => boolean): Promise<Run> {
    for (;;) {
      const run = await this.run();
      if (isSo(run)) return run;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  /** Of all runs, oldest first. */
  async log(): Promise<Entry[]> {
    const entries: Entry[] = [];
    for (const { uid } of [...(await this.store.runs({ tenant: "local" })).items].reverse()) {
      for await (const entry of this.store.read(uid, -1)) entries.push(entry);
    }
    return entries;
  }

  get offences(): readonly string[] {
    return this.prompts.flatMap((prompt) => offence(prompt) ?? []);
  }
}

const PAINT = [{ name: "paint", description: "Paints the page.", parameters: { type: "object" } }];
