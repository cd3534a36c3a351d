/** `/threads/:id/stream`, over real sockets: with a cursor exactly the rest, without one a prelude. */
import { agent, memory, type RunContext, type Served } from "perdure";
import { beforeEach, describe, expect, it } from "vitest";
import { desk } from "./desk.ts";
import {
  as,
  ask,
  byHeader,
  deferred,
  ended,
  eventsOf,
  type Framed,
  framesOf,
  fresh,
  json,
  open,
  readUntil,
  says,
  served,
  serving,
  textOf,
  types,
} from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

/** A thread with two turns: one with tools and an approval that somebody gave, and one of small talk. */
describe("a thread of two turns", () => {
  let server: Served;
  let whole: readonly Framed[];
  let threadId: string;
  const read = async (query = "", headers: Readonly<Record<string, string>> = {}) =>
    framesOf((await ask(`${server.url}/threads/${threadId}/stream${query}`, { method: "GET", headers })).text);

  beforeEach(async () => {
    const { agent: asking } = desk();
    server = await serving([asking]);
    const body = fresh({ messages: [says("u1", "9000")] });
    threadId = body.threadId;
    const at = `${server.url}/agents/desk`;
    const first = framesOf((await ask(at, { body: JSON.stringify(body) })).text);
    const last = first.at(-1)?.event;
    const asked = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    const resume = asked.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
    const second = framesOf((await ask(at, { body: JSON.stringify({ ...body, runId: "r2", resume }) })).text);
    const third = framesOf(
      (await ask(at, { body: JSON.stringify({ ...body, runId: "r3", messages: [says("u2", "5")] }) })).text,
    );
    whole = [...first, ...second, ...third];
  });

  it("every frame has a cursor, and with each one gets exactly the rest, through later legs and turns", async () => {
    expect(whole.filter(({ event }) => event.type === "RUN_FINISHED")).toHaveLength(3);
    for (const [i, { cursor }] of whole.entries()) {
      expect(cursor).toEqual(expect.any(String));
      expect(await read(`?after=${cursor}`)).toEqual(whole.slice(i + 1));
    }
  });

  it("Last-Event-ID says the same as ?after=, as a browser's EventSource sends it", async () => {
    const middle = Math.floor(whole.length / 2);
    expect(await read("", { "last-event-id": whole[middle]?.cursor ?? "" })).toEqual(whole.slice(middle + 1));
  });

  it("without one begins with a prelude, whose last frame alone has a cursor, and at rest ends with the last terminal event", async () => {
    const frames = await read();
    expect(frames.map(({ event }) => event.type)).toEqual([
      ...["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"],
    ]);
    expect(frames.map(({ cursor }) => cursor !== undefined)).toEqual([false, false, false, true]);
    expect(await read(`?after=${frames.at(-1)?.cursor}`)).toEqual([]);
  });

  it("a cursor that is unknown, foreign, of the future or none at all means none", async () => {
    const prelude = await read();
    const [seq = "", leg = ""] = (whole.at(-1)?.cursor ?? "").split(".");
    const [uid, runId] = JSON.parse(atob(leg)) as [string, string];
    const made = (seq: string | number, ...parts: unknown[]) =>
      `${seq}.${Buffer.from(JSON.stringify(parts)).toString("base64url")}`;
    expect(made(seq, uid, runId)).toBe(whole.at(-1)?.cursor);
    await ask(`${server.url}/agents/desk`, { body: JSON.stringify(fresh({ messages: [says("u1", "1")] })) });
    const otherText = await ask(`${server.url}/agents/desk`, {
      body: JSON.stringify(fresh({ messages: [says("u1", "1")] })),
    });
    const foreign = framesOf(otherText.text)[2]?.cursor;
    for (const cursor of [
      ...[
        "nonsense",
        "%00",
        `${seq}.`,
        `${seq}.nonsense`,
        made(seq),
        made(seq, uid),
        made(seq, 3, runId),
        made("x", uid, runId),
        made(Number(seq) + 100, uid, runId),
        made(-3, uid, runId),
      ],
      ...[made(1, uid.replace(/^./, "f"), runId), leg, foreign, ""],
    ]) {
      expect(await read(`?after=${cursor}`)).toEqual(prelude);
    }
  });

  it.each(versions)("the published client %s gets it by POST, and holds the conversation", async (version) => {
    const stock = stockClient(version, { url: `${server.url}/threads/${threadId}/stream`, threadId });
    await stock.run({ runId: "look" });
    expect(stock.messages.map(({ role }) => role)).toEqual([
      ...["user", "reasoning", "assistant", "tool", "assistant", "tool", "assistant"],
      ...["user", "reasoning", "assistant", "tool", "assistant", "tool", "assistant"],
    ]);
    expect(stock.messages.at(-1)).toMatchObject({ content: "Done with 5 cents." });
    // Nothing was started by it.
    expect((await read()).length).toBe(4);
  });
});

