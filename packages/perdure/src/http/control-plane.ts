/** The routes beside the streams: runs, their logs, the inbox. */
import type { Context, Hono } from "hono";
import { wireInterrupt } from "../log/interrupts.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Principal, Uid } from "../protocol/words.ts";
import { EVERY_SCOPE } from "../runtime/answers.ts";
import type { Engine } from "../runtime/engine.ts";
import { isOf } from "../runtime/streams.ts";
import type { Page, Question, Reply, Run } from "../store/store.ts";
import { problem } from "./problem.ts";
import { isJson, readJsonBody } from "./read-body.ts";

export interface Env {
  Variables: { principal: Principal };
}

export function addControlPlane(app: Hono<Env>, engine: Engine, bodyLimit: number): void {
  app.get("/runs", async (c) => {
    await engine.open();
    const { tenant, subject } = c.get("principal");
    const page = await engine.store.runs({
      tenant,
      subject,
      ...pageQuery(c),
      ...named(c, "agent"),
      ...named(c, "thread"),
    });
    return c.json(listed("runs", page, publicRun));
  });
  app.get("/runs/:uid", async (c) => {
    const run = await ownRun(c);
    return run instanceof Response ? run : c.json({ run: publicRun(run) });
  });
  app.get("/runs/:uid/log", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    const lines = logLines(engine, run.uid);
    const encoder = new TextEncoder();
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await lines.next();
        if (done === true) controller.close();
        else controller.enqueue(encoder.encode(value));
      },
    });
    return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
  });
  app.post("/runs/:uid/cancel", async (c) => {
    const run = await ownRun(c);
    if (run instanceof Response) return run;
    const put = await engine.cancel(run.uid, c.get("principal").subject);
    return c.json({ run: publicRun((await engine.store.run(run.uid)) ?? run) }, put === "put" ? 202 : 200);
  });

  app.get("/inbox", async (c) => {
    await engine.open();
    const principal = c.get("principal");
    const page = await engine.store.questions({
      tenant: principal.tenant,
      ...pageQuery(c),
      ...named(c, "agent"),
      ...named(c, "thread"),
    });
    const items = page.items.filter((question) => mayAnswer(question.run, question, principal));
    return c.json(listed("interrupts", { ...page, items }, publicQuestion));
  });
  app.post("/inbox/:interrupt", async (c) => {
    await engine.open();
    const id = c.req.param("interrupt");
    const principal = c.get("principal");
    const question = await engine.store.question(id);
    const run = question === null ? null : await engine.store.run(question.uid);
    if (question === null || run === null || !mayAnswer(run, question, principal)) return noInterrupt(id);
    if (!isJson(c.req.raw)) return problem(415, "CONTENT_TYPE", "send the answer as application/json");
    const body = await readJsonBody(c.req.raw, bodyLimit);
    const reply = body.ok ? readReply(body.json) : undefined;
    if (reply === undefined) {
      return problem(400, "INPUT_INVALID", 'send { "status": "resolved" | "cancelled", "payload": … } as JSON');
    }
    const answered = await engine.answer({ interrupt: id, ...reply, by: principal });
    switch (answered.is) {
      case "taken":
      case "covered":
        return c.json({ interrupt: { id, state: answered.is === "taken" ? "answered" : "covered" } });
      case "refused":
        return problem(answered.status, answered.code, `the answer to interrupt ${id} is refused`, {
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
    const run = await engine.store.run(uid as Uid);
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

function readReply(body: unknown): Reply | undefined {
  if (!isJsonObject(body)) return undefined;
  const { status, payload } = body;
  if (status !== "resolved" && status !== "cancelled") return undefined;
  return payload === undefined ? { status } : { status, payload };
}

async function* logLines(engine: Engine, uid: Uid): AsyncGenerator<string> {
  for await (const entry of engine.store.read(uid, -1)) yield `${JSON.stringify(entry)}\n`;
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

function listed<T, K extends string>(
  name: K,
  { items, next }: Page<T>,
  shape: (item: T) => Json,
): { readonly [key: string]: Json } {
  return { [name]: items.map(shape), ...(next !== null && { next }) };
}

function publicRun(run: Run): Json {
  const { uid, agent, thread, turn, labels, createdAt, updatedAt, head, leg, legOpen, outcome, aside } = run;
  const state = outcome ?? (aside !== null ? "set aside" : run.readyAt === null ? "parked" : "running");
  return { uid, agent, thread, turn, labels, createdAt, updatedAt, head, leg, legOpen, state, outcome, aside };
}

function publicQuestion({ uid, interrupt, openedAt, run }: Question & { readonly run: Run }): Json {
  const { kind, audience, expiresAt } = interrupt;
  const { id, reason, message, responseSchema, toolCallId } = wireInterrupt(interrupt);
  return {
    ...{
      id,
      run: uid,
      thread: run.thread,
      agent: run.agent,
      kind,
      reason,
      message: message ?? "",
      schema: (responseSchema ?? {}) as Json,
      openedAt,
    },
    ...(toolCallId !== undefined && { toolCall: toolCallId }),
    ...(audience !== null && { audience }),
    ...(expiresAt !== null && { expiresAt }),
  };
}
