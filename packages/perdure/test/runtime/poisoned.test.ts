/** What takes its process down: suspects go on one at a time, and after a third death an operator decides. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { answerProblem } from "../../src/runtime/answers.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import type { Life } from "../../src/testing/life.ts";
import { never } from "../../src/testing/mortal-store.ts";
import { memoryDisk, Outside } from "../../src/testing/outside.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { quietClient } from "../protocol/published-client.ts";
import { folder } from "../store/folder.ts";
import { posts } from "./asking.ts";
import { living, StockClient } from "./world.ts";

quietClient();

async function until(isSo: () => Promise<boolean> | boolean): Promise<void> {
  for (let i = 0; !(await isSo()); i++) {
    if (i > 20_000) throw new Error("it does not come to that");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function logOf(store: EventStore, { uid }: Run): Promise<Entry[]> {
  const log: Entry[] = [];
  for await (const entry of store.read(uid, -1)) log.push(entry);
  return log;
}

/** Runs that each work once, as long as `isBusy`, in processes that come and go. */
class Desk {
  readonly outside = new Outside(memoryDisk());
  /** Whose work may end. */
  readonly done = new Set<string>();
  /** Whose bodies run. */
  readonly working = new Set<string>();
  life = this.#begin();

  #begin(): Life {
    const { life }: { readonly life: Life } = living(() => {
      const work = tool({
        ...{ name: "work", description: "Works.", effect: "read", input: z.object({ thread: z.string() }) },
        call: async ({ thread }) => {
          if (life.mortal.isDead) return await never();
          this.working.add(thread);
          await until(() => this.done.has(thread) || life.mortal.isDead);
          if (life.mortal.isDead) return await never();
          this.working.delete(thread);
          return "worked";
        },
      });
      return agent({
        name: "desk",
        model: scriptedModel(({ messages, turn }) => {
          const said = JSON.stringify(messages.findLast(({ role }) => role === "user")?.content);
          const thread = /"(.)"[^"]*$/.exec(said)?.[1] ?? "";
          return turn === 0 ? { calls: [{ name: "work", input: { thread } }] } : { text: "Done." };
        }),
        tools: [work],
      });
    }, this.outside);
    return life;
  }

  async ask(...threads: readonly string[]): Promise<void> {
    for (const thread of threads) {
      const client = new StockClient("desk", this.life.fetch, thread);
      client.say(`u-${thread}`, thread);
      void client.run({ runId: "r1" });
    }
    await until(() => threads.every((thread) => this.working.has(thread)));
  }

  /** The process dies, and another one opens its store. */
  async dies(): Promise<void> {
    this.life.mortal.die();
    this.working.clear();
    this.life = this.#begin();
    await this.life.runtime.open();
  }

  get store(): EventStore {
    return this.life.mortal.store;
  }

  async run(thread: string): Promise<Run> {
    const [run] = (await this.store.runs({ tenant: "local", thread })).items;
    if (run === undefined) throw new Error(`thread ${thread} has no run`);
    return run;
  }

  /** The one who works while others wait for their turn. */
  async one(): Promise<string> {
    await until(() => this.working.size > 0);
    for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
    expect(this.working.size).toBe(1);
    return [...this.working][0] ?? "";
  }

  /** Their work is done, and their runs with it. */
  async end(...threads: readonly string[]): Promise<void> {
    for (const thread of threads) this.done.add(thread);
    for (const thread of threads) await until(async () => (await this.run(thread)).outcome === "success");
  }

  post(path: string, body: unknown): Promise<Response> {
    return this.life.fetch(`http://localhost${path}`, posts(body));
  }

  async poisoned() {
    return (await this.store.questions({ tenant: "local" })).items.filter(
      ({ interrupt }) => interrupt.kind === "poisoned",
    );
  }
}

/** A desk whose process has died twice while `threads` worked. */
async function twiceDead(...threads: readonly string[]): Promise<Desk> {
  const desk = new Desk();
  onTestFinished(() => desk.life.runtime.close());
  await desk.life.runtime.open();
  await desk.ask(...threads);
  await desk.dies();
  await until(() => desk.working.size === threads.length);
  await desk.dies();
  return desk;
}

test("one death slows nobody; after two its runs go on one at a time, and others beside them", async () => {
  const desk = await twiceDead("a", "b", "c");
  const first = await desk.one();
  await desk.ask("d");
  expect([...desk.working].toSorted()).toEqual([first, "d"].toSorted());
  expect(await desk.poisoned()).toEqual([]);

  await desk.end("a", "b", "c", "d");
});

test("a suspect that waits for its turn can be cancelled meanwhile", async () => {
  const desk = await twiceDead("a", "b");
  const first = await desk.one();
  const waiting = await desk.run(first === "a" ? "b" : "a");
  await desk.store.put(waiting.uid, "s", { kind: "cancel" });
  await until(async () => (await desk.store.run(waiting.uid))?.outcome === "cancelled");
  await desk.end(first);
});

