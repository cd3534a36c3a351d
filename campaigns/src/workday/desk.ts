/**
 * An agent as people have them: five tools of its own, those of three MCP servers, another agent for part of the work, a structured answer, and a
 * long conversation of which the older part is summed up. What it does in a turn is a function of the turn's number.
 */
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { type Agent, agent, agentTool, type LanguageModel } from "perdure";
import { mcp } from "perdure/mcp";
import { type ScriptedTurn, type ScriptMessage, scriptedModel } from "perdure/testing";
import { z } from "zod";
import { strict } from "../../../packages/perdure/test/agent/strict-model.ts";
import { deskState, effectOf, type Script, toolsOf, type World } from "../agents.ts";

export const TURNS = 60;
/** A turn before which another version is deployed. */
export const DEPLOYS: readonly number[] = [20, 40];

/** What is deployed: at first, then under another prompt, then with another tool. */
const versions = [
  { instructions: "You handle orders.", tools: ["look_up", "set_label", "refund", "pay_out", "confirm"] },
  { instructions: "You handle orders, and are kind.", tools: ["look_up", "set_label", "refund", "pay_out", "confirm"] },
  {
    instructions: "You handle orders, and are kind.",
    tools: ["look_up", "set_label", "refund", "pay_out", "confirm", "wire"],
  },
];

export interface DeskWorld extends World {
  /** Where its MCP servers keep their files. */
  readonly folder: string;
  readonly version: number;
}

export function deskOf({ folder, version, ...world }: DeskWorld): Agent {
  const deployed = versions[version] ?? versions[0];
  const tools = toolsOf(world);
  const named = (name: string) => tools.filter((tool) => tool.name === name);
  const say = (turn: (asked: Asked) => ScriptedTurn): LanguageModel =>
    strict(scriptedModel(({ messages }) => turn(askedIn(messages)), { delayMs: world.delayMs }));
  const courier = agent({
    name: "courier",
    description: "Sends a parcel again.",
    model: say(({ order, answers }) =>
      answers === 0
        ? { text: LONG, calls: [{ name: "refund", input: payment(order) }] }
        : { text: "It is on its way again." },
    ),
    tools: named("refund"),
    ...deskState,
  });
  return agent({
    name: "desk",
    instructions: deployed?.instructions ?? "",
    model: say(
      ({ order, number, answers }) => plans[number % plans.length]?.turns(order, number)[answers] ?? answer(number),
    ),
    tools: [...(deployed?.tools ?? []).flatMap(named), agentTool(courier), ...mcpServers(folder)],
    output: z.object({ turn: z.number(), words: z.string() }),
    compaction: { after: 6_000, keep: 6, by: ({ text }) => `It was about ${text.length > 0 ? "orders" : "nothing"}.` },
    budget: { steps: 100 },
    ...deskState,
  });
}

function mcpServers(folder: string) {
  const require = createRequire(import.meta.url);
  const server = (name: string, ...args: readonly string[]) => ({
    command: process.execPath,
    args: [join(dirname(require.resolve(`@modelcontextprotocol/${name}/package.json`)), "dist/index.js"), ...args],
    cwd: folder,
  });
  return [
    mcp({
      ...{ name: "files", ...server("server-filesystem", folder), include: ["write_file", "read_text_file"] },
      tools: { write_file: { effect: "idempotent" } },
    }),
    mcp({
      ...{ name: "memory", ...server("server-memory"), include: ["open_nodes", "delete_observations"] },
      env: { MEMORY_FILE_PATH: join(folder, "memory.jsonl") },
      tools: { delete_observations: { effect: "idempotent" }, open_nodes: { effect: "read" } },
    }),
    mcp({
      ...{ name: "every", ...server("server-everything"), include: ["echo"] },
      tools: { echo: { effect: "read" } },
    }),
  ];
}

const LONG =
  "Let me see what there is to be done about this order, step by step, so that nothing is forgotten on the way.";
const WHY = "because the customer has asked for it twice and nobody has found a reason against it";
const payment = (order: string, cents = 1_200) => ({ order, cents, why: WHY });
const call = (name: string, input: ScriptedCallInput) => ({ name, input });
type ScriptedCallInput = NonNullable<ScriptedTurn["calls"]>[number]["input"];

