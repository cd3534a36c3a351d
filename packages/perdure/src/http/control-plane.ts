/** The routes beside the streams: runs, their logs, the inbox. */
import type { Context, Hono } from "hono";
import type { Entry } from "../log/entries.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Principal, Uid } from "../protocol/words.ts";
import { EVERY_SCOPE } from "../runtime/answers.ts";
import type { Engine } from "../runtime/engine.ts";
import { ExportRefusedError } from "../runtime/export-run.ts";
import { ForkRefusedError } from "../runtime/fork.ts";
import { PruneRefusedError } from "../runtime/prune.ts";
import { anyOf } from "../runtime/signals.ts";
import { isOf, type Streams } from "../runtime/streams.ts";
import type { Question, Reply, Run } from "../store/store.ts";
import { eventFormat } from "./event-format.ts";
import { eventStreamResponse, type StreamSettings } from "./event-stream.ts";
import { FORK_INPUT, forkProblem, readForkOptions } from "./fork-request.ts";
import { logEntries } from "./log-entries.ts";
import { problem } from "./problem.ts";
import { type Body, isJson, readJsonBody, readKeptBody } from "./read-body.ts";
import { listRuns, RUN_STATES, refusedAside, showDetail, showQuestions, showRun } from "./shown.ts";

export interface Env {
  Variables: { principal: Principal };
}

export interface ControlPlaneOptions extends StreamSettings {
  readonly engine: Engine;
  readonly streams: Streams;
  /** Fires when this server stops. */
  readonly signal: AbortSignal;
  /** Bytes. */
  readonly bodyLimit: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

export function addControlPlane(app: Hono<Env>, options: ControlPlaneOptions): void {
  const { engine, streams, signal, bodyLimit, now } = options;
  const { store } = engine;
  app.get("/runs", async (c) => {
    await engine.open();
    const { tenant, subject } = c.get("principal");
    const state = c.req.query("state");
    if (state !== undefined && !RUN_STATES.some((known) => known === state)) {
      return problem(400, "INPUT_INVALID", `there is no state "${state}"; there are ${RUN_STATES.join(", ")}`);
    }
    const query = { tenant, subject, ...pageQuery(c), ...named(c, "agent"), ...named(c, "thread") };
    const { runs, next } = await listRuns(store, query, { state, now: now() });
    return c.json({ runs, ...(next !== null && { next }) });
  });
  app.get("/runs/:uid", async (c) => {
    const run = await ownRun(c);
    return run instanceof Response ? run : c.json(await showDetail(store, run, now()));
  });
  app.get("/runs/:uid/log", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    const after = Number(c.req.query("after") ?? -1);
    const gone = new AbortController();
    const over = anyOf(gone.signal, signal);
    const follow = c.req.query("follow") === "1" ? over.signal : undefined;
    const entries = logEntries(store, run.uid, Number.isInteger(after) ? after : -1, follow);
    const body = lines(entries, { left: () => gone.abort(), over: () => over.release() });
    return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
  });
  app.get("/runs/:uid/stream", async (c) => {
    const format = await eventFormat(c.req.header("accept"));
    if (format instanceof Response) return format;
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    const cursor = c.req.query("after") ?? c.req.header("last-event-id") ?? null;
    const isFollowing = c.req.query("follow") === "1";
    const gone = new AbortController();
    const batches = streams.ofRun(run, { cursor, isFollowing, gone: gone.signal });
    const protocolVersion = c.req.query("protocolVersion") ?? "1.0";
    return await eventStreamResponse({ batches, gone, run: run.uid }, { format, protocolVersion }, options);
  });
  for (const kind of ["cancel", "abandon"] as const) {
    app.post(`/runs/:uid/${kind}`, async (c) => {
      const run = await ownRun(c);
      if (run instanceof Response) return run;
      if (run.aside !== null) return problem(409, "RUN_SET_ASIDE", refusedAside(run.uid, kind), { details: run.aside });
      const put = await store.put(run.uid, c.get("principal").subject, { kind });
      const after = await showRun(store, (await store.run(run.uid)) ?? run, now());
      return c.json({ run: after }, put === "put" ? 202 : 200);
    });
  }

