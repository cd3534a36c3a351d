/** Runs in every state that a person may ask about, of a real server on a real file. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Agent, agent, createRuntime, HandlerError, type Served, serve, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { desk } from "../http/desk.ts";
import { ask, deferred, fresh, open } from "../http/rig.ts";
import { command, type Said } from "./rig.ts";

export interface Serving {
  readonly file: string;
  /** Of the process that serves now. */
  readonly url: string;
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Sends a message on a thread of its own and reads the leg to its end. @returns the run's uid */
  say(agent: string, content: string, more?: object): Promise<string>;
  /** The same, without waiting for the end. */
  begin(agent: string, content: string): Promise<string>;
}

/** Agents on a store's file; everything is gone when the test is over. */
export async function onFile(agents: () => readonly Agent[]): Promise<Serving> {
  const folder = await mkdtemp(join(tmpdir(), "perdure-cli-"));
  const file = join(folder, "perdure.db");
  let server: Served | undefined;
  const start = async (): Promise<void> => {
    const runtime = createRuntime({ agents: agents(), store: sqlite(file), onError: () => {}, drainGrace: 20 });
    server = await serve(runtime, { port: 0 });
    await runtime.open();
  };
  const stop = async (): Promise<void> => {
    await server?.close();
    server = undefined;
  };
  onTestFinished(async () => {
    await stop();
    await rm(folder, { recursive: true, force: true });
  });
  await start();
  const url = (): string => server?.url ?? "http://127.0.0.1:1";
  const uidOf = async (thread: string): Promise<string> => {
    const { out } = await command(["ls", "--thread", thread, "--json", "--url", url()]);
    return (JSON.parse(out) as { runs: { uid: string }[] }).runs[0]?.uid ?? "";
  };
  const body = (content: string, more?: object) => fresh({ messages: [{ id: "u1", role: "user", content }], ...more });
  return {
    file,
    get url() {
      return url();
    },
    start,
    stop,
    async say(name, content, more) {
      const said = body(content, more);
      await ask(`${url()}/agents/${name}`, { body: JSON.stringify(said) });
      return await uidOf(said.threadId);
    },
    async begin(name, content) {
      const said = body(content);
      const { response } = await open(`${url()}/agents/${name}`, { body: JSON.stringify(said) });
      response.on("error", () => {}).resume();
      return await uidOf(said.threadId);
    },
  };
}

/** What a command says of the same thing over HTTP and of the file, which has to be the same but for where it was asked. */
export async function bothSay(serving: Serving, words: readonly string[]): Promise<Said> {
  const overHttp = await command([...words, "--url", serving.url]);
  const ofFile = await command([...words, "--store", serving.file]);
  const alike = ({ code, out, err }: Said): string =>
    `${code}\n${out}${err}`.replaceAll(/--(url|store) \S+/g, "--where").replaceAll(/\d+ (ms|s|min)\b/g, "a while");
  if (alike(overHttp) !== alike(ofFile)) throw new Error(`told apart:\n${alike(overHttp)}\n---\n${alike(ofFile)}`);
  return overHttp;
}

/** A write that fails without a word each time, until `heal` is called. */
export function payer() {
  const paid: string[] = [];
  let isHealed = false;
  const pay = tool({
    name: "pay",
    description: "Pays.",
    effect: "write",
    settle: 0,
    input: z.object({ to: z.string() }),
    output: z.object({ receipt: z.string() }),
    call({ to }) {
      if (!isHealed) throw new Error("socket hang up");
      paid.push(to);
      return { receipt: "R-1" };
    },
  });
  const model = scriptedModel(({ messages }) =>
    messages.at(-1)?.role === "user" ? { calls: [{ name: "pay", input: { to: "bob" } }] } : { text: "Paid." },
  );
  return {
    paid,
    heal: () => {
      isHealed = true;
    },
    agent: agent({ name: "payer", model, tools: [pay] }),
  };
}

/** A read whose service asks to be left alone for ten minutes. */
export function fetcher(): Agent {
  const look = tool({
    name: "look",
    description: "Looks.",
    effect: "read",
    input: z.object({ url: z.string() }),
    call() {
      const options = { applied: "no", retryable: true, code: "UPSTREAM", retryAfter: 600_000 } as const;
      throw new HandlerError("the upstream is down", options);
    },
  });
  const model = scriptedModel([{ calls: [{ name: "look", input: { url: "http://a" } }] }, { text: "Seen." }]);
  return agent({ name: "fetcher", model, tools: [look] });
}

/** A write that hangs until it is told to go on. */
export function slow() {
  const { promise, resolve } = deferred();
  const move = tool({
    name: "move",
    description: "Moves.",
    effect: "write",
    timeout: "1h",
    input: z.object({ to: z.string() }),
    async call() {
      await promise;
      return "moved";
    },
  });
  const model = scriptedModel([{ calls: [{ name: "move", input: { to: "there" } }] }, { text: "Moved." }]);
  return { go: () => resolve(), agent: agent({ name: "slow", model, tools: [move] }) };
}

/** A body that asks for a size. */
export function shirt(): Agent {
  const Size = z.object({ size: z.enum(["S", "M"]) });
  return agent({
    name: "shirt",
    async run(ctx) {
      const answer = ctx.resumeFor("size", Size);
      return answer === undefined
        ? ctx.interrupt({ id: "size", message: "Which size?", schema: Size })
        : answer.payload;
    },
  });
}

/** Its model's provider does not know it. */
export function refused(): Agent {
  return agent({
    name: "refused",
    model: scriptedModel(() => {
      throw Object.assign(new Error("no such key"), { statusCode: 401 });
    }),
  });
}

export { desk };
