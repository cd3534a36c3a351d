/**
 * Whoever comes to a thread, in whatever state it is, by whatever way: he ends with its conversation. Over real sockets, with the published clients
 * where they can go that way, and frame by frame where only a browser or a program can.
 */
import { agent, type RunContext, type Served } from "perdure";
import { describe, expect, test } from "vitest";
import type { AGUIEvent, Message } from "../../src/protocol/events.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { desk } from "./desk.ts";
import {
  ask,
  deferred,
  type Framed,
  framesOf,
  fresh,
  get,
  type ListedRun,
  open,
  readUntil,
  says,
  serving,
} from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

interface Thread {
  readonly server: Served;
  readonly agent: string;
  readonly body: { readonly threadId: string; readonly runId: string; readonly messages: readonly object[] };
  /** What its first reader has got by now, in order. */
  readonly got: readonly Framed[];
  /** Lets what is live come to its end. */
  readonly goOn: () => void;
  /** Whether frames of it can still be had one by one. */
  readonly isWhole: boolean;
  /** Role, and text where there is some. */
  readonly holds: readonly (readonly [role: string, text?: string])[];
  readonly ends: object;
}

const LOOKED = [
  ["reasoning", "Look first."],
  ["assistant", "One moment."],
  ["tool", '{"paid":CENTS}'],
  ["assistant"],
] as const;
const looked = (cents: string): Thread["holds"] => [
  ["user", cents],
  ...LOOKED.map(([role, text]) =>
    text === undefined ? ([role] as const) : ([role, text.replace("CENTS", cents)] as const),
  ),
];
const refunded = (cents: string): Thread["holds"] => [
  ...looked(cents),
  ["tool", `{"refunded":${cents}}`],
  ["assistant", `Done with ${cents} cents.`],
];
const SUCCESS = { type: "RUN_FINISHED", outcome: { type: "success" } };

async function atDesk(cents: string): Promise<Thread> {
  const { agent: asking } = desk();
  const server = await serving([asking]);
  const body = fresh({ messages: [says("u1", cents)] });
  const got = framesOf((await ask(`${server.url}/agents/desk`, { body: JSON.stringify(body) })).text);
  return { server, agent: "desk", body, got, goOn: () => {}, isWhole: true, holds: refunded(cents), ends: SUCCESS };
}

const uidOf = async ({ server, body }: Thread): Promise<string> =>
  (await get<{ runs: ListedRun[] }>(`${server.url}/runs?thread=${body.threadId}`)).runs[0]?.uid ?? "";

const states: Readonly<Record<string, () => Promise<Thread>>> = {
  async live() {
    const gate = deferred();
    const gated = agent<{ n: number }>({
      name: "gated",
      state: { initial: () => ({ n: 0 }) },
      async run(ctx: RunContext<{ n: number }>) {
        ctx.updateState((state) => void state.n++);
        ctx.publishState();
        using message = ctx.message();
        message.delta(`${ctx.lastUserText()}: `);
        await gate.promise;
        message.delta("said");
      },
    });
    const server = await serving([gated]);
    const body = fresh({ messages: [says("u1", "one")] });
    const { response } = await open(`${server.url}/agents/gated`, { body: JSON.stringify(body) });
    const got = framesOf(await readUntil(response, '"one: "'));
    response.resume();
    const holds = [
      ["user", "one"],
      ["assistant", "one: said"],
    ] as const;
    return { server, agent: "gated", body, got, goOn: () => gate.resolve(), isWhole: true, holds, ends: SUCCESS };
  },
  async parked() {
    const thread = await atDesk("9000");
    return { ...thread, holds: looked("9000"), ends: { type: "RUN_FINISHED", outcome: { type: "interrupt" } } };
  },
  finished: () => atDesk("500"),
  /** Answered in the inbox, by nobody who reads. */
  async headless() {
    const thread = await atDesk("9000");
    const last = thread.got.at(-1)?.event;
    const asked = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    const reply = JSON.stringify({ status: "resolved", payload: { approved: true } });
    await ask(`${thread.server.url}/inbox/${asked[0]?.id}`, { body: reply });
    await ask(`${thread.server.url}/runs/${await uidOf(thread)}/stream`, { method: "GET" });
    return thread;
  },
  async pruned() {
    const thread = await atDesk("500");
    const { status } = await ask(`${thread.server.url}/runs/${await uidOf(thread)}/prune`);
    if (status !== 200) throw new Error("it was not pruned");
    return { ...thread, isWhole: false };
  },
  async "headless and pruned"() {
    const thread = await states.headless?.();
    if (thread === undefined) throw new Error("there is such a state");
    await ask(`${thread.server.url}/runs/${await uidOf(thread)}/prune`);
    return { ...thread, isWhole: false };
  },
};

