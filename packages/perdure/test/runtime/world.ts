/**
 * A world in which a process dies and starts again: what is outside of it (the ledger, the store, the clock, the client) stays.
 *
 * Effects of a dead process do not happen: whatever a body does, it does through its {@link Life}.
 */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AgentSubscriber, HttpAgent } from "@ag-ui/client";
import type { ResumeEntry, Tool } from "@ag-ui/core";
import { createRuntimeFrom } from "../../src/http/create-runtime.ts";
import type { Runtime } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { AGUIEvent, Interrupt, Message } from "../../src/protocol/events.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { memory } from "../../src/store/memory.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import { type Death, Mortal, never } from "./mortal-store.ts";

/** What ends a life: a commit, or the nth time that some body comes to a place. */
export type Fate = Death | { readonly at: string; readonly nth: number };

/** What keeps a store while processes come and go. */
export interface Disk {
  /** The store as the next process finds it. The one before has died. */
  next(clock: () => number): EventStore;
  remove(): Promise<void>;
}

export const inMemory = (): Disk => {
  let store: EventStore | undefined;
  return {
    next(clock) {
      store ??= memory({ clock, leaseMs: 1e9 });
      return store;
    },
    async remove() {},
  };
};

/** SQLite files. What a process leaves when it dies is copied as it lies there; the copy has no owner. */
export const inFiles = (): Disk => {
  const dir = mkdtempSync(join(tmpdir(), "perdure-crash-"));
  let generation = 0;
  let store: EventStore | undefined;
  const file = () => join(dir, `${generation}.db`);
  return {
    next(clock) {
      const left = file();
      generation += 1;
      for (const part of ["", "-wal"]) if (existsSync(left + part)) copyFileSync(left + part, file() + part);
      // Only to let go of its files: nobody looks at them any more.
      void store?.close();
      store = sqlite(file(), { clock, leaseMs: 1e9 });
      return store;
    },
    async remove() {
      rmSync(dir, { recursive: true, force: true });
    },
  };
};

/** One process. */
export class Life {
  readonly mortal: Mortal;
  readonly runtime: Runtime;
  readonly reported: unknown[] = [];

  constructor(
    readonly world: World,
    private readonly fate: Fate | null,
    makeAgent: (life: Life) => LoopAgent,
  ) {
    this.mortal = new Mortal(world.disk.next(world.clock), fate !== null && "when" in fate ? fate : null);
    this.runtime = createRuntimeFrom(
      { now: world.clock, random: () => 0, newUid: world.newUid },
      { agents: [makeAgent(this)], store: this.mortal.store, onError: (error) => this.reported.push(error) },
    );
  }

  /** A body is at `place`. The process may die here. */
  async at(place: string): Promise<void> {
    if (this.mortal.isDead) return await never();
    const times = (this.world.visits.get(place) ?? 0) + 1;
    this.world.visits.set(place, times);
    if (this.fate === null || "when" in this.fate) return;
    if (this.fate.at !== place || this.fate.nth !== times) return;
    this.mortal.die();
    await never();
  }

  /** Does something to the world outside. Nothing keeps it from being done twice. */
  async act(row: string): Promise<void> {
    if (this.mortal.isDead) return await never();
    this.world.ledger.push(row);
  }

  /** An HTTP request; it fails when the process dies, also in the middle of its answer. */
  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const cut = this.mortal.died.then((): never => {
      throw new ConnectionCut();
    });
    cut.catch(() => {});
    const response = await Promise.race([this.runtime.fetch(new Request(url, init)), cut]);
    if (response.body === null) return response;
    const reader = response.body.getReader();
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const { done, value } = await Promise.race([reader.read(), cut]);
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: (reason) => reader.cancel(reason),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

/** The client rethrows any other name into nowhere when it lets go of a body that has failed. */
class ConnectionCut extends Error {
  override readonly name = "AbortError";
}

export class World {
  /** What the outside has seen, in order. It counts: nothing here is unique. */
  readonly ledger: string[] = [];
  readonly visits = new Map<string, number>();
  #at = 1_700_000_000_000;
  #uids = 0;

  constructor(readonly disk: Disk) {}

  /** Moves on whenever somebody looks, so that every delta is a frame of its own and no test waits for a window. */
  readonly clock = (): number => {
    this.#at += 40;
    return this.#at;
  };

