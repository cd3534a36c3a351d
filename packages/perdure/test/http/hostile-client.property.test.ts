/**
 * Whatever a client sends, or somebody with a link to the inbox: each request is answered, and none with a 5xx; nothing is reported, set aside or
 * done twice; and afterwards the thread takes an honest request and ends well.
 */
import fc from "fast-check";
import type { RuntimeOptions } from "perdure";
import { expect, onTestFinished, test } from "vitest";
import { childUid } from "../../src/runtime/child-start.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { patiently } from "../../src/testing/patience.ts";
import { folder } from "../store/folder.ts";
import {
  type HostileWorld,
  hostileWorld,
  place,
  type Replied,
  request,
  SERVERS,
  user,
  waitsFor,
} from "./hostile-world.ts";

const AGENTS = ["desk", "open", "formal", "loop"] as const;

/** What can be known of a thread by whoever has seen its streams. */
interface Known {
  /** Runs, the newest first. */
  readonly uids: readonly string[];
  /** Ids of all kinds that have been seen. */
  readonly ids: readonly string[];
  readonly calls: readonly string[];
  readonly questions: readonly string[];
}
/** Text that is made of what is known when it is sent. */
type Text = (known: Known) => string;

const fixed = (...texts: readonly string[]) =>
  fc.constantFrom(...texts).map(
    (text): Text =>
      () =>
        text,
  );
const pickOf = (of: (known: Known) => readonly string[], fallback: string) =>
  fc.nat(1_000).map(
    (n): Text =>
      (known) =>
        of(known).at(n % Math.max(1, of(known).length)) ?? fallback,
  );
const odd = fixed(
  "__proto__",
  "constructor",
  "a/b",
  "..",
  "é\u{1f600}",
  "r:q:0:x",
  "t",
  "desk",
  " ",
  "0",
  "u0",
  "u1",
  "r0",
  "r1",
);
const uid = pickOf(({ uids }) => uids, "none");
const future = fc
  .tuple(
    uid,
    fc.constantFrom("0", "1.0", "2", "2.0", "3.0", "3.1", "3.2", "5.0", "7.0", "0.0", "1", "2.0.0"),
    fc.constantFrom("m0", "t0", "c0", "r0", "i0", "b0", "a0"),
    fc.boolean(),
  )
  .map(
    ([run, path, kind, isChilds]): Text =>
      (known) => {
        const parent = run(known);
        return isChilds ? `${childUid(parent as never, "7.0" as never)}:${path}:${kind}` : `${parent}:${path}:${kind}`;
      },
  );
const leg = fc.tuple(uid, fc.integer({ min: 1, max: 6 })).map(
  ([run, n]): Text =>
    (known) =>
      `${run(known)}.${n}`,
);
const fresh = fc.nat(1_000_000).map(
  (n): Text =>
    () =>
      `n${n}`,
);
const id = fc.oneof(
  odd,
  uid,
  future,
  future,
  leg,
  fresh,
  fresh,
  pickOf(({ ids }) => ids, "u0"),
  pickOf(({ ids }) => ids, "u0"),
);

const json: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    ...[
      "null",
      "true",
      "0",
      "-0",
      "1e999",
      '""',
      '"\\ud800"',
      "[]",
      "{}",
      '{"n":1}',
      '{"n":"x"}',
      '{"__proto__":{"x":1}}',
    ],
    ...['{"toJSON":1,"constructor":2,"then":3}', '{"approved":true}', '{"approved":true,"editedArgs":{"n":9}}'],
    ...['{"approved":true,"editedArgs":7}', '{"approved":"yes"}', '{"raise":{"steps":1}}', '{"did":"yes","output":1}'],
    ...["[".repeat(400) + "]".repeat(400), "[".repeat(600) + "]".repeat(600), `"${"x".repeat(70_000)}"`],
  ),
  fc.json({ maxDepth: 2 }),
);
const content = fc.constantFrom<unknown>("go", "", "\ud800", [], [{ type: "text", text: "" }], "x".repeat(70_000), [
  { type: "image", source: { type: "url", value: "nowhere" } },
  { type: "odd" },
]);

type Message = (known: Known) => object;
const of = (role: string) =>
  fc.tuple(id, content).map(
    ([one, said]): Message =>
      (known) => ({ id: one(known), role, content: said }),
  );