describe("a thread that goes on", () => {
  /** Says what it was told, when it may. */
  const gated = () => {
    const gates = new Map<string, ReturnType<typeof deferred<void>>>();
    const gate = (text: string) => {
      const made = gates.get(text) ?? deferred();
      gates.set(text, made);
      return made;
    };
    const body = async (ctx: RunContext): Promise<void> => {
      using message = ctx.message();
      message.delta(`${ctx.lastUserText()}: `);
      await gate(ctx.lastUserText()).promise;
      message.delta("said");
    };
    return { gate, body };
  };

  it("a reader that joins in the middle is sent what is open and then what is live, and is let go when no leg is open", async () => {
    const { gate, body } = gated();
    const { url } = await served({ gated: body });
    const request = fresh({ messages: [says("u1", "one")] });
    const poster = await open(`${url}/agents/gated`, { body: JSON.stringify(request) });
    await readUntil(poster.response, "one: ");
    const reader = await open(`${url}/threads/${request.threadId}/stream`, { method: "GET" });
    const begun = await readUntil(reader.response, "TEXT_MESSAGE_START");
    gate("one").resolve();
    const events = eventsOf(begun + (await textOf(reader.response)));
    expect(events.map(({ type }) => type)).toEqual([
      ...["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START"],
      ...["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"],
    ]);
    poster.response.resume();
  });

  it("a reader that came under a run id of its own goes by that, also when it comes back with its cursor", async () => {
    const { gate, body } = gated();
    const { url } = await served({ gated: body });
    const request = fresh({ messages: [says("u1", "one")] });
    const poster = await open(`${url}/agents/gated`, { body: JSON.stringify(request) });
    await readUntil(poster.response, "one: ");
    const at = `${url}/threads/${request.threadId}/stream`;
    const reader = await open(at, { body: JSON.stringify({ ...request, runId: "mine" }) });
    const begun = framesOf(await readUntil(reader.response, "TEXT_MESSAGE_START"));
    reader.abort();
    expect(begun[0]?.event).toMatchObject({ type: "RUN_STARTED", runId: "mine" });
    const back = await open(`${at}?after=${begun.at(-1)?.cursor}`, { method: "GET" });
    gate("one").resolve();
    expect(eventsOf(await textOf(back.response)).at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "mine" });
    expect(eventsOf(await textOf(poster.response)).at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "r" });
  });

  it("?follow=1 stays across turns", async () => {
    const { gate, body } = gated();
    const { url } = await served({ gated: body });
    for (const text of ["one", "two"]) gate(text).resolve();
    const request = fresh({ messages: [says("u1", "one")] });
    await ask(`${url}/agents/gated`, { body: JSON.stringify(request) });
    const follower = await open(`${url}/threads/${request.threadId}/stream?follow=1`, { method: "GET" });
    const first = await readUntil(follower.response, "RUN_FINISHED");
    await ask(`${url}/agents/gated`, {
      body: JSON.stringify({ ...request, runId: "r2", messages: [says("u2", "two")] }),
    });
    const second = await readUntil(follower.response, "RUN_FINISHED");
    follower.abort();
    expect(types(first).at(-1)).toBe("RUN_FINISHED");
    expect(eventsOf(second)[0]).toMatchObject({ type: "RUN_STARTED", runId: "r2" });
    expect(types(second).at(-1)).toBe("RUN_FINISHED");
  });

  it("?follow=1 stays while a question waits, and shows the leg that the inbox's answer makes", async () => {
    const { agent: asking } = desk();
    const { url } = await serving([asking]);
    const request = fresh({ messages: [says("u1", "9000")] });
    await ask(`${url}/agents/desk`, { body: JSON.stringify(request) });
    const follower = await open(`${url}/threads/${request.threadId}/stream?follow=1`, { method: "GET" });
    const first = await readUntil(follower.response, "RUN_FINISHED");
    const id = /"interrupts":\[\{"id":"([^"]+)"/.exec(first)?.[1] ?? "";
    await ask(`${url}/inbox/${id}`, { body: JSON.stringify({ status: "resolved", payload: { approved: true } }) });
    const second = await readUntil(follower.response, "RUN_FINISHED");
    follower.abort();
    expect(types(second)[0]).toBe("RUN_STARTED");
    expect(types(second)).toContain("TOOL_CALL_RESULT");
    expect(eventsOf(second).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("is kept alive through silence", async () => {
    const { gate, body } = gated();
    const { url } = await served({ gated: body }, { keepAlive: 5 });
    const request = fresh({ messages: [says("u1", "one")] });
    const poster = await open(`${url}/agents/gated`, { body: JSON.stringify(request) });
    const reader = await open(`${url}/threads/${request.threadId}/stream`, { method: "GET" });
    await readUntil(reader.response, ": keep-alive\n\n: keep-alive\n\n");
    gate("one").resolve();
    expect(types(await textOf(reader.response)).at(-1)).toBe("RUN_FINISHED");
    poster.response.resume();
  });
});

describe("a question that was just answered in the inbox", () => {
  it("has a leg that is due: a reader without a cursor waits for it, and is not shown the question once more", async () => {
    const { agent: asking, ledger } = desk();
    let isHeld = false;
    const held = deferred();
    const below = memory();
    const store = new Proxy(below, {
      get(target, name) {
        if (name === "claim" && isHeld) return (owner: string) => held.promise.then(() => target.claim(owner));
        const member = Reflect.get(target, name) as unknown;
        return typeof member === "function" ? (member.bind(target) as unknown) : member;
      },
    });
    const { url } = await serving([asking], { store });
    const request = fresh({ messages: [says("u1", "9000")] });
    const stopped = await ask(`${url}/agents/desk`, { body: JSON.stringify(request) });
    const id = /"interrupts":\[\{"id":"([^"]+)"/.exec(stopped.text)?.[1] ?? "";
    isHeld = true;
    await ask(`${url}/inbox/${id}`, { body: JSON.stringify({ status: "resolved", payload: { approved: true } }) });
    const seen = ask(`${url}/threads/${request.threadId}/stream`, { method: "GET" });
    // Whoever reads the log without waiting for anything has read it by now.
    await ask(`${url}/threads/${request.threadId}/stream?agent=nobody`, { method: "GET" });
    held.resolve();
    expect(eventsOf((await seen).text).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(ledger).toEqual([9000]);
  });
});

describe("what is asked for", () => {
  it("every stream names the run that it begins with, which a browser's page elsewhere may read", async () => {
    const origin = "https://app.example";
    const { agent: asking } = desk();
    const { url } = await serving([asking], { authorize: byHeader, cors: { origins: [origin] } });
    const headers = { ...as("ann"), origin };
    const request = fresh({ messages: [says("u1", "5")] });
    const posted = await ask(`${url}/agents/desk`, { headers, body: JSON.stringify(request) });
    const run = await ended(url, request.threadId, undefined, headers);
    const again = await ask(`${url}/agents/desk`, { headers, body: JSON.stringify(request) });
    const byThread = await ask(`${url}/threads/${request.threadId}/stream`, { method: "GET", headers });
    const byRun = await ask(`${url}/runs/${run.uid}/stream`, { method: "GET", headers });
    for (const answer of [posted, again, byThread, byRun]) {
      expect(answer.headers["perdure-run"]).toBe(run.uid);
      expect(answer.headers["access-control-expose-headers"]).toContain("perdure-run");
    }
  });

  const hi = async (ctx: RunContext) => void ctx.say("hi");
  const codeOf = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;

  it("?agent= is needed where several agents may have the thread, and says which", async () => {
    const { url } = await served({ one: hi, two: hi });
    const request = fresh();
    await ask(`${url}/agents/two`, { body: JSON.stringify(request) });
    const at = `${url}/threads/${request.threadId}/stream`;
    const vague = await ask(at, { method: "GET" });
    expect([vague.status, codeOf(vague.text)]).toEqual([400, "AGENT_NEEDED"]);
    expect((await ask(`${at}?agent=two`, { method: "GET" })).status).toBe(200);
    for (const name of ["one", "nobody"]) {
      const other = await ask(`${at}?agent=${name}`, { method: "GET" });
      expect([other.status, codeOf(other.text)]).toEqual([404, "THREAD_NOT_FOUND"]);
    }
  });

  it("a thread of the same name under another subject is another thread", async () => {
    const who = agent({ name: "who", run: async (ctx) => void ctx.say(ctx.principal.subject) });
    const { url } = await serving([who], { authorize: byHeader });
    const body = JSON.stringify(fresh({ threadId: "shared-name" }));
    for (const subject of ["ann", "bob"]) {
      const events = eventsOf((await ask(`${url}/agents/who`, { headers: as(subject), body })).text);
      expect(events).toContainEqual(expect.objectContaining({ delta: subject }));
    }
    const seen = await ask(`${url}/threads/shared-name/stream`, { method: "GET", headers: as("bob") });
    expect(seen.text).toContain('"content":"bob"');
    expect(seen.text).not.toContain("ann");
  });

  it("by POST it takes what an agent takes: the same refusals", async () => {
    const { url } = await served({ hi });
    const request = fresh();
    await ask(`${url}/agents/hi`, { body: JSON.stringify(request) });
    const at = `${url}/threads/${request.threadId}/stream`;
    expect((await ask(at, { body: "{" })).status).toBe(400);
    expect((await ask(at, { headers: { "content-type": "text/plain" } })).status).toBe(415);
    expect((await ask(at, { headers: { ...json, accept: "application/json" } })).status).toBe(406);
    const shown = await ask(at, { body: JSON.stringify({ ...request, runId: "mine" }) });
    expect(eventsOf(shown.text)).toMatchObject([
      { type: "RUN_STARTED", runId: "mine" },
      { type: "STATE_SNAPSHOT" },
      { type: "MESSAGES_SNAPSHOT", messages: [{ content: "hi" }] },
      { type: "RUN_FINISHED", runId: "mine" },
    ]);
  });
});

it("a log that cannot be read for a moment fails who reads it then, and nobody watches it for him; who comes later gets all of it", async () => {
  const store = memory();
  const watching = new Set<object>();
  const watch: typeof store.watch = store.watch.bind(store);
  store.watch = (...of: Parameters<typeof store.watch>) => {
    const unwatch = watch(...of);
    const isRuns = typeof of[0] === "object" && "run" in of[0];
    if (isRuns) watching.add(unwatch);
    return () => {
      watching.delete(unwatch);
      unwatch();
    };
  };
  const { agent: asking } = desk();
  const server = await serving([asking], { store });
  const body = fresh({ messages: [says("u", "5")] });
  const whole = framesOf((await ask(`${server.url}/agents/desk`, { body: JSON.stringify(body) })).text);
  const url = `${server.url}/threads/${body.threadId}/stream`;
  const readWell = store.read.bind(store);
  store.read = () => {
    throw new Error("the disk is away");
  };
  for (let i = 0; i < 2; i++) expect((await ask(url, { method: "GET" })).status).toBe(500);
  expect(watching.size).toBe(0);
  store.read = readWell;
  const [begun, ...rest] = whole;
  expect(framesOf((await ask(`${url}?after=${begun?.cursor}`, { method: "GET" })).text)).toEqual(rest);
  expect(eventsOf((await ask(url, { method: "GET" })).text).at(-1)).toMatchObject({ type: "RUN_FINISHED" });
});