  readonly newUid = (): Uid => {
    this.#uids += 1;
    return `run-${this.#uids}` as Uid;
  };

  /** How often the ledger has a row. */
  count(row: string): number {
    return this.ledger.filter((one) => one === row).length;
  }
}

/** A story: an agent, and what the people at the client do. */
export interface Story {
  readonly name: string;
  readonly agent: (life: Life) => LoopAgent;
  readonly says?: string;
  /** Failures are part of the story, and whoever runs the server is told of them. */
  readonly fails?: true;
  readonly tools?: readonly Tool[];
  /** What a human answers, who may look at the world. */
  readonly answer?: (question: Interrupt, world: World) => Omit<ResumeEntry, "interruptId">;
  /** Whether somebody answers in the inbox, before the client says the same. */
  readonly isAnsweredInInbox?: (question: Interrupt) => boolean;
  /** What the client's own tool returns. */
  readonly result?: (call: { readonly id: string; readonly name: string }) => string;
}

export interface Ended {
  readonly world: World;
  readonly log: readonly Entry[];
  readonly run: Run;
  readonly client: { readonly messages: readonly Message[]; readonly state: unknown };
  /** A client that comes when all is over. */
  readonly late: { readonly messages: readonly Message[]; readonly state: unknown };
  /** Lives that ended by their fate. */
  readonly deaths: number;
  readonly asked: readonly Interrupt[];
  readonly openQuestions: number;
  readonly inbox: number;
  readonly reported: readonly unknown[];
}

const AGENT_URL = (name: string) => `http://localhost/agents/${name}`;
const PATIENCE = 40;

/** Plays a story to its end, with one life per fate and a last one that lives on. */
export async function play(story: Story, fates: readonly Fate[] = [], disk: Disk = inMemory()): Promise<Ended> {
  const world = new World(disk);
  const left = [...fates];
  let deaths = 0;
  const asked: Interrupt[] = [];
  const begin = async (): Promise<Life> => {
    const life = new Life(world, left.shift() ?? null, story.agent);
    await Promise.race([life.runtime.open(), life.mortal.died]);
    return life;
  };
  let life = await begin();
  const alive = async (): Promise<Life> => {
    while (life.mortal.isDead) {
      deaths += 1;
      life = await begin();
    }
    return life;
  };
  const { name } = story.agent(life);
  const client = new StockClient(name, (url, init) => life.fetch(url, init));
  client.say("u", story.says ?? "go");

  let requests = 1;
  let resume: ResumeEntry[] | undefined;
  for (let tries = 0; ; tries++) {
    if (tries > PATIENCE) throw new Error(`${story.name}: the client has asked ${PATIENCE} times and is not done`);
    await alive();
    const ran = await client.run(`r${requests}`, resume, story.tools);
    if (ran === "cut") {
      // Else the request failed although its server lives.
      if (!life.mortal.isDead && !(await letGoOn(life)))
        throw new AggregateError([client.failure, ...life.reported], "a request failed");
      continue;
    }
    const { questions, calls } = ran;
    if (questions.length === 0 && calls.length === 0) break;
    requests += 1;
    asked.push(...questions);
    resume = [];
    for (const question of questions) {
      if (story.answer === undefined) throw new Error(`${story.name}: nobody answers ${question.message}`);
      const reply = story.answer(question, world);
      resume.push({ interruptId: question.id, ...reply });
      if (story.isAnsweredInInbox?.(question)) await answerInInbox(alive, question.id, reply);
    }
    for (const call of calls) client.give(call.id, story.result?.(call) ?? "");
  }

  await alive();
  const late = new StockClient(name, (url, init) => life.fetch(url, init));
  for (;;) {
    const ran = await late.run(`r${requests}`, resume, story.tools, client.own);
    if (ran !== "cut") break;
    await alive();
  }
  await alive();
  const { store } = life.mortal;
  const [run] = (await store.runs({ tenant: "local" })).items;
  if (run === undefined) throw new Error(`${story.name}: there is no run`);
  const log: Entry[] = [];
  for await (const entry of store.read(run.uid, -1)) log.push(entry);
  const openQuestions = (await store.questions({ tenant: "local" })).items.length;
  const inbox = (await store.inbox(run.uid)).length;
  await life.runtime.close();
  await disk.remove();
  return {
    ...{ world, log, run, deaths, asked, openQuestions, inbox },
    ...{ client: client.held, late: late.held, reported: life.reported },
  };
}

/** Until a server that lives has taken it. */
async function answerInInbox(
  alive: () => Promise<Life>,
  id: string,
  reply: Omit<ResumeEntry, "interruptId">,
): Promise<void> {
  for (;;) {
    const life = await alive();
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(reply) };
    const response = await life.fetch(`http://localhost/inbox/${id}`, init).catch(() => undefined);
    if (response?.ok) return;
    if (!life.mortal.isDead) throw new Error(`the inbox refuses: ${response?.status} ${await response?.text()}`);
  }
}

