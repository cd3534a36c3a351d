/** Random conversations: several turns of one thread, with a model and its tools or with a body that emits at random, and a human at the client. */
import fc from "fast-check";
import { agent, HandlerError, suspend, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";
import { createRuntimeFrom, type RuntimeOptions } from "../../src/http/create-runtime.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Message, ResumeEntry } from "../../src/protocol/events.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import { ReducingClient } from "../../src/testing/script-client.ts";
import { initialState, interpret, type Op, type ProgramState, program } from "../emit/programs.ts";

const CALLS = ["look", "pay", "confirm", "paint", "break"] as const;

export interface ModelTurn {
  readonly reasons: boolean;
  readonly talks: boolean;
  readonly calls: readonly (typeof CALLS)[number][];
  readonly end: "text" | "cut" | "fails";
}

/** What the human does with what he is asked, and with calls that his client is to run. */
interface Human {
  readonly does: "approve" | "reject" | "cancel" | "abandon";
  readonly paints: "result" | "error" | "goes on";
}

export type Turn = { readonly human: Human; readonly prune: boolean } & (
  | { readonly model: ModelTurn }
  | { readonly ops: readonly Op[] }
);

const human: fc.Arbitrary<Human> = fc.record({
  does: fc.constantFrom("approve", "approve", "approve", "reject", "cancel", "abandon"),
  paints: fc.constantFrom("result", "result", "error", "goes on"),
});
const modelTurn: fc.Arbitrary<ModelTurn> = fc.record({
  reasons: fc.boolean(),
  talks: fc.boolean(),
  calls: fc.array(fc.constantFrom(...CALLS), { maxLength: 3 }),
  end: fc.constantFrom("text", "text", "text", "cut", "fails"),
});
const turns = (what: fc.Arbitrary<{ model: ModelTurn } | { ops: Op[] }>): fc.Arbitrary<Turn[]> =>
  fc.array(
    fc.tuple(what, human, fc.boolean()).map(([one, by, prune]) => ({ ...one, human: by, prune })),
    { minLength: 1, maxLength: 4 },
  );
export const modelConversation: fc.Arbitrary<Turn[]> = turns(modelTurn.map((model) => ({ model })));
export const conversation: fc.Arbitrary<Turn[]> = fc.oneof(modelConversation, turns(program.map((ops) => ({ ops }))));

/** Long enough to be worth a reference. */
const long = (what: string): string => `${what}, at length: ${"so on and so forth ".repeat(8)}`;

const board = z.custom<{ seen?: string[] }>();

function tools() {
  return [
    tool({
      name: "look",
      description: "Looks.",
      // Not "read": one after the other, so that a conversation that is played again has its results in the same order.
      effect: "idempotent",
      input: z.object({ note: z.string() }),
      state: board,
      async call({ note }, ctx) {
        using activity = ctx.activity("PLAN", { items: [note] });
        activity.update((draft) => void draft.items.push("looking"));
        ctx.progress(0.5);
        ctx.updateState((draft) => {
          draft.seen = [...(draft.seen ?? []), "…"];
        });
        ctx.publishState();
        return { found: long(note) };
      },
      reduce(draft, { found }: { found: string }) {
        draft.seen = [...(draft.seen ?? []), found];
      },
    }),
    tool({
      name: "pay",
      description: "Pays.",
      effect: "write",
      input: z.object({ note: z.string() }),
      approval: { message: "Pay?" },
      call: ({ note }) => long(`Paid for ${note}`),
    }),
    tool({
      name: "confirm",
      description: "Asks.",
      effect: "idempotent",
      input: z.object({ note: z.string() }),
      answer: z.boolean(),
      call: () => suspend({ message: "Is it so?" }),
      resume: (isSo) => ({ isSo }),
    }),
    tool({
      name: "break",
      description: "Fails.",
      effect: "idempotent",
      input: z.object({ note: z.string() }),
      call: () => {
        throw new HandlerError("It broke.", { applied: "no", code: "BROKEN" });
      },
    }),
  ];
}

const PAINT = { name: "paint", description: "Paints.", parameters: { type: "object" } };

/** What the model was asked, as its provider gets it. */
export type Prompts = string[];

function desk(prompts: Prompts, options: { readonly importHistory?: boolean } = {}) {
  return agent({
    name: "desk",
    instructions: "You look after things.",
    ...options,
    model: scriptedModel(({ messages, lastUserText }) => {
      prompts.push(JSON.stringify(messages));
      const turn = planOf(lastUserText);
      const since = messages.length - 1 - messages.findLastIndex(({ role }) => role === "user");
      const calls = turn.calls.map((name, i) => ({ name, input: { note: long(`call ${i}`) } }));
      if (since === 0 && calls.length > 0) {
        return {
          ...(turn.reasons && { reasoning: { text: long("Hm"), encrypted: `blob ${"x".repeat(100)}` } }),
          ...(turn.talks && { text: long("One moment") }),
          calls,
        };
      }
      const text = long("Done");
      if (turn.end === "fails") return { text, error: { message: "no more", retryable: false } };
      return { text, ...(turn.reasons && { reasoning: "Hm." }), ...(turn.end === "cut" && { finishReason: "length" }) };
    }),
    tools: tools(),
    state: { initial: () => ({}) },
  });
}

const NO_PLAN: ModelTurn = { reasons: false, talks: false, calls: [], end: "text" };
function planOf(text: string): ModelTurn {
  const plan = /^plan (\{.*\})$/m.exec(text)?.[1];
  return plan === undefined ? NO_PLAN : (JSON.parse(plan) as ModelTurn);
}

/** Answered once, a program goes on without its questions: it runs from the top. */
const programAgent = (opsOf: (text: string) => readonly Op[]) =>
  agent<ProgramState>({
    name: "program",
    state: { initial: initialState },
    async run(ctx) {
      const ops = opsOf(ctx.lastUserText());
      await interpret(ctx, ctx.isResume ? ops.filter(({ op }) => op !== "interrupt") : ops);
    },
  });

const LEGS = 4;

/** One conversation in one world. The same story gives the same everywhere: clock, chance and names are the world's own. */
export class Talk {
  readonly prompts: Prompts = [];
  readonly runtime: ReturnType<typeof createRuntimeFrom>;
  client: ReducingClient;
  /** The bodies of all requests that were taken. */
  readonly bodies: string[] = [];
  readonly #sent: (body: string) => string;
  #at = 1_800_000_000_000;
  #uids = 0;
  #turn = 0;
  #runId = 0;

  constructor(
    readonly store: EventStore,
    readonly story: readonly Turn[],
    options: Partial<RuntimeOptions> & {
      readonly importHistory?: boolean;
      /** What becomes of a request's body on its way. */
      readonly sent?: (body: string) => string;
    } = {},
  ) {
    const { importHistory, sent = (body) => body, ...more } = options;
    this.#sent = sent;
    const ops = (text: string): readonly Op[] => {
      const turn = story[Number(/^turn (\d+)/.exec(text)?.[1])];
      return turn !== undefined && "ops" in turn ? turn.ops : [];
    };
    this.runtime = createRuntimeFrom(
      {
        now: () => (this.#at += 40),
        random: () => 0,
        newUid: () => `00000000-0000-7000-8000-${String(++this.#uids).padStart(12, "0")}` as Uid,
      },
      {
        agents: [desk(this.prompts, importHistory === undefined ? {} : { importHistory }), programAgent(ops)],
        store,
        onError: () => {},
        ...more,
      },
    );
    this.client = this.newClient([]);
  }

  /** A client that holds these messages. */
  newClient(messages: readonly Message[]): ReducingClient {
    const client = new ReducingClient(this.agent, async (url, init) => {
      const sent = typeof init.body === "string" ? { ...init, body: this.#sent(init.body) } : init;
      const response = await this.runtime.fetch(new Request(url, sent));
      if (response.ok && typeof sent.body === "string") this.bodies.push(sent.body);
      return response;
    });
    for (const message of messages) client.add(message);
    return client;
  }

  get agent(): string {
    return this.story.some((turn) => "ops" in turn) ? "program" : "desk";
  }

  /** The user's words of a turn, which tell the model what to do. */
  words(turn: number): string {
    const one = this.story[turn];
    return `turn ${turn}${one !== undefined && "model" in one ? `\nplan ${JSON.stringify(one.model)}` : ""}`;
  }

  /** The next turn, up to its end, or until the user goes on without having run his calls. */
  async next(): Promise<"seen" | "ended elsewhere"> {
    const turn = this.#turn++;
    this.client.add({ id: `u${turn}`, role: "user", content: this.words(turn) });
    return await this.answered(this.story[turn]?.human ?? { does: "approve", paints: "result" });
  }

  /** Sends what the client holds, and answers what it is asked. @returns whether the client has seen how it ended */
  async answered(human: Human): Promise<"seen" | "ended elsewhere"> {
    let resume: ResumeEntry[] = [];
    for (let leg = 0; leg < LEGS; leg++) {
      const runId = `r${++this.#runId}`;
      const ran = await this.client.run({ runId, resume, tools: [PAINT], turn: {} });
      if (ran === "cut") throw new Error("the answer has no end");
      if (ran.questions.length === 0 && ran.calls.length === 0) return "seen";
      if (ran.questions.length > 0 && (human.does === "cancel" || human.does === "abandon")) {
        await this.end(human.does);
        return "ended elsewhere";
      }
      if (ran.questions.length === 0 && human.paints === "goes on") return "seen";
      resume = ran.questions.map(({ id, reason }) => ({
        ...{ interruptId: id, status: "resolved" as const },
        payload: reason === "tool_call" ? { approved: human.does === "approve" } : true,
      }));
      if (ran.questions.length > 0) continue;
      for (const id of ran.calls) {
        const failed = human.paints === "error" ? { error: "no paint" } : {};
        this.client.add({ id: `result of ${id}`, role: "tool", toolCallId: id, content: "", ...failed } as Message);
      }
    }
    await this.end("cancel");
    return "ended elsewhere";
  }

  /** Ends the newest run from outside, if it is not over. */
  async end(how: "cancel" | "abandon" = "cancel"): Promise<void> {
    const run = (await this.runs()).at(-1);
    if (run === undefined || run.outcome !== null) return;
    await this.runtime.fetch(new Request(`http://localhost/runs/${run.uid}/${how}`, { method: "POST" }));
    while ((await this.store.run(run.uid))?.outcome === null) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Oldest first. */
  async runs(): Promise<readonly Run[]> {
    await this.runtime.open();
    return (await this.store.runs({ tenant: "local", limit: 500 })).items.toReversed();
  }

  async pruneAll(): Promise<void> {
    for (const { uid, outcome } of await this.runs()) if (outcome !== null) await this.runtime.prune(uid);
  }

  async entries(uid: Uid): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read(uid, -1)) entries.push(entry);
    return entries;
  }

  /** The answer to a request, without cursors. */
  async shown(path: string, body?: string): Promise<string> {
    const post = body === undefined ? {} : { method: "POST", body, headers: { "content-type": "application/json" } };
    const response = await this.runtime.fetch(new Request(`http://localhost${path}`, post));
    return `${response.status}\n${(await response.text()).replaceAll(/^id: .*\n/gm, "")}`;
  }

  /** The messages that the thread shows to whoever comes. */
  async threadMessages(): Promise<readonly Message[]> {
    const text = await this.shown(`/threads/thread/stream?agent=${this.agent}`);
    const snapshot = /^data: (\{"type":"MESSAGES_SNAPSHOT".*)$/m.exec(text)?.[1] ?? "{}";
    return (JSON.parse(snapshot) as { messages: Message[] }).messages;
  }

  /** All that this thread shows to whoever comes: preludes for every version, and each request again. */
  async allShown(): Promise<readonly string[]> {
    const stream = `/threads/thread/stream?agent=${this.agent}`;
    const shown = [await this.shown(stream), await this.shown(`${stream}&protocolVersion=0.0.45`)];
    for (const { uid } of await this.runs()) shown.push(await this.shown(`/runs/${uid}/stream`));
    for (const body of this.bodies) shown.push(await this.shown(`/agents/${this.agent}`, body));
    return shown;
  }
}
