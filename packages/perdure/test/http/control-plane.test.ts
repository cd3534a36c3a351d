/** The routes beside the streams, over real sockets: runs, their logs, cancelling, and the inbox of open questions. */
import { agent, type Json, type RunContext, type Served, suspend, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { BOSS, desk } from "./desk.ts";
import {
  type Answer,
  as,
  ask,
  byHeader,
  deferred,
  ended,
  eventsOf,
  fresh,
  get,
  json,
  type ListedRun,
  open,
  readUntil,
  served,
  serving,
} from "./rig.ts";

const ANN = as("ann");
const BOB = as("bob", ["answer", BOSS]);

interface Listed {
  readonly id: string;
  readonly run: string;
  readonly thread: string;
  readonly agent: string;
  readonly kind: string;
  readonly reason: string;
  readonly message: string;
  readonly schema: unknown;
  readonly toolCall?: string;
  readonly audience?: string;
  readonly openedAt: number;
}

const said = (content: string) => fresh({ messages: [{ id: "u1", role: "user", content }] });
const errorOf = (answer: Answer) => ({
  status: answer.status,
  ...(JSON.parse(answer.text) as { error: { code: string; message: string; details?: unknown } }).error,
});

async function started(
  server: Served,
  name: string,
  headers: Readonly<Record<string, string>>,
  body: { threadId: string; runId?: string },
) {
  const { response } = await open(`${server.url}/agents/${name}`, { headers, body: JSON.stringify(body) });
  response.resume();
  await new Promise((resolve) => response.once("end", resolve));
}

describe("/healthz", () => {
  it("is ok once the store is open", async () => {
    const { url } = await served({});
    expect(await get(`${url}/healthz`)).toEqual({ status: "ok" });
  });

  it("answers a load balancer, whom the authorize hook does not know", async () => {
    const { url } = await served({}, { authorize: () => null });
    expect(await get(`${url}/healthz`)).toEqual({ status: "ok" });
    expect((await ask(`${url}/runs`, { method: "GET" })).status).toBe(401);
  });
});

describe("/runs", () => {
  const echo = { echo: async (ctx: RunContext) => ctx.lastUserText(), other: async () => {} };

  it("lists one's own, newest first, and tells of each what its row knows", async () => {
    const server = await served(echo, { authorize: byHeader });
    const [first, second] = [said("one"), said("two")];
    for (const body of [first, second]) await started(server, "echo", ANN, body);
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs`, ANN);
    expect(runs.map(({ thread }) => thread)).toEqual([second.threadId, first.threadId]);
    expect(runs[0]).toEqual({
      uid: expect.stringMatching(/^[0-9a-f-]{36}$/),
      ...{ agent: "echo", thread: second.threadId, turn: 1, labels: {}, leg: 1, legOpen: false },
      ...{ createdAt: expect.any(Number), updatedAt: expect.any(Number), head: expect.any(Number) },
      ...{
        state: "success",
        outcome: "success",
        aside: null,
        waitsFor: null,
        wakesAt: null,
        pruned: false,
        waitsForKey: null,
        parent: null,
      },
    });
    expect(await get(`${server.url}/runs/${runs[0]?.uid}`, ANN)).toEqual({ run: runs[0], inbox: [], heldBy: null });
  });

  it("pages, and filters by agent and thread", async () => {
    const server = await served(echo);
    const bodies = [1, 2, 3, 4, 5].map((n) => said(`${n}`));
    for (const body of bodies) await started(server, "echo", json, body);
    await started(server, "other", json, said("6"));
    const threads: string[] = [];
    let pages = 0;
    for (let next: string | undefined = ""; next !== undefined; pages++) {
      const after: string = next === "" ? "" : `&after=${encodeURIComponent(next)}`;
      const page: { runs: ListedRun[]; next?: string } = await get(`${server.url}/runs?agent=echo&limit=2${after}`);
      threads.push(...page.runs.map(({ thread }) => thread));
      next = page.next;
    }
    expect(threads).toEqual(bodies.map(({ threadId }) => threadId).reverse());
    expect(pages).toBe(3);
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs?thread=${bodies[2]?.threadId}`);
    expect(runs).toHaveLength(1);
  });

  it("a log is one JSON entry a line, from the first to the last", async () => {
    const server = await served(echo);
    await started(server, "echo", json, said("one"));
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs`);
    const answer = await ask(`${server.url}/runs/${runs[0]?.uid}/log`, { method: "GET" });
    expect(answer.headers["content-type"]).toBe("application/x-ndjson");
    expect(answer.text.endsWith("\n")).toBe(true);
    const entries = answer.text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { seq: number; kind: string });
    expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, i) => i));
    expect(entries.map(({ kind }) => kind)).toEqual([
      ...["run.started", "leg.started", "frame"],
      ...["leg.finished", "frame", "run.finished"],
    ]);
    expect(entries.at(-1)).toMatchObject({ outcome: "success", output: "one" });
  });

  it("a run's stream is the prelude of that run, or exactly the rest behind a cursor of it", async () => {
    const server = await served(echo);
    const first = said("one");
    const { text } = await ask(`${server.url}/agents/echo`, { body: JSON.stringify(first) });
    await started(server, "echo", json, { ...said("two"), threadId: first.threadId, runId: "r2" });
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs?thread=${first.threadId}`);
    const at = `${server.url}/runs/${runs.at(-1)?.uid}/stream`;
    const whole = await ask(at, { method: "GET" });
    expect(eventsOf(whole.text).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "one" });
    const cursor = /^id: (.*)$/m.exec(text)?.[1] ?? "";
    const rest = await ask(`${at}?after=${cursor}`, { method: "GET" });
    expect(eventsOf(rest.text)).toEqual(eventsOf(text).slice(1));
  });

  it("somebody else's run, thread or question looks like one that is not there", async () => {
    const { agent: asking } = desk();
    const server = await serving([asking], { authorize: byHeader });
    const body = said("20000");
    await started(server, "desk", ANN, body);
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs`, ANN);
    const { interrupts } = await get<{ interrupts: Listed[] }>(`${server.url}/inbox`, ANN);
    const [uid, id] = [runs[0]?.uid, interrupts[0]?.id];
    expect(uid && id).toBeTruthy();
    const nowhere = "00000000-0000-7000-8000-000000000000";
    for (const who of [as("eve"), as("ann", ["*"], "other")]) {
      expect(await get(`${server.url}/runs`, who)).toEqual({ runs: [] });
      expect(await get(`${server.url}/inbox`, who)).toEqual({ interrupts: [] });
      const routes: readonly (readonly [method: string, of: (name: string) => string, name: string, none: string])[] = [
        ["GET", (run) => `/runs/${run}`, uid ?? "", nowhere],
        ["GET", (run) => `/runs/${run}/log`, uid ?? "", nowhere],
        ["GET", (run) => `/runs/${run}/stream`, uid ?? "", nowhere],
        ["POST", (run) => `/runs/${run}/cancel`, uid ?? "", nowhere],
        ["POST", (run) => `/runs/${run}/abandon`, uid ?? "", nowhere],
        ["POST", (run) => `/runs/${run}/prune`, uid ?? "", nowhere],
        ["POST", (interrupt) => `/inbox/${interrupt}`, id ?? "", "nothing"],
        ["GET", (thread) => `/threads/${thread}/stream`, body.threadId, "nowhere"],
      ];
      for (const [method, of, name, none] of routes) {
        const reply = JSON.stringify({ status: "cancelled" });
        const [foreign, missing] = [
          errorOf(await ask(server.url + of(name), { method, headers: who, body: reply })),
          errorOf(await ask(server.url + of(none), { method, headers: who, body: reply })),
        ];
        expect(foreign.status).toBe(404);
        expect(JSON.stringify(foreign).replaceAll(name, "X")).toBe(JSON.stringify(missing).replaceAll(none, "X"));
      }
    }
    expect((await get<{ interrupts: Listed[] }>(`${server.url}/inbox`, ANN)).interrupts).toHaveLength(1);
  });
});

describe("POST /runs/:uid/prune", () => {
  it("removes the frames of a run that is over, once; one that waits is refused with 409", async () => {
    const { agent: asking } = desk();
    const server = await serving([asking]);
    for (const cents of ["500", "9000"]) await started(server, "desk", json, said(cents));
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs`);
    const at = (i: number) => `${server.url}/runs/${runs[i]?.uid}/prune`;
    const pruned = await ask(at(1));
    expect([pruned.status, JSON.parse(pruned.text)]).toMatchObject([200, { is: "pruned", run: { pruned: true } }]);
    expect(JSON.parse((await ask(at(1))).text)).toMatchObject({ is: "already" });
    expect(errorOf(await ask(at(0)))).toMatchObject({ status: 409 });
    expect((await ask(at(0))).text).toContain("RUN_UNFINISHED");
    const log = await ask(`${server.url}/runs/${runs[1]?.uid}/log`, { method: "GET" });
    expect(log.text).not.toContain('"kind":"frame"');
    expect(log.text).toContain('"kind":"transcript"');
  });
});