  app.post("/runs/:uid/raise", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    if (run.aside !== null)
      return problem(409, "RUN_SET_ASIDE", refusedAside(run.uid, "raise"), { details: run.aside });
    if (!isJson(c.req.raw)) return problem(415, "CONTENT_TYPE", "send the raise as application/json");
    const body = await readJsonBody(c.req.raw, bodyLimit);
    const amounts: Json = body.ok && isJsonObject(body.json) ? (body.json as Json) : null;
    const is = await engine.raise(run, amounts, c.get("principal"));
    if (typeof is === "object")
      return problem(is.status, is.code, is.message, is.details === undefined ? {} : { details: is.details });
    const after = await showRun(store, (await store.run(run.uid)) ?? run, now());
    return c.json({ run: after }, is === "put" ? 202 : 200);
  });

  app.post("/runs/:uid/signals/:name", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    if (run.aside !== null)
      return problem(409, "RUN_SET_ASIDE", refusedAside(run.uid, "signal"), { details: run.aside });
    if (!isJson(c.req.raw)) return problem(415, "CONTENT_TYPE", "send the signal's payload as application/json");
    const body = await readKeptBody(c.req.raw, bodyLimit);
    if (!body.ok) return problem(400, "INPUT_INVALID", `the signal's payload is not taken: ${whyNot(body)}`);
    const put = await engine.signal(run.uid, c.get("principal").subject, c.req.param("name"), body.json);
    const after = await showRun(store, (await store.run(run.uid)) ?? run, now());
    return c.json({ run: after }, put === "put" ? 202 : 200);
  });

  app.post("/runs/:uid/prune", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    try {
      const is = await engine.prune(run.uid);
      return c.json({ is, run: await showRun(store, (await store.run(run.uid)) ?? run, now()) });
    } catch (error) {
      if (error instanceof PruneRefusedError) return problem(409, error.code, error.message);
      throw error;
    }
  });

  app.get("/runs/:uid/export", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    try {
      return c.json(await engine.export(run.uid, {}));
    } catch (error) {
      if (error instanceof ExportRefusedError) return problem(409, error.code, error.message);
      throw error;
    }
  });
  app.post("/runs/:uid/fork", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    if (!isJson(c.req.raw)) return problem(415, "CONTENT_TYPE", "send what the fork is to be as application/json");
    const body = await readKeptBody(c.req.raw, bodyLimit);
    const asked = body.ok ? readForkOptions(body.json) : undefined;
    if (asked === undefined) return problem(400, "INPUT_INVALID", FORK_INPUT);
    try {
      const forked = await engine.fork(run.uid, asked, c.get("principal"));
      const begun = await store.run(forked.uid as Uid);
      return c.json({ run: begun && (await showRun(store, begun, now())), forkedFrom: forked.forkedFrom }, 201);
    } catch (error) {
      if (error instanceof ForkRefusedError) return forkProblem(error);
      throw error;
    }
  });

  app.get("/inbox", async (c) => {
    await engine.open();
    const principal = c.get("principal");
    const { items, next } = await store.questions({
      tenant: principal.tenant,
      ...pageQuery(c),
      ...named(c, "agent"),
      ...named(c, "thread"),
    });
    const own = items.filter((question) => mayAnswer(question.run, question, principal));
    const interrupts = await showQuestions(engine.threads, own);
    return c.json({ interrupts, ...(next !== null && { next }) });
  });
  app.post("/inbox/:interrupt", async (c) => {
    await engine.open();
    const id = c.req.param("interrupt");
    const principal = c.get("principal");
    const question = await store.question(id);
    const run = question === null ? null : await store.run(question.uid);
    if (question === null || run === null || !mayAnswer(run, question, principal)) return noInterrupt(id);
    if (!isJson(c.req.raw)) return problem(415, "CONTENT_TYPE", "send the answer as application/json");
    const body = await readJsonBody(c.req.raw, bodyLimit);
    const reply = body.ok ? readReply(body.json) : undefined;
    if (reply === undefined) {
      return problem(400, "INPUT_INVALID", 'send { "status": "resolved" | "cancelled", "payload": … } as JSON');
    }
    const answered = await engine.answer({ interrupt: id, ...reply, by: principal }).catch((error: unknown) => {
      if (error instanceof ForkRefusedError) return error;
      throw error;
    });
    if (answered instanceof ForkRefusedError) return forkProblem(answered);
    switch (answered.is) {
      case "taken":
      case "covered":
        return c.json({ interrupt: { id, run: run.uid, state: answered.is === "taken" ? "answered" : "covered" } });
      case "forked": {
        const fork = await store.run(answered.fork);
        const interrupt = { id, run: run.uid, state: "open" };
        return c.json({ interrupt, fork: fork && (await showRun(store, fork, now())) }, answered.isNew ? 201 : 200);
      }
      case "refused":
        return problem(answered.status, answered.code, `the answer to interrupt ${id} is refused: ${answered.why}`, {
          details: answered.details,
        });
      case "conflict": {
        const { status, by, at } = answered;
        return problem(409, "INTERRUPT_ANSWERED", `${by} has answered interrupt ${id} already`, {
          details: { status, by, at },
        });
      }
      case "none":
        return noInterrupt(id);
      default:
        return answered satisfies never;
    }
  });

  /** The run of the path, if it belongs to whoever asks. */
  async function ownRun(c: Context<Env>): Promise<Run | Response> {
    await engine.open();
    const uid = c.req.param("uid") ?? "";
    const run = await store.run(uid as Uid);
    if (run !== null && isOf(run, c.get("principal"))) return run;
    return problem(404, "RUN_NOT_FOUND", `there is no run ${uid}; GET /runs lists yours`);
  }
}