const call = fc.oneof(
  pickOf(({ calls }) => calls, "c"),
  id,
);
const message: fc.Arbitrary<Message> = fc.oneof(
  of("user"),
  of("user"),
  of("system"),
  of("reasoning"),
  fc.tuple(id, call, content).map(
    ([one, of, said]): Message =>
      (known) => ({
        ...{ id: one(known), role: "tool", toolCallId: of(known), content: Array.isArray(said) ? "listed" : said },
      }),
  ),
  fc.tuple(id, call, fc.constantFrom(...SERVERS, "place"), fc.constantFrom("{}", "{", "7")).map(
    ([one, of, name, args]): Message =>
      (known) => ({
        ...{ id: one(known), role: "assistant", content: "So." },
        toolCalls: [{ id: of(known), type: "function", function: { name, arguments: args } }],
      }),
  ),
  id.map(
    (one): Message =>
      (known) => ({ id: one(known), role: "activity", activityType: "x", content: {} }),
  ),
);
const toolName = fc.constantFrom(
  "place",
  "place",
  "look",
  "pay",
  "note",
  "helper",
  "final_answer",
  "",
  "__proto__",
  "x".repeat(2_000),
  "\ud800",
);
const tools = fc.array(
  fc.record({
    name: toolName,
    description: fc.constant(""),
    parameters: fc.constantFrom<unknown>({ type: "object" }, 7, null, { $ref: "#/no" }),
  }),
  { maxLength: 4 },
);
const question = fc.oneof(
  pickOf(({ questions }) => questions, "i"),
  pickOf(({ questions }) => questions, "i"),
  id,
);
const resume = fc.array(fc.tuple(question, fc.constantFrom("resolved", "resolved", "cancelled"), json), {
  maxLength: 3,
});

type Action =
  | { readonly do: "post"; readonly isTwice: boolean; readonly body: (known: Known) => string }
  | { readonly do: "send"; readonly path: Text; readonly body: (known: Known) => string | undefined }
  | { readonly do: "honest" };

const post: fc.Arbitrary<Action> = fc
  .record({
    ...{
      runId: id,
      messages: fc.array(message, { maxLength: 4 }),
      tools: fc.oneof(fc.constant([place]), tools),
      resume,
    },
    ...{ isCopy: fc.boolean(), isTwice: fc.boolean(), state: json, forwardedProps: json },
    protocolVersion: fc.constantFrom("1.0", "0.0.45", "", "x", "99"),
  })
  .map(
    ({ runId, messages, resume: answers, isCopy, isTwice, state, forwardedProps, ...more }): Action => ({
      ...{ do: "post", isTwice },
      body(known) {
        const entries = answers.map(
          ([of, status, payload]) =>
            `{"interruptId":${JSON.stringify(of(known))},"status":"${status}","payload":${payload}}`,
        );
        const said = messages.map((make) => make(known));
        // Another message of the same id is refused by its shape, and there are enough of those.
        const first = said.filter(
          (one, i) => said.findIndex((other) => JSON.stringify(idIn(other)) === JSON.stringify(idIn(one))) === i,
        );
        const body = JSON.stringify({
          ...request(runId(known), isCopy ? [user("u0"), ...first.filter((one) => idIn(one) !== "u0")] : first),
          ...more,
        });
        return `${body.slice(0, -1)},"resume":[${entries.join(",")}],"state":${state},"forwardedProps":${forwardedProps}}`;
      },
    }),
  );
const idIn = (one: object): unknown => ("id" in one ? one.id : undefined);

const send: fc.Arbitrary<Action> = fc.oneof(
  fc.tuple(question, fc.constantFrom("resolved", "cancelled"), json).map(
    ([of, status, payload]): Action => ({
      ...{ do: "send", path: (known) => `/inbox/${encodeURIComponent(of(known))}` },
      body: () => `{"status":"${status}","payload":${payload}}`,
    }),
  ),
  fc.tuple(uid, fc.constantFrom("cancel", "raise", "prune", "signals/go", "signals/__proto__"), json).map(
    ([of, what, body]): Action => ({
      ...{ do: "send", path: (known) => `/runs/${of(known)}/${what}`, body: () => body },
    }),
  ),
  fc.tuple(uid, fc.integer({ min: -1, max: 60 }), json, id).map(
    ([of, at, state, thread]): Action => ({
      ...{ do: "send", path: (known) => `/runs/${of(known)}/fork` },
      body: (known) =>
        `{"at":${at},"edits":{"state":${state}},"thread":${JSON.stringify(thread(known))},"acknowledge":["note","pay"]}`,
    }),
  ),
);
const actions = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: post },
    { weight: 2, arbitrary: send },
    { weight: 4, arbitrary: fc.constant<Action>({ do: "honest" }) },
  ),
  { minLength: 1, maxLength: 7 },
);

class Play {
  readonly #seen = { ids: new Set<string>(), calls: new Set<string>(), questions: new Set<string>() };
  #answers = 0;
  #honest = 0;