describe("POST /runs/:uid/cancel", () => {
  it("ends a body that runs: 202, then 200; its signal fires, and its reader is told", async () => {
    const aborted = deferred();
    const server = await served({
      wait: async (ctx) => {
        ctx.signal.addEventListener("abort", () => aborted.resolve());
        const message = ctx.message();
        message.delta("half");
        await new Promise(() => {});
      },
    });
    const { response } = await open(`${server.url}/agents/wait`);
    const begun = await readUntil(response, "half");
    const { runs } = await get<{ runs: ListedRun[] }>(`${server.url}/runs`);
    expect(runs[0]?.state).toBe("running");
    const at = `${server.url}/runs/${runs[0]?.uid}/cancel`;
    expect((await ask(at)).status).toBe(202);
    await aborted.promise;
    let text = begun;
    for await (const chunk of response.setEncoding("utf8")) text += chunk;
    expect(eventsOf(text).slice(-2)).toMatchObject([
      { type: "TEXT_MESSAGE_END", metadata: { perdure: { incomplete: true } } },
      { type: "RUN_FINISHED", outcome: { type: "cancelled" } },
    ]);
    const again = await ask(at);
    expect(again.status).toBe(200);
    expect(JSON.parse(again.text)).toMatchObject({ run: { state: "cancelled" } });
  });

  it.each(["body", "model"])("ends a run that waits for a human, and takes its question back: a %s", async (kind) => {
    const asking = agent({ name: "desk", run: (ctx) => ctx.interrupt({ id: "q", message: "Well?" }) });
    const { agent: model, ledger } = desk();
    const server = await serving([kind === "body" ? asking : model]);
    const body = said("9000");
    await started(server, "desk", json, body);
    const { interrupts } = await get<{ interrupts: Listed[] }>(`${server.url}/inbox`);
    expect(interrupts).toHaveLength(1);
    expect((await ask(`${server.url}/runs/${interrupts[0]?.run}/cancel`)).status).toBe(202);
    expect((await ended(server.url, body.threadId)).state).toBe("cancelled");
    expect(await get(`${server.url}/inbox`)).toEqual({ interrupts: [] });
    const late = await ask(`${server.url}/inbox/${interrupts[0]?.id}`, {
      body: JSON.stringify({ status: "resolved", payload: { approved: true } }),
    });
    expect(errorOf(late)).toMatchObject({
      status: 409,
      code: "INTERRUPT_ANSWERED",
      details: { status: "withdrawn", at: expect.any(Number) },
    });
    expect(ledger).toEqual([]);
  });
});

