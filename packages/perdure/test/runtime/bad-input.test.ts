/** What is wrong with a request, or with the file: a clear typed error to whoever can see it, nothing lost, and everybody else goes on. */
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { createRuntime, memory, type Runtime } from "../../src/index.ts";
import type { Principal } from "../../src/protocol/words.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { quietClient } from "../protocol/published-client.ts";
import { folder } from "../store/folder.ts";
import { refundDesk } from "./stories.ts";
import { World } from "./world.ts";

quietClient();

/** Runs the refund desk of one world; each request says who asks. */
function served(options: { store?: Parameters<typeof createRuntime>[0]["store"]; world?: World } = {}) {
  const world = options.world ?? new World();
  const reported: { code?: string; message?: string }[] = [];
  const runtime = createRuntime({
    agents: [refundDesk.agent(world)],
    store: options.store ?? memory(),
    onError: (error) => reported.push(error as Error),
    authorize: (request): Principal => {
      const subject = request.headers.get("x-subject") ?? "ann";
      return { tenant: "acme", subject, scopes: subject === "eve" ? [] : ["answer"] };
    },
  });
  onTestFinished(() => runtime.close().catch(() => {}));
  return { runtime, world, reported, ask: asker(runtime) };
}

interface Reply {
  readonly status: number;
  readonly code: string | undefined;
  readonly text: string;
  readonly body: Record<string, unknown>;
}

function asker({ fetch }: Runtime) {
  return async (path: string, body?: unknown, subject = "ann"): Promise<Reply> => {
    const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const headers = { "content-type": "application/json", "x-subject": subject };
    const response = await fetch(new Request(`http://localhost${path}`, { ...init, headers }));
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
    const parsed = (isJson ? JSON.parse(text) : {}) as { error?: { code: string; message: string } };
    if (parsed.error !== undefined) expect(parsed.error.message).toMatch(/.{20}/);
    return { status: response.status, code: parsed.error?.code, text, body: parsed as Record<string, unknown> };
  };
}

const input = (runId: string, change: object = {}, threadId = "t") => ({
  ...{ threadId, runId, messages: [{ id: "u", role: "user", content: "go" }], tools: [], context: [] },
  ...{ state: {}, forwardedProps: {}, protocolVersion: "1.0" },
  ...change,
});
const answer = (interruptId: string, approved: unknown = true) => ({
  ...{ interruptId, status: "resolved", payload: { approved } },
});

/** A run that waits for its approval: the question's id and the run's. */
async function waiting(ask: ReturnType<typeof asker>, threadId = "t") {
  expect((await ask("/agents/desk", input("r1", {}, threadId))).status).toBe(200);
  const { interrupts } = (await ask(`/inbox?thread=${threadId}`)).body as { interrupts: { id: string; run: string }[] };
  const [question] = interrupts;
  if (question === undefined) throw new Error("no question is open");
  return question;
}