  constructor(
    readonly world: HostileWorld,
    readonly agent: string,
  ) {}

  async act(action: Action): Promise<void> {
    if (action.do === "honest") return void (await this.goOn());
    const known = await this.#known();
    const path = action.do === "post" ? `/agents/${this.agent}` : action.path(known);
    const body = action.body(known);
    await Promise.all(
      Array.from({ length: action.do === "post" && action.isTwice ? 2 : 1 }, () => this.#send(path, body)),
    );
  }

  /** Answers what is waited for, once. @returns what the thread waits for then */
  async goOn(): Promise<ReturnType<typeof waitsFor>> {
    const { calls, resume } = waitsFor(await this.#honestly([]));
    if (calls.length + resume.length === 0) return { calls, resume };
    const results = calls.map((of, i) => ({
      id: `h${this.#honest}-${i}`,
      role: "tool",
      toolCallId: of,
      content: "here",
    }));
    return waitsFor(await this.#honestly(results, resume));
  }

  /** What is open is answered, and the user's next message too, to the end. */
  async endWell(): Promise<Replied> {
    await this.#untilRest();
    await this.#honestly([user("last-words", "And now?")]);
    await this.#untilRest();
    return await this.#honestly([]);
  }

  async #untilRest(): Promise<void> {
    for (let n = 0; n < 60; n++) {
      const { calls, resume } = await this.goOn();
      if (calls.length + resume.length === 0) return;
    }
    throw new Error("it asks and asks");
  }

  async #honestly(messages: readonly object[], resume: readonly object[] = []): Promise<Replied> {
    const reply = await this.#send(
      `/agents/${this.agent}`,
      JSON.stringify(request(`honest-${this.#honest++}`, messages, { resume })),
    );
    expect([reply.status, reply.status === 200 ? "" : reply.text]).toEqual([200, ""]);
    return reply;
  }

  async #send(path: string, body?: string): Promise<Replied> {
    const stuck = (why: string) =>
      new Error(`${path} is not answered, ${why}: ${body}\n${this.world.errors.map(String).join("\n")}`);
    const reply = await patiently(this.world.send(path, body), {
      patience: 10_000,
      progress: () => this.#answers,
      stuck,
    });
    this.#answers += 1;
    if (reply.status >= 500)
      throw new Error(
        `${path} is answered with ${reply.status} ${reply.text}: ${body}\n${this.world.errors.map(String).join("\n")}`,
      );
    this.#see(reply);
    return reply;
  }

  #see({ events }: Replied): void {
    const { ids, calls, questions } = this.#seen;
    for (const event of events) {
      if ("messageId" in event && event.messageId !== undefined) ids.add(event.messageId);
      if ("toolCallId" in event && event.toolCallId !== undefined) calls.add(event.toolCallId).add(event.toolCallId);
      if (event.type === "CUSTOM" && event.name === "perdure.interrupt")
        questions.add((event.value as { id: string }).id);
    }
  }

  async #known(): Promise<Known> {
    const { runs } = await this.world.get<{ runs: { uid: string }[] }>("/runs");
    const { ids, calls, questions } = this.#seen;
    const { interrupts } = await this.world.get<{ interrupts: { id: string }[] }>("/inbox");
    const open = interrupts.map((one) => one.id);
    return {
      uids: runs.map((run) => run.uid),
      ids: [...ids, ...calls, "u0", "u1"],
      calls: [...calls],
      questions: [...open, ...open, ...questions],
    };
  }
}

async function isHarmless(agent: string, does: readonly Action[], options: Partial<RuntimeOptions>): Promise<void> {
  const world = hostileWorld(options);
  try {
    const play = new Play(world, agent);
    for (const action of does) await play.act(action);
    const end = await play.endWell();
    expect(end.events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(world.errors).toEqual([]);
    expect(new Set(world.ledger).size).toBe(world.ledger.length);
    const { runs } = await world.get<{ runs: { aside: string | null }[] }>("/runs");
    expect(runs.filter(({ aside }) => aside !== null)).toEqual([]);
  } finally {
    await world.runtime.close();
  }
}

test.each(AGENTS)("memory: nothing that a client sends harms agent %s", async (agent) => {
  await fc.assert(
    fc.asyncProperty(actions, (does) => isHarmless(agent, does, {})),
    { numRuns: 5 },
  );
});

test("sqlite: nothing that a client sends harms an agent", async () => {
  const { dir, remove } = await folder();
  onTestFinished(remove);
  let files = 0;
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...AGENTS), actions, (agent, does) =>
      isHarmless(agent, does, { store: sqlite(`${dir}/${files++}.db`) }),
    ),
    { numRuns: 4 },
  );
});