const streamOf = ({ server, body }: Thread) => `${server.url}/threads/${body.threadId}/stream`;

function textOf(message: Message): readonly [string, string?] {
  const { role, content } = message;
  return typeof content === "string" && content !== "" ? [role, content] : [role];
}

function heldAfter(events: readonly AGUIEvent[], own: readonly Message[] = []) {
  const { messages, state } = events.reduce(reduce, newTranscript({ messages: own }));
  return { messages: messages.map(textOf), state };
}

/** A stream that begins with itself: valid from its first event to its last. */
function expectWhole(events: readonly AGUIEvent[]): void {
  let wire = newWire();
  for (const event of events) wire = verify(wire, event);
  verifyEnd(wire);
}

/** By which a reader without a socket of the published client's comes. */
const ways = {
  "GET the thread's stream": (thread: Thread, query: string) => open(`${streamOf(thread)}${query}`, { method: "GET" }),
  "POST the thread's stream": (thread: Thread, query: string) =>
    open(`${streamOf(thread)}${query}`, { body: JSON.stringify({ ...thread.body, runId: "mine" }) }),
  "GET the thread's stream, following": (thread: Thread, query: string) =>
    open(`${streamOf(thread)}${query}${query === "" ? "?" : "&"}follow=1`, { method: "GET" }),
  "POST the thread's stream, following": (thread: Thread, query: string) =>
    open(`${streamOf(thread)}${query}${query === "" ? "?" : "&"}follow=1`, {
      body: JSON.stringify({ ...thread.body, runId: "mine" }),
    }),
  "POST the same run again": (thread: Thread, _: string) =>
    open(`${thread.server.url}/agents/${thread.agent}`, { body: JSON.stringify(thread.body) }),
} as const;

/** What a reader is sent until the run rests. Who follows stays, and is let go here. */
async function readAll(thread: Thread, way: keyof typeof ways, query = ""): Promise<readonly Framed[]> {
  const { response, abort } = await ways[way](thread, query);
  expect(response.statusCode).toBe(200);
  thread.goOn();
  response.setEncoding("utf8");
  let text = "";
  if (!way.endsWith("following")) {
    for await (const chunk of response) text += chunk;
  } else {
    text = await readUntil(response, '"type":"RUN_FINISHED"');
    while (!text.endsWith("\n\n")) text += await readUntil(response, "\n\n");
    abort();
  }
  return framesOf(text);
}