describe("over HTTP", () => {
  test("what is not there, and what is somebody else's, look the same", async () => {
    const { ask } = served();
    const { id, run } = await waiting(ask);
    expect(await ask("/agents/nobody", input("r1"))).toMatchObject({ status: 404, code: "AGENT_NOT_FOUND" });
    for (const [path, subject] of [
      ["/runs/none", "ann"],
      [`/runs/${run}`, "bob"],
    ] as const) {
      expect(await ask(path, undefined, subject)).toMatchObject({ status: 404, code: "RUN_NOT_FOUND" });
      expect(await ask(`${path}/log`, undefined, subject)).toMatchObject({ status: 404, code: "RUN_NOT_FOUND" });
      expect(await ask(`${path}/cancel`, {}, subject)).toMatchObject({ status: 404, code: "RUN_NOT_FOUND" });
    }
    for (const [interrupt, subject] of [
      ["none", "ann"],
      [id, "bob"],
    ] as const) {
      const reply = await ask(`/inbox/${interrupt}`, { status: "resolved", payload: { approved: true } }, subject);
      expect(reply).toMatchObject({ status: 404, code: "INTERRUPT_NOT_FOUND" });
    }
    const stream = await ask("/threads/t/stream", undefined, "bob");
    expect(stream).toMatchObject({ status: 404, code: "THREAD_NOT_FOUND" });
    const resumed = await ask("/agents/desk", input("r2", { messages: [], resume: [answer(id)] }), "bob");
    expect(resumed).toMatchObject({ status: 409, code: "INTERRUPT_NOT_FOUND" });
    expect((await ask("/inbox", undefined, "bob")).body).toEqual({ interrupts: [] });
  });

  test("a thread's name under another subject is another thread", async () => {
    const { ask, world } = served();
    const { run } = await waiting(ask);
    expect((await ask("/agents/desk", input("r1"), "bob")).status).toBe(200);
    const { runs } = (await ask("/runs", undefined, "bob")).body as { runs: { uid: string; thread: string }[] };
    expect(runs).toMatchObject([{ thread: "t" }]);
    expect(runs[0]?.uid).not.toBe(run);
    // The refund of order 1 has one business key in the tenant: the second run takes over what the first one did.
    expect(world.ledger).toEqual(["refund 1"]);
  });

  test("a request that the thread cannot take is refused with a code, and changes nothing", async () => {
    const { ask } = served();
    const { id, run } = await waiting(ask);
    const { head } = ((await ask(`/runs/${run}`)).body as { run: { head: number } }).run;
    const more = [
      { id: "u", role: "user", content: "go" },
      { id: "u2", role: "user", content: "more" },
    ];
    const refusals: [object, number, string][] = [
      [input("r1", { messages: more }), 409, "RUN_ID_REUSED"],
      [input("r2", { messages: more }), 409, "INTERRUPTS_OPEN"],
      [input("r2", { resume: [answer("none")] }), 409, "INTERRUPT_NOT_FOUND"],
      [input("r2", { resume: [answer(id, "perhaps")] }), 422, "ANSWER_INVALID"],
      [input("r2", { tools: [{ name: "refund", description: "", parameters: {} }] }), 422, "TOOL_NAME_TAKEN"],
    ];
    for (const [body, status, code] of refusals)
      expect(await ask("/agents/desk", body)).toMatchObject({ status, code });
    const inboxed = await ask(`/inbox/${id}`, { status: "resolved", payload: { approved: "perhaps" } });
    expect(inboxed).toMatchObject({ status: 422, code: "ANSWER_INVALID" });
    expect(await ask(`/inbox/${id}`, { status: "perhaps" })).toMatchObject({ status: 400, code: "INPUT_INVALID" });
    expect((await ask(`/runs/${run}`)).body).toMatchObject({ run: { head, state: "parked" } });
    expect((await ask("/inbox")).body).toMatchObject({ interrupts: [{ id }] });

    // Taken once; the same again is covered, another answer is a conflict that names the winner.
    expect((await ask("/agents/desk", input("r2", { messages: [], resume: [answer(id)] }))).status).toBe(200);
    expect(await ask("/agents/desk", input("r3", { messages: [], resume: [answer(id)] }))).toMatchObject({
      status: 200,
    });
    const late = await ask("/agents/desk", input("r4", { messages: [], resume: [answer(id, false)] }));
    expect(late).toMatchObject({ status: 409, code: "INTERRUPT_ANSWERED" });
    expect(late.text).toContain('"by":"ann"');
  });

  test("of two clients that race, one is served and the other refused", async () => {
    const { ask } = served();
    const other = { messages: [{ id: "v", role: "user", content: "or this" }] };
    const begun = await Promise.all([ask("/agents/desk", input("r1")), ask("/agents/desk", input("r2", other))]);
    expect(begun.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409]);
    expect(begun.find(({ status }) => status === 409)).toMatchObject({ code: "RUN_ACTIVE" });

    const { interrupts } = (await ask("/inbox")).body as { interrupts: { id: string }[] };
    const id = interrupts[0]?.id ?? "";
    const [first, second] = await Promise.all([
      ask("/agents/desk", input("r3", { messages: [], resume: [answer(id)] })),
      ask(`/inbox/${id}`, { status: "resolved", payload: { approved: false } }),
    ]);
    expect([first.status, second.status].toSorted((a, b) => a - b)).toEqual([200, 409]);
    expect([first.code, second.code]).toContain("INTERRUPT_ANSWERED");
  });
});