test("the suspect at work when the third process dies is parked for an operator, and the other one is not", async () => {
  const desk = await twiceDead("a", "b");
  const culprit = await desk.one();
  await desk.dies();
  const other = await desk.one();
  expect(other).not.toBe(culprit);
  const run = await desk.run(culprit);
  const [question] = await desk.poisoned();
  expect(question).toMatchObject({
    uid: run.uid,
    interrupt: { path: "1.0", audience: "operator", metadata: { step: "1.0", name: "work", deaths: 3 } },
  });
  expect(question?.interrupt.message).toContain("tool `work`");
  await until(async () => (await desk.run(culprit)).readyAt === null);
  const log = await logOf(desk.store, run);
  expect(log.findLast((entry) => entry.kind === "leg.finished")).toMatchObject({
    outcome: { type: "error", error: { code: "NEEDS_OPERATOR" } },
  });
  expect(log.at(-1)).toMatchObject({ kind: "run.parked", why: "operator" });
  expect(fold(log).finished).toBeNull();

  await desk.end(other);

  // A client is told how it stands, and cannot decide it.
  const seen: AGUIEvent[] = [];
  const client = new StockClient("desk", desk.life.fetch, culprit);
  client.say(`u-${culprit}`, culprit);
  await client.run({ runId: "r1" }, seen);
  expect(seen.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "NEEDS_OPERATOR" });
  expect(JSON.stringify(seen)).not.toContain("perdure:poisoned");
  const id = question?.interrupt.id ?? "";
  const path = `/inbox/${encodeURIComponent(id)}`;
  const resume = { threadId: culprit, runId: "r2", messages: [], resume: [{ interruptId: id, status: "cancelled" }] };
  expect((await desk.post("/agents/desk", resume)).status).toBe(403);
  expect((await desk.post(path, { status: "cancelled" })).status).toBe(422);
  expect((await desk.post(path, { status: "resolved", payload: { action: "delete" } })).status).toBe(422);
  if (question === undefined) throw new Error("nobody is asked");
  const by = { tenant: "local", subject: "local", scopes: ["answer"] };
  const answer = { interrupt: id, status: "resolved", payload: { action: "go-on" }, by } as const;
  expect(answerProblem(question.interrupt, answer)).toMatchObject({ status: 403, code: "ANSWER_FORBIDDEN" });
  const operator = { ...by, scopes: ["answer", "operator"] };
  expect(answerProblem(question.interrupt, { ...answer, by: operator })).toBeUndefined();

  // The operator lets it go on: it is no suspect any more, and two more deaths do not park it.
  expect((await desk.post(path, { status: "resolved", payload: { action: "go-on" } })).status).toBe(200);
  for (let death = 1; death <= 2; death++) {
    await until(() => desk.working.has(culprit));
    await desk.dies();
  }
  await until(() => desk.working.has(culprit));
  expect(await desk.poisoned()).toEqual([]);
  await desk.end(culprit);
});

test("an operator may abandon a poisoned run instead", async () => {
  const desk = await twiceDead("a");
  await desk.one();
  await desk.dies();
  await until(async () => (await desk.poisoned()).length === 1);
  const [question] = await desk.poisoned();
  const path = `/inbox/${encodeURIComponent(question?.interrupt.id ?? "")}`;
  expect((await desk.post(path, { status: "resolved", payload: { action: "abandon" } })).status).toBe(200);
  await until(async () => (await desk.run("a")).outcome === "abandoned");
  expect(await desk.poisoned()).toEqual([]);
  expect(desk.working.size).toBe(0);
});

test("a tool that kills its process three times is parked, and its neighbour finishes meanwhile", async () => {
  const place = await folder();
  onTestFinished(() => place.remove());
  const script = fileURLToPath(new URL("./poison-child.ts", import.meta.url));
  let deaths = 0;
  for (;;) {
    const child = spawn(process.execPath, ["--import", "tsx", script, place.file], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
    if (code === 0) break;
    expect(signal).toBe("SIGKILL");
    expect(++deaths).toBeLessThan(5);
  }
  expect(deaths).toBe(3);
  const store = sqlite(place.file, { access: "read" });
  await store.open("onlooker");
  onTestFinished(() => store.close());
  const { items } = await store.runs({ tenant: "local" });
  const [good, bad] = ["good", "bad"].map((name) => items.find(({ agent }) => agent === name));
  expect(good?.outcome).toBe("success");
  expect(bad).toMatchObject({ outcome: null, legOpen: false, readyAt: null });
  expect((await store.questions({ tenant: "local" })).items).toMatchObject([
    { uid: bad?.uid, interrupt: { kind: "poisoned", metadata: { name: "bad", deaths: 3 } } },
  ]);
});