describe.each(Object.keys(states))("a thread that is %s", (state) => {
  const made = async (): Promise<Thread> => {
    const thread = await states[state]?.();
    if (thread === undefined) throw new Error("there is such a state");
    return thread;
  };

  test.each(Object.keys(ways) as (keyof typeof ways)[])(
    "%s: prelude and what is live end with its conversation",
    async (way) => {
      const thread = await made();
      const frames = await readAll(thread, way);
      const events = frames.map(({ event }) => event);
      expectWhole(events);
      expect(heldAfter(events).messages).toEqual(thread.holds);
      expect(events.at(-1)).toMatchObject(thread.ends);
      // The run goes by the id that was asked for.
      if (way.startsWith("POST")) {
        const runId = way === "POST the same run again" ? thread.body.runId : "mine";
        expect(events.filter((event) => "runId" in event).map((event) => "runId" in event && event.runId)).toEqual([
          runId,
          runId,
        ]);
      }
      expect(frames.at(-1)?.cursor).toEqual(expect.any(String));
    },
  );

  test.each(versions)(
    "the published client %s: the same run again, by itself or on the thread's stream",
    async (version) => {
      for (const way of ["again", "stream"] as const) {
        const thread = await made();
        const { threadId, runId } = thread.body;
        const url = way === "again" ? `${thread.server.url}/agents/${thread.agent}` : streamOf(thread);
        const client = stockClient(version, { url, threadId });
        if (way === "again") client.add({ id: "u1", role: "user", content: thread.holds[0]?.[1] ?? "" });
        const running = client.run({ runId });
        // Most often while it is read. Whenever it is, the client ends with the same.
        if (thread.agent === "gated") setTimeout(thread.goOn, 50);
        await running;
        expect(client.messages.map(textOf)).toEqual(thread.holds);
        if (thread.agent === "gated") expect(client.state).toEqual({ n: 1 });
      }
    },
  );

  test.each(
    (Object.keys(ways) as (keyof typeof ways)[]).filter(
      (way) => way !== "POST the same run again" && !way.endsWith("following"),
    ),
  )("%s: a cursor gives exactly the rest where it is there, else what one without a cursor gets", async (way) => {
    const first = await made();
    first.goOn();
    const count = first.got.length;
    for (const at of [0, 1, Math.floor(count / 2), count - 2]) {
      const thread = await made();
      const cursor = thread.got[at]?.cursor ?? "";
      const rest = (await readAll(thread, way, `?after=${cursor}`)).map(({ event }) => event);
      if (thread.isWhole) {
        const before = thread.got.slice(0, at + 1).map(({ event }) => event);
        expect(heldAfter([...before, ...rest]).messages).toEqual(thread.holds);
        expectWhole([...before, ...rest]);
      } else {
        expectWhole(rest);
        expect(heldAfter(rest).messages).toEqual(thread.holds);
        expect(rest[0]?.type).toBe("RUN_STARTED");
      }
    }
  });

  test("a cursor at the end of all that there was is followed by nothing but what comes", async () => {
    const thread = await made();
    thread.goOn();
    if (thread.agent === "gated" || state.startsWith("headless")) return;
    const cursor = thread.got.at(-1)?.cursor ?? "";
    expect(await readAll(thread, "GET the thread's stream", `?after=${cursor}`)).toEqual([]);
    const follower = await open(`${streamOf(thread)}?after=${cursor}&follow=1`, { method: "GET" });
    if (state === "parked") return follower.abort();
    const next = { ...thread.body, runId: "r2", messages: [says("u2", "7")] };
    await ask(`${thread.server.url}/agents/desk`, { body: JSON.stringify(next) });
    const text = await readUntil(follower.response, "RUN_FINISHED");
    follower.abort();
    expect(framesOf(text)[0]?.event).toMatchObject({ type: "RUN_STARTED", runId: "r2" });
  });
});

test("a reader with a cursor of a turn that is there, behind which a turn was pruned, misses none of it", async () => {
  const thread = await atDesk("500");
  const next = { ...thread.body, runId: "r2", messages: [says("u2", "7")] };
  await ask(`${thread.server.url}/agents/desk`, { body: JSON.stringify(next) });
  await ask(`${thread.server.url}/runs/${await uidOf(thread)}/prune`);
  const third = { ...thread.body, runId: "r3", messages: [says("u3", "8")] };
  const last = framesOf((await ask(`${thread.server.url}/agents/desk`, { body: JSON.stringify(third) })).text);
  const at = Math.floor(thread.got.length / 2);
  const rest = await readAll(thread, "GET the thread's stream", `?after=${thread.got[at]?.cursor}`);
  expect(rest.slice(-last.length).map(({ event }) => event.type)).toContain("RUN_FINISHED");
  const events = [...thread.got.slice(0, at + 1), ...rest].map(({ event }) => event);
  expectWhole(events);
  expect(heldAfter(events).messages).toEqual([...refunded("500"), ...refunded("7"), ...refunded("8")]);
});

test("a cursor into a turn that was pruned means none: what a reader without one gets, of the thread and of the run", async () => {
  const thread = await atDesk("500");
  const uid = await uidOf(thread);
  await ask(`${thread.server.url}/runs/${uid}/prune`);
  const next = { ...thread.body, runId: "r2", messages: [says("u2", "7")] };
  await ask(`${thread.server.url}/agents/desk`, { body: JSON.stringify(next) });
  const cursor = thread.got[3]?.cursor ?? "";
  for (const at of [streamOf(thread), `${thread.server.url}/runs/${uid}/stream`]) {
    const without = await ask(at, { method: "GET" });
    expect((await ask(`${at}?after=${cursor}`, { method: "GET" })).text).toBe(without.text);
    expect(framesOf(without.text)).toHaveLength(4);
  }
});