describe("a file", () => {
  async function place() {
    const { file, remove } = await folder();
    onTestFinished(remove);
    return file;
  }

  async function byHand(file: string, sql: string): Promise<void> {
    const db = new SqliteDatabase(await loadDriver(), file);
    db.exec(sql);
    db.close();
  }

  const rowOf = "run = (SELECT id FROM runs WHERE thread = 'broken')";

  test.each([
    ["that is no JSON", `UPDATE log SET entry = '{' WHERE seq = 5 AND ${rowOf}`, "ENTRY_UNREADABLE"],
    ["of another shape", `UPDATE log SET entry = '{"kind":"memo"}' WHERE seq = 5 AND ${rowOf}`, "ENTRY_UNREADABLE"],
    ["that is missing", `DELETE FROM log WHERE seq = 5 AND ${rowOf}`, "ENTRY_MISSING"],
    ["that is cut off at the end", `DELETE FROM log WHERE seq > 20 AND ${rowOf}`, "ENTRY_MISSING"],
    [
      "that is another fact",
      `UPDATE log SET entry = '{"kind":"leg.finished","leg":9,"outcome":{"type":"cancelled"},"usage":[]}' WHERE seq = 5 AND ${rowOf}`,
      "ENTRY_UNREADABLE",
    ],
    [
      "that is a frame which cannot stand there",
      `UPDATE log SET entry = '{"kind":"frame","path":"","event":{"type":"STEP_FINISHED","stepName":"x"}}' WHERE seq = (
         SELECT min(seq) FROM log WHERE ${rowOf} AND seq > 2 AND entry LIKE '{"kind":"frame"%') AND ${rowOf}`,
      "LOG_BROKEN",
    ],
  ])("with a row %s: its run is set aside, says so, and its neighbour goes on", async (_, sql, code) => {
    const file = await place();
    const before = served({ store: sqlite(file) });
    const broken = await waiting(before.ask, "broken");
    const whole = await waiting(before.ask, "whole");
    await before.runtime.close();
    await byHand(file, sql);

    const { ask, runtime, reported } = served({ store: sqlite(file), world: before.world });
    await runtime.open();
    const resume = (id: string) => ({ messages: [], resume: [answer(id)] });
    expect(await ask("/agents/desk", input("r2", resume(broken.id), "broken"))).toMatchObject({ status: 500, code });
    expect(await ask("/threads/broken/stream")).toMatchObject({ status: 500, code });
    expect(reported).toContainEqual(expect.objectContaining({ code }));
    await expect
      .poll(async () => (await ask(`/runs/${broken.run}`)).body)
      .toMatchObject({ run: { state: "set aside", aside: expect.stringMatching(/entry|log/i) } });

    expect((await ask("/agents/desk", input("r2", resume(whole.id), "whole"))).text).toContain('"Done."');
    expect((await ask(`/runs/${whole.run}`)).body).toMatchObject({ run: { outcome: "success" } });
    // Both runs have asked for the same refunds, which happen once.
    expect([...before.world.ledger].sort()).toEqual(["refund 1", "refund 2"]);
  });

  test("that another process drives, or of a newer version: 503 with the code, and the path stays here", async () => {
    const file = await place();
    const first = served({ store: sqlite(file) });
    await first.runtime.open();
    const second = served({ store: sqlite(file) });
    await expect(second.runtime.open()).rejects.toMatchObject({ code: "STORE_LOCKED" });
    const locked = await second.ask("/agents/desk", input("r1"));
    expect(locked).toMatchObject({ status: 503, code: "STORE_LOCKED" });
    expect(locked.text).not.toContain(file);
    expect((await second.ask("/healthz")).status).toBe(503);
    await waiting(first.ask);
    await first.runtime.close();

    await byHand(file, "PRAGMA user_version = 99");
    const old = served({ store: sqlite(file) });
    expect(await old.ask("/agents/desk", input("r2"))).toMatchObject({ status: 503, code: "STORE_TOO_NEW" });
  });

  test.each([0, 1, 2, 4])(
    "on a disk that is full %i pages later: 503 for requests, the run goes on when there is room, nothing is lost or done twice",
    async (pages) => {
      const file = await place();
      const exec = vi.spyOn(SqliteDatabase.prototype, "exec");
      const world = new World();
      const { runtime, ask, reported } = served({ store: sqlite(file, { leaseMs: 300 }), world });
      await runtime.open();
      const opening = exec.mock.calls.findIndex(([sql]) => sql.includes("journal_mode"));
      const db = exec.mock.contexts[opening];
      if (!(db instanceof SqliteDatabase)) throw new Error("the store was not opened to drive");
      exec.mockRestore();
      const bound = (most: number) => db.exec(`PRAGMA max_page_count = ${most}`);

      const first = ask("/agents/desk", input("r1"));
      while (((await ask("/runs")).body as { runs: unknown[] }).runs.length === 0) await turn();
      // Every further page is one too many, sooner or later.
      bound(Number(Object.values(db.get("PRAGMA page_count") ?? {})[0]) + pages);
      const big = input("r9", { messages: [{ id: "b", role: "user", content: "x".repeat(100_000) }] }, "other");
      expect(await ask("/agents/desk", big)).toMatchObject({ status: 503, code: "COMMIT_FAILED" });
      while (pages < 2 && !reported.some(({ code }) => code === "LEASE_LOST")) await turn();
      bound(100_000);

      expect((await first).text).toContain('"outcome":{"type":"interrupt"');
      const { interrupts } = (await ask("/inbox")).body as { interrupts: { id: string }[] };
      expect(interrupts).toHaveLength(1);
      const resumed = await ask(
        "/agents/desk",
        input("r2", { messages: [], resume: [answer(interrupts[0]?.id ?? "")] }),
      );
      expect(resumed.text).toContain('"Done."');
      expect(world.ledger).toEqual(["refund 1", "refund 2"]);
      expect((await ask("/runs")).body).toMatchObject({ runs: [{ thread: "t", outcome: "success" }] });
    },
  );
});

/** One turn of the event loop. */
const turn = () => new Promise((resolve) => setImmediate(resolve));