function noInterrupt(id: string): Response {
  return problem(404, "INTERRUPT_NOT_FOUND", `there is no interrupt ${id}; GET /inbox lists the open ones`);
}

/** One's own questions, and those of the tenant that ask for a scope one has. */
function mayAnswer(run: Run, { interrupt }: Question, principal: Principal): boolean {
  if (run.tenant !== principal.tenant) return false;
  const { scopes } = principal;
  const { audience } = interrupt;
  return (
    run.subject === principal.subject ||
    scopes.includes(EVERY_SCOPE) ||
    (audience !== null && scopes.includes(audience))
  );
}

function whyNot(body: Extract<Body, { ok: false }>): string {
  return body.because === "not-json" ? body.why : `it is ${body.because}`;
}

function readReply(body: unknown): Reply | undefined {
  if (!isJsonObject(body)) return undefined;
  const { status, payload } = body;
  if (status !== "resolved" && status !== "cancelled") return undefined;
  return payload === undefined ? { status } : { status, payload };
}

/** One JSON entry a line. `left` is called when the reader goes, `over` when there is nothing more to send. */
function lines(
  entries: AsyncGenerator<Entry, void>,
  { left, over }: { readonly left: () => void; readonly over: () => void },
): ReadableStream {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await entries.next();
        if (!done) return controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
        controller.close();
      } catch (error) {
        controller.error(error);
      }
      over();
    },
    async cancel() {
      left();
      over();
      await entries.return();
    },
  });
}

function pageQuery(c: Context): { readonly after?: string; readonly limit?: number } {
  const limit = Number(c.req.query("limit"));
  const after = c.req.query("after");
  return { ...(after !== undefined && { after }), ...(Number.isInteger(limit) && limit > 0 && { limit }) };
}

function named(c: Context, name: "agent" | "thread"): { readonly agent?: string; readonly thread?: string } {
  const value = c.req.query(name);
  return value === undefined ? {} : { [name]: value };
}