/** The operator has found out what took the processes down. @returns whether he was asked */
async function letGoOn(life: Life): Promise<boolean> {
  const { store } = life.mortal;
  const asked = async () =>
    (await store.questions({ tenant: "local" })).items.filter(({ interrupt }) => interrupt.kind === "poisoned");
  const questions = await Promise.race([asked(), life.mortal.died]);
  if (!questions || questions.length === 0) return false;
  for (const { interrupt, uid } of questions) {
    const answered = await life
      .fetch(`http://localhost/inbox/${encodeURIComponent(interrupt.id)}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ status: "resolved", payload: { action: "go-on" } }),
      })
      .catch(() => undefined);
    if (answered !== undefined && answered.status !== 200) throw new Error(await answered.text());
    const begun = async () => {
      while ((await store.inbox(uid)).length > 0) await new Promise((resolve) => setImmediate(resolve));
    };
    await Promise.race([begun(), life.mortal.died]);
  }
  return true;
}

type Ran = {
  readonly questions: readonly Interrupt[];
  readonly calls: readonly { readonly id: string; readonly name: string }[];
};

/** The published client 1.0.0 as a front end uses it. */
export class StockClient {
  readonly #agent: HttpAgent;
  /** Why the last request failed. */
  failure: unknown;

  constructor(agent: string, fetch: (url: string, init: RequestInit) => Promise<Response>, threadId = "thread") {
    this.#agent = new HttpAgent({ url: AGENT_URL(agent), threadId, fetch });
  }

  get held() {
    return structuredClone({ messages: this.#agent.messages as Message[], state: this.#agent.state as unknown });
  }

  /** Messages that the client made itself. */
  get own(): readonly Message[] {
    return this.held.messages.filter(({ id }) => id === "u" || id.startsWith("result-of-"));
  }

  say(id: string, content: string): void {
    this.#agent.addMessage({ id, role: "user", content });
  }

  give(toolCallId: string, content: string): void {
    this.#agent.addMessage({ id: `result-of-${toolCallId}`, role: "tool", toolCallId, content });
  }

  /** @param own - messages to begin with, for a client that has none */
  async run(
    runId: string,
    resume?: readonly ResumeEntry[],
    tools: readonly Tool[] = [],
    own: readonly Message[] = [],
    seen: AGUIEvent[] = [],
  ): Promise<Ran | "cut"> {
    if (own.length > 0 && this.#agent.messages.length === 0)
      this.#agent.setMessages(structuredClone([...own]) as never);
    let calls: readonly string[] | undefined;
    const subscriber: AgentSubscriber = {
      onEvent: ({ event }) => void seen.push(event as AGUIEvent),
      onRunFinishedEvent: ({ event }) => {
        const { outcome } = event as { outcome?: { type: string; pendingToolCallIds?: string[] } };
        calls = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
      },
    };
    try {
      const parameters = { runId, tools: [...tools], ...(resume && resume.length > 0 && { resume: [...resume] }) };
      await this.#agent.runAgent(parameters, subscriber);
    } catch (error) {
      this.failure = error;
    }
    // A client takes a body that just ends for a whole one.
    if (calls === undefined) return "cut";
    const named = (this.#agent.messages as Message[]).flatMap((m) =>
      m.role === "assistant" ? (m.toolCalls ?? []) : [],
    );
    return {
      questions: this.#agent.pendingInterrupts as Interrupt[],
      calls: calls.map((id) => ({ id, name: named.find((call) => call.id === id)?.function.name ?? "" })),
    };
  }
}