describe("the inbox", () => {
  const yes = JSON.stringify({ status: "resolved", payload: { approved: true } });
  const no = JSON.stringify({ status: "resolved", payload: { approved: false } });

  /** A desk with an open question of ann's, of so many cents. */
  async function asked(cents: string) {
    const { agent: asking, ledger } = desk();
    const server = await serving([asking], { authorize: byHeader });
    const body = said(cents);
    await started(server, "desk", ANN, body);
    const { interrupts } = await get<{ interrupts: Listed[] }>(`${server.url}/inbox`, ANN);
    const [question] = interrupts;
    if (question === undefined) throw new Error("nothing is asked");
    const answer = (reply: string, headers: Readonly<Record<string, string>> = ANN) =>
      ask(`${server.url}/inbox/${encodeURIComponent(question.id)}`, { headers, body: reply });
    const done = async () => {
      for (;;) {
        const { run } = await get<{ run: ListedRun }>(`${server.url}/runs/${question.run}`, ANN);
        if (run.state !== "running" && run.state !== "parked") return run.state;
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    };
    return { server, body, question, ledger, answer, done };
  }

  it("says of a question what one needs to decide it", async () => {
    const { question, body } = await asked("20000");
    expect(question).toEqual({
      id: expect.any(String),
      run: expect.stringMatching(/^[0-9a-f-]{36}$/),
      ...{ thread: body.threadId, agent: "desk", kind: "approval", reason: "tool_call" },
      message: "Refund 20000 cents?",
      schema: expect.objectContaining({ type: "object", required: ["approved"] }),
      ...{ toolCall: expect.any(String), audience: BOSS, openedAt: expect.any(Number) },
      call: { name: "refund", input: { cents: 20_000 } },
    });
  });

  it("says what there is to choose from, how risky it is, and which limit is reached: who answers there has no stream", async () => {
    const choice = { metadata: { slots: ["morning", "evening"] } };
    const call = tool({
      name: "call",
      description: "Call back.",
      effect: "write",
      input: z.object({}),
      answer: z.string(),
      approval: { message: "Call?", risk: "high" },
      call: () => suspend({ message: "When?", ...choice }),
      resume: (slot) => slot,
    });
    const model = scriptedModel([{ calls: [{ name: "call", input: {} }] }, { text: "Done." }]);
    const { url } = await serving([agent({ name: "caller", model, tools: [call], budget: { steps: 1 } })]);
    await ask(`${url}/agents/caller`, { body: JSON.stringify(fresh()) });
    const next = async (reply: object) => {
      const { interrupts } = await get<{ interrupts: (Listed & { metadata?: Json })[] }>(`${url}/inbox`);
      const [question] = interrupts;
      const answer = JSON.stringify({ status: "resolved", ...reply });
      await ask(`${url}/inbox/${encodeURIComponent(question?.id ?? "")}`, { body: answer });
      await ask(`${url}/threads/${question?.thread}/stream`, { method: "GET" });
      return question?.metadata;
    };
    expect(await next({ payload: { approved: true } })).toEqual({ risk: "high" });
    expect(await next({ payload: "evening" })).toEqual(choice.metadata);
    expect(await next({ payload: { stop: true } })).toMatchObject({
      limits: [{ limit: "steps", used: 1, allowed: 1 }],
    });
  });

  it("an answer drives the run on with nobody connected; the next reader sees its legs as one conversation", async () => {
    const { server, body, answer, done, ledger, question } = await asked("9000");
    const taken = await answer(yes);
    expect([taken.status, JSON.parse(taken.text)]).toEqual([
      200,
      { interrupt: { id: question.id, run: question.run, state: "answered" } },
    ]);
    expect(await done()).toBe("success");
    expect(ledger).toEqual([9000]);
    const later = eventsOf((await ask(`${server.url}/agents/desk`, { headers: ANN, body: JSON.stringify(body) })).text);
    expect(later.map(({ type }) => type)).toEqual([
      "RUN_STARTED",
      "STATE_SNAPSHOT",
      "MESSAGES_SNAPSHOT",
      "RUN_FINISHED",
    ]);
    const shown = later.flatMap((event) => (event.type === "MESSAGES_SNAPSHOT" ? event.messages : []));
    expect(shown.map(({ role }) => role)).toEqual([
      ...["user", "reasoning", "assistant", "tool", "assistant", "tool", "assistant"],
    ]);
    expect(shown.at(-1)).toMatchObject({ content: "Done with 9000 cents." });
  });

  it("the same answer again is covered, another one 409 with the winner; neither changes anything", async () => {
    const { answer, done, ledger } = await asked("9000");
    await answer(yes);
    await done();
    expect(await answer(yes)).toMatchObject({ status: 200 });
    expect(JSON.parse((await answer(yes)).text)).toMatchObject({ interrupt: { state: "covered" } });
    expect(errorOf(await answer(no))).toMatchObject({
      status: 409,
      code: "INTERRUPT_ANSWERED",
      details: { status: "resolved", by: "ann", at: expect.any(Number) },
    });
    expect(ledger).toEqual([9000]);
  });

  it("of two who say different things at once, one is taken and the other learns who won", async () => {
    const { answer, done, ledger } = await asked("20000");
    const answers = await Promise.all([answer(yes, BOB), answer(no, as("zoe", ["answer", BOSS]))]);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 409]));
    const winner = answers[0]?.status === 200 ? "bob" : "zoe";
    const loser = answers.find(({ status }) => status === 409);
    expect(loser && errorOf(loser)).toMatchObject({ details: { by: winner } });
    expect(await done()).toBe("success");
    expect(ledger).toEqual(winner === "bob" ? [20000] : []);
  });

  it("403 without the audience's scope, also for the one who asked, and without the scope to answer", async () => {
    const { server, answer, ledger, done } = await asked("20000");
    expect(errorOf(await answer(yes))).toMatchObject({ status: 403, code: "ANSWER_FORBIDDEN" });
    expect(errorOf(await answer(yes, as("bob", [BOSS])))).toMatchObject({ status: 403, code: "ANSWER_FORBIDDEN" });
    const { interrupts } = await get<{ interrupts: Listed[] }>(`${server.url}/inbox`, BOB);
    expect(interrupts).toHaveLength(1);
    expect(ledger).toEqual([]);
    expect((await answer(yes, BOB)).status).toBe(200);
    expect(await done()).toBe("success");
    expect(ledger).toEqual([20000]);
  });

  it("is everybody's own, and what asks for a scope is listed for all who have it", async () => {
    const { server, question } = await asked("20000");
    await started(server, "desk", as("cat"), said("9000"));
    const seen = async (who: Readonly<Record<string, string>>) =>
      (await get<{ interrupts: Listed[] }>(`${server.url}/inbox`, who)).interrupts.map(({ message }) => message);
    expect(await seen(ANN)).toEqual(["Refund 20000 cents?"]);
    expect(await seen(BOB)).toEqual(["Refund 20000 cents?"]);
    expect(await seen(as("cat"))).toEqual(["Refund 9000 cents?"]);
    expect(await seen(as("root", ["*"]))).toEqual(["Refund 20000 cents?", "Refund 9000 cents?"]);
    expect(await seen(as("root", ["*"], "other"))).toEqual([]);
    const { interrupts } = await get<{ interrupts: Listed[] }>(
      `${server.url}/inbox?thread=${question.thread}`,
      as("root", ["*"]),
    );
    expect(interrupts).toHaveLength(1);
  });

  it("pages, oldest first", async () => {
    const { agent: asking } = desk();
    const server = await serving([asking]);
    for (const cents of ["6001", "6002", "6003"]) await started(server, "desk", json, said(cents));
    const messages: string[] = [];
    for (let next: string | undefined = ""; next !== undefined; ) {
      const after: string = next === "" ? "" : `&after=${encodeURIComponent(next)}`;
      const page: { interrupts: Listed[]; next?: string } = await get(`${server.url}/inbox?limit=2${after}`);
      expect(page.interrupts.length).toBeLessThanOrEqual(2);
      messages.push(...page.interrupts.map(({ message }) => message));
      next = page.next;
    }
    expect(messages).toEqual(["Refund 6001 cents?", "Refund 6002 cents?", "Refund 6003 cents?"]);
  });

  it("422 ANSWER_INVALID with the issues for a payload that does not fit, and the question stays open", async () => {
    const { answer, done, ledger } = await asked("9000");
    for (const payload of [{ approved: "yes" }, {}, null, undefined]) {
      const { status, code, details } = errorOf(await answer(JSON.stringify({ status: "resolved", payload })));
      expect({ status, code }).toEqual({ status: 422, code: "ANSWER_INVALID" });
      expect((details as { issues: unknown[] }).issues.length).toBeGreaterThan(0);
    }
    expect((await answer(no)).status).toBe(200);
    expect(await done()).toBe("success");
    expect(ledger).toEqual([]);
  });

  it("400 for what is no answer, 415 for what is not JSON by its own word", async () => {
    const { answer } = await asked("9000");
    for (const reply of ["{", "[]", "null", "{}", '{"status":"maybe"}', '{"status":"expired"}', '{"status":7}']) {
      expect(errorOf(await answer(reply))).toMatchObject({ status: 400, code: "INPUT_INVALID" });
    }
    expect(errorOf(await answer(yes, { ...ANN, "content-type": "text/plain" }))).toMatchObject({
      status: 415,
      code: "CONTENT_TYPE",
    });
    expect((await answer(JSON.stringify({ status: "cancelled" }))).status).toBe(200);
  });

  it("a question of a body is answered by its own schema, and the body goes on in a leg that nobody asked for", async () => {
    const Size = z.object({ size: z.enum(["S", "M"]) });
    const shirt = agent({
      name: "shirt",
      async run(ctx) {
        const answer = ctx.resumeFor("size", Size);
        if (answer === undefined) return ctx.interrupt({ id: "size", message: "Which size?", schema: Size });
        ctx.say(`Size ${answer.payload?.size}, leg ${ctx.isResume}.`);
        return answer.payload;
      },
    });
    const server = await serving([shirt]);
    const body = said("a shirt");
    await started(server, "shirt", json, body);
    const { interrupts } = await get<{ interrupts: Listed[] }>(`${server.url}/inbox`);
    const at = `${server.url}/inbox/${interrupts[0]?.id}`;
    expect(interrupts[0]).toMatchObject({ kind: "question", reason: "input_required", message: "Which size?" });
    const reply = (size: string) => ask(at, { body: JSON.stringify({ status: "resolved", payload: { size } }) });
    expect(errorOf(await reply("XXL"))).toMatchObject({ status: 422, code: "ANSWER_INVALID" });
    expect((await reply("M")).status).toBe(200);
    expect((await ended(server.url, body.threadId)).state).toBe("success");
    const stream = await ask(`${server.url}/threads/${body.threadId}/stream`, { method: "GET" });
    const events = eventsOf(stream.text);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", result: { size: "M" } });
    expect(events.find(({ type }) => type === "MESSAGES_SNAPSHOT")).toMatchObject({
      messages: [{ role: "user" }, { role: "assistant", content: "Size M, leg true." }],
    });
  });
});
