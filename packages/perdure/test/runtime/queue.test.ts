/** Messages that come before the run before them has ended: each is answered once, in order, whoever dies meanwhile. */
import { HttpAgent } from "@ag-ui/client";
import fc from "fast-check";
import { type Agent, AgentDefinitionError, type Arrival, agent, type LoopAgent, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { LanguageModel, Prompt } from "../../src/agent/model-port.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { type Disk, memoryDisk, Outside, sqliteDisk } from "../../src/testing/outside.ts";
import { offence } from "../agent/strict-prompt.ts";
import { deferred, ended, eventsOf, says, serving } from "../http/rig.ts";
import { posts } from "./asking.ts";

/** Pays when it is asked to pay, which needs a human's yes, and else says what it has heard. */
function desk(arrival: Arrival, prompts: Prompt[] = []): LoopAgent {
  const scripted = scriptedModel(({ messages, lastUserText }) =>
    lastUserText.startsWith("pay") && messages.at(-1)?.role === "user"
      ? { calls: [{ name: "pay", input: { what: lastUserText } }] }
      : { text: `heard ${lastUserText}` },
  );
  const model: LanguageModel = {
    ...scripted,
    doStream(call) {
      prompts.push(call.prompt as Prompt);
      return scripted.doStream(call);
    },
  };
  const pay = tool({
    ...{ name: "pay", description: "Pays.", effect: "idempotent", approval: true },
    input: z.object({ what: z.string() }),
    call: ({ what }) => `paid ${what}`,
  });
  return agent({ name: "desk", model, tools: [pay], whileActive: arrival, whileParked: arrival }) as LoopAgent;
}

interface Told {
  readonly runs: readonly {
    readonly outcome: string | null;
    readonly heard: readonly string[];
    readonly log: Entry[];
  }[];
}

/** A front end that asks until it is answered, of processes that die. */
class Front {
  readonly prompts: Prompt[] = [];
  readonly outside: Outside;
  readonly #fates: Fate[];
  readonly #arrival: Arrival;
  #life: Life;
  deaths = 0;

  constructor(arrival: Arrival, fates: readonly Fate[], disk: Disk = memoryDisk()) {
    this.#arrival = arrival;
    this.#fates = [...fates];
    this.outside = new Outside(disk);
    this.#life = this.#born();
  }

  #born(): Life {
    return new Life(this.outside, this.#fates.shift() ?? null, desk(this.#arrival, this.prompts));
  }

  /** The process that lives. */
  async life(): Promise<Life> {
    if (this.#life.end !== undefined) {
      this.deaths += 1;
      this.#life = this.#born();
      await this.#life.runtime.open().catch(() => {});
    }
    return this.#life;
  }

  /** Asks until somebody has heard it. @returns the whole answer, "" where it was cut */
  async ask(path: string, body?: object): Promise<{ readonly status: number; readonly text: Promise<string> }> {
    for (;;) {
      const life = await this.life();
      try {
        const response = await life.fetch(`http://localhost${path}`, body === undefined ? {} : posts(body));
        return { status: response.status, text: response.text().catch(() => "") };
      } catch {
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }

  async post(runId: string, said: string | null, more: object = {}): Promise<readonly AGUIEvent[]> {
    const messages = said === null ? [] : [says(runId, said)];
    const { status, text } = await this.ask("/agents/desk", {
      ...{ threadId: "t", runId, messages, protocolVersion: "1.0" },
      ...more,
    });
    expect(status, await text).toBe(200);
    return eventsOf(await text);
  }

  async questions(): Promise<readonly string[]> {
    const { text } = await this.ask("/inbox");
    const body = await text;
    return body === "" ? [] : (JSON.parse(body) as { interrupts: { id: string }[] }).interrupts.map(({ id }) => id);
  }

  /** Answers what is open with yes until `runs` runs have ended, and tells what they have come to. */
  async end(runs: number): Promise<Told> {
    for (;;) {
      for (const id of await this.questions()) {
        await (await this.ask(`/inbox/${id}`, { status: "resolved", payload: { approved: true } })).text;
      }
      const { store } = (await this.life()).mortal;
      const listed = await Promise.race([store.runs({ tenant: "local", limit: 500 }), dead(this.#life)]);
      const all = listed?.items.toReversed() ?? [];
      if (all.length === runs && all.every(({ outcome, owner }) => outcome !== null && owner === null)) {
        const told: Told["runs"][number][] = [];
        for (const { uid, outcome } of all) {
          const log: Entry[] = [];
          for await (const entry of this.#life.mortal.below.read(uid, -1)) log.push(entry);
          told.push({ outcome, log, heard: log.flatMap(heardIn) });
        }
        expect(await this.#life.mortal.below.dueThreads()).toEqual([]);
        return { runs: told };
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async close(): Promise<void> {
    await this.#life.runtime.close();
    await this.outside.disk.remove();
  }
}

const dead = (life: Life) => life.mortal.died.then(() => null);
const heardIn = (entry: Entry): readonly string[] =>
  entry.kind === "leg.started" ? (entry.request?.messages ?? []).map(({ id }) => id) : [];

/** The runs that a stream shows, by their ids, with how each ended. */
function shown(events: readonly AGUIEvent[]): readonly string[] {
  const seen: string[] = [];
  let runId = "";
  for (const event of events) {
    if (event.type === "RUN_STARTED") runId = event.runId;
    if (event.type === "RUN_FINISHED") {
      expect(event.runId, "a run ends under the id under which it began").toBe(runId);
      seen.push(`${event.runId} ${event.outcome?.type ?? "success"}`);
    }
    if (event.type === "RUN_ERROR") seen.push(`${runId} ${event.code}`);
  }
  return seen;
}

describe("a message waits while its thread's run waits for a human", () => {
  /** r1 asks for money; r2 and r3 come; then somebody says yes. */
  async function story(front: Front) {
    const streams = [await front.post("r1", "pay one"), await front.post("r2", "two"), await front.post("r3", "three")];
    const [id = ""] = await front.questions();
    const resume = [{ interruptId: id, status: "resolved", payload: { approved: true } }];
    streams.push(await front.post("r4", null, id === "" ? {} : { resume }));
    return { streams, told: await front.end(3) };
  }

  test("shows the question, waits, and is answered in its turn, on the stream of whoever answered the question", async () => {
    const front = new Front("queue", []);
    const { streams, told } = await story(front);
    expect(streams.map(shown)).toEqual([
      ["r1 interrupt"],
      ["r1 interrupt"],
      ["r1 interrupt"],
      ["r4 success", "r2 success", "r3 success"],
    ]);
    expect(told.runs.map(({ outcome, heard }) => [outcome, heard])).toEqual([
      ["success", ["r1"]],
      ["success", ["r2"]],
      ["success", ["r3"]],
    ]);
    // The same request again is that turn again.
    expect(shown(await front.post("r2", "two")).at(-1)).toBe("r2 success");
    await front.close();
  });

  test.each([
    ["memory", memoryDisk, 1],
    ["SQLite", sqliteDisk, 7],
  ] as const)(
    "also when the process dies at any commit, over %s",
    async (_, disk, every) => {
      let cuts = 0;
      for (let commits = 1; ; commits += every) {
        let deaths = 0;
        for (const when of ["before", "after"] as const) {
          const front = new Front("queue", [{ when, commits }], disk());
          const { told } = await story(front);
          expect(
            told.runs.map(({ outcome, heard }) => [outcome, heard]),
            `${when} commit ${commits}`,
          ).toEqual([
            ["success", ["r1"]],
            ["success", ["r2"]],
            ["success", ["r3"]],
          ]);
          deaths += front.deaths;
          await front.close();
        }
        cuts += deaths;
        if (deaths === 0) break;
      }
      expect(cuts).toBeGreaterThan(20 / every);
    },
    240_000,
  );
});

describe("a message that cancels what is in its way", () => {
  test("withdraws the questions of a run that waits, and begins when that has ended; its stream shows both", async () => {
    const front = new Front("cancel-and-go", []);
    await front.post("r1", "pay one");
    const stream = await front.post("r2", "two");
    expect(shown(stream)).toEqual([expect.stringMatching(/^run-1\.2 cancelled$/), "r2 success"]);
    expect(await front.questions()).toEqual([]);
    const told = await front.end(2);
    expect(told.runs.map(({ outcome }) => outcome)).toEqual(["cancelled", "success"]);
    expect(told.runs[0]?.log).toContainEqual(
      expect.objectContaining({ kind: "interrupt.answered", status: "withdrawn" }),
    );
    expect(JSON.stringify(front.prompts.at(-1))).toMatch(/pay one.*cancelled.*two/);
    await front.close();
  });

  test("also when the process dies at any commit", async () => {
    for (let commits = 1; ; commits++) {
      let deaths = 0;
      for (const when of ["before", "after"] as const) {
        const front = new Front("cancel-and-go", [{ when, commits }]);
        await front.post("r1", "pay one");
        await front.post("r2", "two");
        const told = await front.end(2);
        const outcomes = told.runs.map(({ outcome, heard }) => [outcome, heard]);
        expect(outcomes, `${when} commit ${commits}`).toEqual([
          ["cancelled", ["r1"]],
          ["success", ["r2"]],
        ]);
        deaths += front.deaths;
        await front.close();
      }
      if (deaths === 0) break;
      expect(commits).toBeLessThan(100);
    }
  }, 240_000);
});

const posting = fc.record({
  said: fc.constantFrom("hello", "hello", "pay"),
  /** Whether its stream is read to its end before anything else is done. */
  isRead: fc.boolean(),
  answers: fc.boolean(),
});
const fate: fc.Arbitrary<Fate> = fc.record({
  when: fc.constantFrom("after" as const, "before" as const),
  commits: fc.integer({ min: 1, max: 20 }),
});

test.each(["queue", "cancel-and-go"] as const)(
  "%s: whatever comes, ends and dies in whatever order, each message is one run's, in order, and the model hears all of them",
  async (arrival) => {
    let deaths = 0;
    let waited = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(posting, { minLength: 2, maxLength: 5 }),
        fc.array(fate, { maxLength: 3 }),
        async (all, fates) => {
          const front = new Front(arrival, fates);
          const reading: Promise<string>[] = [];
          for (const [i, { said, isRead, answers }] of all.entries()) {
            const body = {
              ...{ threadId: "t", runId: `r${i}`, protocolVersion: "1.0" },
              messages: [says(`r${i}`, `${said} ${i}`)],
            };
            const { status, text } = await front.ask("/agents/desk", body);
            expect(status).toBe(200);
            reading.push(text);
            if (isRead) await text;
            if (!answers) continue;
            for (const id of await front.questions()) {
              await (await front.ask(`/inbox/${id}`, { status: "resolved", payload: { approved: true } })).text;
            }
          }
          const { runs } = await front.end(all.length);
          expect(runs.map(({ heard }) => heard)).toEqual(all.map((_, i) => [`r${i}`]));
          const outcomes = runs.map(({ outcome }) => outcome);
          if (arrival === "queue") expect(new Set(outcomes)).toEqual(new Set(["success"]));
          else expect(outcomes.at(-1)).toBe("success");
          for (const prompt of front.prompts) expect(offence(prompt)).toBe(null);
          // The last one has heard everybody, in order.
          const users = (front.prompts.at(-1) ?? []).filter(({ role }) => role === "user");
          expect(users.map(({ content }) => (content[0] as { text: string }).text)).toEqual(
            all.map(({ said }, i) => `${said} ${i}`),
          );
          for (const text of await Promise.all(reading)) {
            const ends = shown(eventsOf(text));
            if (ends.length > 1) waited += 1;
            expect(new Set(ends).size).toBe(ends.length);
          }
          deaths += front.deaths;
          await front.close();
        },
      ),
      { numRuns: 40 },
    );
    expect(deaths).toBeGreaterThan(10);
    expect(waited).toBeGreaterThan(10);
  },
  240_000,
);

describe("the published client over HTTP", () => {
  /** Answers when it is told to. */
  function slow(arrival: Arrival) {
    const gates = new Map<string, ReturnType<typeof deferred<null>>>();
    const gate = (name: string) => {
      const known = gates.get(name) ?? deferred<null>();
      gates.set(name, known);
      return known;
    };
    const model = scriptedModel(async ({ lastUserText }) => {
      await gate(lastUserText).promise;
      return { text: `heard ${lastUserText}` };
    });
    return { gate, agents: [agent({ name: "desk", model, whileActive: arrival }) as Agent] };
  }

  const texts = (client: HttpAgent) => client.messages.map(({ content }) => content);

  test("a second tab is shown what is going on, and then its own turn; both end with the same conversation", async () => {
    const { gate, agents } = slow("queue");
    const { url } = await serving(agents);
    const tabs = [1, 2].map(() => new HttpAgent({ url: `${url}/agents/desk`, threadId: "t" }));
    const [one, two] = tabs as [HttpAgent, HttpAgent];
    one.addMessage({ id: "u1", role: "user", content: "one" });
    const first = one.runAgent({ runId: "r1" });
    await ended(url, "t", ["running"]);
    two.setMessages([{ id: "u1", role: "user", content: "one" }]);
    two.addMessage({ id: "u2", role: "user", content: "two" });
    const seen: string[] = [];
    const isShown = deferred<null>();
    const second = two.runAgent(
      { runId: "r2" },
      {
        onRunStartedEvent({ event }) {
          seen.push(event.runId);
          isShown.resolve(null);
        },
        onRunFinishedEvent: ({ event }) => void seen.push(event.runId),
      },
    );
    await isShown.promise;
    gate("one").resolve(null);
    await first;
    expect(texts(one)).toEqual(["one", "heard one"]);
    gate("two").resolve(null);
    await second;
    expect(seen).toEqual(["r1", "r1", "r2", "r2"]);
    expect(texts(two)).toEqual(["one", "heard one", "two", "heard two"]);
    gate("three").resolve(null);
    two.addMessage({ id: "u3", role: "user", content: "three" });
    await two.runAgent({ runId: "r3" });
    expect(texts(two)).toEqual(["one", "heard one", "two", "heard two", "three", "heard three"]);
  });

  test("a message that cancels: the first tab sees its run cancelled, the second one its answer", async () => {
    const { gate, agents } = slow("cancel-and-go");
    const { url } = await serving(agents);
    const [one, two] = [1, 2].map(() => new HttpAgent({ url: `${url}/agents/desk`, threadId: "t" })) as [
      HttpAgent,
      HttpAgent,
    ];
    one.addMessage({ id: "u1", role: "user", content: "one" });
    const outcomes: unknown[] = [];
    const first = one.runAgent(
      { runId: "r1" },
      { onRunFinishedEvent: ({ event }) => void outcomes.push(event.outcome) },
    );
    await ended(url, "t", ["running"]);
    two.addMessage({ id: "u2", role: "user", content: "two" });
    gate("two").resolve(null);
    await two.runAgent({ runId: "r2" });
    await first;
    expect(outcomes).toEqual([{ type: "cancelled" }]);
    expect(texts(two)).toEqual(["one", "two", "heard two"]);
  });
});

test("a body of one's own is asked in turn as well, with the state that the run before it has left", async () => {
  const first = deferred<null>();
  const counter = agent<{ count: number }>({
    name: "counter",
    whileActive: "queue",
    state: { initial: () => ({ count: 0 }) },
    async run(ctx) {
      if (ctx.state.count === 0) await first.promise;
      ctx.updateState((state) => void state.count++);
      return ctx.state.count;
    },
  });
  const { url } = await serving([counter as Agent]);
  const post = (runId: string) =>
    fetch(
      `${url}/agents/counter`,
      posts({ threadId: "t", runId, messages: [says(runId, "more")], state: { count: 0 } }),
    );
  const streams = [await post("r1"), await post("r2"), await post("r3")];
  first.resolve(null);
  const results: unknown[] = [];
  for (const stream of streams) {
    const last = eventsOf(await stream.text()).at(-1);
    results.push(last?.type === "RUN_FINISHED" && last.result);
  }
  expect(results).toEqual([1, 2, 3]);
});

test("another word for a policy is refused where it is defined", () => {
  const define = () => agent({ name: "desk", model: scriptedModel([]), whileParked: "wait" as Arrival });
  expect(define).toThrow(AgentDefinitionError);
  expect(define).toThrow('whileParked: "wait"; it is "refuse", "queue" or "cancel-and-go"');
});