interface Plan {
  /** The model's answers before the last one of the turn. */
  turns(order: string, number: number): readonly ScriptedTurn[];
  effects(order: string, number: number): readonly string[];
}

const plans: readonly Plan[] = [
  {
    turns: (o) => [
      {
        reasoning: LONG,
        text: LONG,
        calls: [call("look_up", { order: `${o}a` }), call("look_up", { order: `${o}b` })],
      },
    ],
    effects: () => [],
  },
  {
    turns: (o) => [{ text: LONG, calls: [call("refund", payment(o)), call("every_echo", { message: o })] }],
    effects: (o) => [effectOf("refund", o)],
  },
  {
    turns: (o) => [
      { calls: [call("set_label", { order: o, label: "seen" })] },
      { text: LONG, calls: [call("look_up", { order: o })] },
    ],
    effects: (o) => [effectOf("set_label", o)],
  },
  {
    turns: (o, number) =>
      // Three times a human approves, three times he confirms.
      (number / 10) % 2 < 1
        ? [{ text: LONG, calls: [call("pay_out", payment(o, 9_000))] }]
        : [{ text: LONG, calls: [call("confirm", { order: o })] }],
    effects: (o, number) => [effectOf((number / 10) % 2 < 1 ? "pay_out" : "confirm", o)],
  },
  {
    turns: (_, number) => [
      {
        calls: [
          call("memory_delete_observations", { deletions: [{ entityName: "desk", observations: [`turn ${number}`] }] }),
        ],
      },
      { reasoning: LONG, calls: [call("memory_open_nodes", { names: ["desk"] })] },
    ],
    effects: () => [],
  },
  {
    turns: (o) => [{ text: LONG, calls: [call("courier", { task: `It is about order ${o}.` })] }],
    effects: (o) => [effectOf("refund", o)],
  },
  {
    turns: (_, number) => [
      { text: LONG, calls: [call("files_write_file", { path: `turn-${number}.txt`, content: `Turn ${number}.` })] },
      { calls: [call("files_read_text_file", { path: `turn-${number}.txt` })] },
    ],
    effects: () => [],
  },
  {
    turns: (o) => [
      {
        reasoning: LONG,
        calls: [call("refund", payment(`${o}a`)), call("set_label", { order: `${o}b`, label: "done" })],
      },
    ],
    effects: (o) => [effectOf("refund", `${o}a`), effectOf("set_label", `${o}b`)],
  },
  { turns: () => [], effects: () => [] },
  {
    // Known to the last version only.
    turns: (o, number) => (number < (DEPLOYS[1] ?? 0) ? [] : [{ text: LONG, calls: [call("wire", payment(o))] }]),
    effects: (o, number) => (number < (DEPLOYS[1] ?? 0) ? [] : [effectOf("wire", o)]),
  },
];

const answer = (turn: number): ScriptedTurn => ({
  calls: [call("final_answer", { turn, words: "All of that is done now, and it was done once." })],
});

/** What the newest message asks for, and how often the model has answered since. */
interface Asked {
  readonly order: string;
  readonly number: number;
  readonly answers: number;
}

function askedIn(messages: readonly ScriptMessage[]): Asked {
  const last = messages.findLastIndex(({ role }) => role === "user");
  const content = messages[last]?.content ?? "";
  const [, order = "", number = "0"] =
    /order (\w+?)(?:t(\d+))?\./.exec(typeof content === "string" ? content : JSON.stringify(content)) ?? [];
  const answers = messages.slice(last + 1).filter(({ role }) => role === "assistant").length;
  return { order: `${order}t${number}`, number: Number(number), answers };
}

/** @param turns - how many of the day's */
export function dayOf(turns: number): Script {
  const numbers = Array.from({ length: turns }, (_, i) => i);
  return {
    messages: turns,
    say: (order, i) => `It is about order ${order}t${i}.`,
    effects: (order) => numbers.flatMap((i) => plans[i % plans.length]?.effects(`${order}t${i}`, i) ?? []),
    turns: () => [],
  };
}

/** What memory holds in the morning: one observation for each turn. */
export function memoryOf(turns: number): string {
  const observations = Array.from({ length: turns }, (_, i) => `turn ${i}`);
  return `${JSON.stringify({ type: "entity", name: "desk", entityType: "place", observations })}\n`;
}
