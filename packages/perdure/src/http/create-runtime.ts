/** The one place where agents, rules of access and transport meet. */
import type { ServerResponse } from "node:http";
import { Hono } from "hono";
import { cors } from "hono/cors";
import type { RunFixture } from "../log/fixture.ts";
import { parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import { toJson } from "../protocol/json.ts";
import { RUN_HEADER } from "../protocol/negotiate.ts";
import { PayloadTooLargeError } from "../protocol/payload.ts";
import type { Duration, Principal, Uid } from "../protocol/words.ts";
import type { Agent } from "../runtime/agent-definition.ts";
import { EVERY_SCOPE } from "../runtime/answers.ts";
import { withCalledAgents } from "../runtime/child-agents.ts";
import { Engine, type EngineOptions, type ReportedRun } from "../runtime/engine.ts";
import type { ExportOptions } from "../runtime/export-run.ts";
import type { ForkedRun, ForkOptions } from "../runtime/fork.ts";
import type { Observer } from "../runtime/observer.ts";
import type { StreamRunOptions } from "../runtime/stream-run.ts";
import { Streams } from "../runtime/streams.ts";
import { memory } from "../store/memory.ts";
import type { EventStore } from "../store/store.ts";
import { capabilitiesOf } from "./capabilities.ts";
import { addControlPlane, type Env } from "./control-plane.ts";
import { offersProtobuf } from "./event-format.ts";
import { writeEventStream } from "./event-stream.ts";
import { refuseForeign } from "./guard.ts";
import { postAgent } from "./post-agent.ts";
import { problem } from "./problem.ts";
import { storeProblem } from "./store-problem.ts";
import { threadStream } from "./thread-stream.ts";

export interface RuntimeOptions {
  readonly agents: readonly Agent[];
  /** Where runs are kept: `sqlite(file)` to outlive the process. Default: `memory()`. */
  readonly store?: EventStore;
  /**
   * Says who asks, or nobody (`null`, answered with 401). Without it only loopback is served, and everybody there is one principal.
   */
  readonly authorize?: (request: Request) => Principal | null | Promise<Principal | null>;
  /** Browser pages of other origins that may call. Default: none. */
  readonly cors?: { readonly origins: readonly string[] };
  /** Largest request body. Bytes; default 20 MiB. */
  readonly bodyLimit?: number;
  /** Silence after which a comment keeps the connection alive. Milliseconds; default 15,000. */
  readonly keepAlive?: number;
  /** How long a reader may take nothing of what waits for it before it is cut off. Milliseconds; default 60,000. */
  readonly stalledAfter?: number;
  /** How long a run of an agent with `disconnect: "cancel"` goes on without a reader. Milliseconds; default 10,000. */
  readonly disconnectGrace?: number;
  /**
   * Prunes each run that ended so long ago, as {@link Runtime.prune} does: milliseconds, or for example `"7d"`. Looked for when the store is
   * opened, and every hour. Default: frames are kept.
   */
  readonly prune?: { readonly after: Duration };
  /**
   * Reports, to `onError`, what the code of custom loops does that will not be the same when it is run again: `Date.now()`, `Math.random()`, and
   * steps that nobody waits for, each with its place. It patches these two functions for the whole process. Default: no.
   */
  readonly development?: boolean;
  /** How long `close()` lets what runs go on. Milliseconds; default 5,000. */
  readonly drainGrace?: number;
  /** Whoever looks on: `openTelemetry()` of `perdure/otel` makes traces. Default: nobody. */
  readonly telemetry?: Observer;
  /** Gets the cause of each RUN_ERROR, which clients are not told. Default: `console.error`. */
  readonly onError?: StreamRunOptions["onError"];
  /** Gets what was odd about a request and was put right. Default: nothing. */
  readonly onWarning?: StreamRunOptions["onWarning"];
}

export interface Runtime {
  /**
   * Answers a request; for anything that speaks fetch.
   *
   * @param env - what the server knows beside the request. With `outgoing`, Node's response as `@hono/node-server` gives it, streams are
   * written there, which is much faster
   */
  readonly fetch: (request: Request, env?: unknown) => Promise<Response>;
  /** Whether others than loopback may be served. */
  readonly isOpen: boolean;
  /** Opens the store, goes on with every run that was cut, and begins to connect to MCP servers. Otherwise the first request does. */
  open(): Promise<void>;
  /**
   * Removes the frames of a run that is over; what the thread shows stays as it is, but cursors into the run are of no use any more.
   *
   * @param run - its uid, as `GET /runs` lists it
   * @returns `already`: they are gone
   * @throws {@link PruneRefusedError} with the code `RUN_UNFINISHED`, `RUN_NOT_FOUND`, `RUN_SET_ASIDE` or `RUN_DRIVEN`
   */
  prune(run: string): Promise<"pruned" | "already">;
  /**
   * Tells a run something that the code of its custom loop waits for, or will: see `ctx.receive`.
   *
   * @param run - its uid, as `GET /runs` lists it
   * @param payload - anything that JSON holds. Default: `null`
   * @returns `finished`: too late; `none`: there is no such run
   * @throws {@link NotJsonError}, {@link PayloadTooLargeError}
   */
  signal(run: string, name: string, payload?: unknown): Promise<"put" | "finished" | "none">;
  /**
   * Begins a run that goes on from an entry of another one, in a thread of its own. What had ended by then is its history and never runs again;
   * what had not is begun anew, with its approvals. The other run stays as it is.
   *
   * @param run - its uid, as `GET /runs` lists it
   * @throws {@link ForkRefusedError}; with the code `WRITES_NOT_ACKNOWLEDGED` when the run has changed the world behind that entry, and not all
   * of that was acknowledged
   */
  fork(run: string, options?: ForkOptions): Promise<ForkedRun>;
  /**
   * A recorded run as JSON, for `replay` of `perdure/testing`. Export it with the agent as it was, so that what its model was asked is in it.
   *
   * @throws {@link ExportRefusedError} with the code `RUN_NOT_FOUND` or `RUN_PRUNED`
   */
  export(run: string, options?: ExportOptions): Promise<RunFixture>;
  /**
   * Stops in order: streams end with RUN_ERROR `RECONNECT`, what runs may end within `drainGrace`, and each run is left to whoever opens the
   * store next.
   */
  close(): Promise<void>;
}

const DEFAULT_BODY_LIMIT = 20 * 1024 * 1024;
const DEFAULT_KEEP_ALIVE = 15_000;
const DEFAULT_STALLED = 60_000;

/** Where a runtime's time, chance and names come from. The system's, but in tests that replay a story. */
export type Sources = Pick<EngineOptions, "now" | "random" | "newUid">;

/** @throws {@link PerdureError} `AGENT_DEFINITION` when two agents have one name; `DurationError` for a `prune.after` that is none */
export function createRuntime(options: RuntimeOptions): Runtime {
  return createRuntimeFrom({}, options);
}

/** {@link createRuntime} with other sources. */
export function createRuntimeFrom(sources: Sources, options: RuntimeOptions): Runtime {
  const agents = byName(options.agents);
  const isOpen = options.authorize !== undefined;
  const origins = options.cors?.origins ?? [];
  const closing = new AbortController();
  const engine = new Engine({
    ...sources,
    development: options.development,
    pruneAfter: options.prune && parseDuration(options.prune.after, "prune.after of createRuntime"),
    ...{
      store: options.store ?? memory(),
      agents: withCalledAgents(agents),
      report: (error, run) => report(error, run),
    },
    observer: options.telemetry,
  });
  const streams = new Streams(engine, closing.signal, options.disconnectGrace);
  const app = new Hono<Env>();

  const common = {
    ...{ engine, streams, signal: closing.signal },
    bodyLimit: options.bodyLimit ?? DEFAULT_BODY_LIMIT,
    keepAlive: options.keepAlive ?? DEFAULT_KEEP_ALIVE,
    stalledAfter: options.stalledAfter ?? DEFAULT_STALLED,
    onWarning: options.onWarning,
  };

  app.use(async (c, next) => refuseForeign(c.req.raw, { isOpen, origins }) ?? (await next()));
  if (origins.length > 0) app.use(cors({ origin: [...origins], exposeHeaders: [RUN_HEADER, "retry-after"] }));
  // Before anybody is asked who he is: a load balancer is nobody, and learns nothing but that the store is open.
  app.get("/healthz", async (c) => {
    await engine.open();
    return c.json({ status: "ok" });
  });
  app.use(async (c, next) => {
    const principal = options.authorize ? await options.authorize(c.req.raw) : LOCAL;
    if (principal === null)
      return problem(401, "UNAUTHORIZED", "say who asks: the authorize hook knows nobody for this request");
    c.set("principal", principal);
    return await next();
  });

  app.post("/agents/:agent", (c) => {
    const agent = agents.get(c.req.param("agent"));
    if (agent === undefined) return unknownAgent(c.req.param("agent"), agents);
    return postAgent(agent, c.req.raw, { ...common, principal: c.get("principal") });
  });
  app.get("/agents/:agent", async (c) => {
    const agent = agents.get(c.req.param("agent"));
    if (agent === undefined) return unknownAgent(c.req.param("agent"), agents);
    return c.json(capabilitiesOf(agent, { httpBinary: await offersProtobuf() }));
  });
  app.on(["GET", "POST"], "/threads/:id/stream", (c) => threadStream(c, agents, common));
  addControlPlane(app, { ...common, now: sources.now ?? Date.now });
  app.all("/agents/:agent", (c) =>
    agents.has(c.req.param("agent"))
      ? problem(405, "METHOD_NOT_ALLOWED", "an agent is run by POST with a RunAgentInput, and described by GET", {
          headers: { allow: "GET, HEAD, POST" },
        })
      : unknownAgent(c.req.param("agent"), agents),
  );
  app.notFound((c) => problem(404, "NOT_FOUND", `nothing is served at ${c.req.path}; an agent is at /agents/NAME`));
  app.onError((error) => {
    // What a client sent is nobody's fault here.
    if (!(error instanceof PayloadTooLargeError)) report(error, null);
    return storeProblem(error) ?? problem(500, "INTERNAL", "the server failed to answer; its log says why");
  });

  function report(error: unknown, run: ReportedRun | null): void {
    try {
      (options.onError ?? console.error)(error, run ?? { agent: "", threadId: "", runId: "" });
    } catch (unreported) {
      // A reporter that throws must not cost the client its answer.
      console.error("onError threw:", unreported, "; what it was given:", error);
    }
  }

  return {
    async fetch(request, env) {
      const answered = () => app.fetch(request);
      const response = await (options.telemetry?.answers(request.headers, answered) ?? answered());
      const outgoing = outgoingOf(env);
      if (outgoing === undefined) return response;
      return writeEventStream(response, outgoing, (error) => report(error, null)) ? alreadySent() : response;
    },
    isOpen,
    async open() {
      await engine.open();
      engine.warmUp();
    },
    prune: (run) => engine.prune(run as Uid),
    export: (run, options = {}) => engine.export(run as Uid, options),
    signal: (run, name, payload) => engine.signal(run as Uid, "", name, toJson(payload, `payload of signal "${name}"`)),
    fork: (run, options = {}) => engine.fork(run as Uid, options),
    async close() {
      closing.abort();
      await engine.close(options.drainGrace);
    },
  };
}

/** Node's own response, where there is one. Its class says so: a browser's service worker, too, may have something called `outgoing`. */
function outgoingOf(env: unknown): ServerResponse | undefined {
  if (typeof env !== "object" || env === null || !("outgoing" in env)) return undefined;
  const { outgoing } = env;
  const isNodes =
    typeof outgoing === "object" && outgoing !== null && "writeHead" in outgoing && "flushHeaders" in outgoing;
  return isNodes ? (outgoing as ServerResponse) : undefined;
}

/** Tells `@hono/node-server` that there is nothing left to send. */
function alreadySent(): Response {
  return new Response(null, { headers: { "x-hono-already-sent": "true" } });
}

/** Whoever can reach loopback is the developer himself. */
const LOCAL: Principal = { tenant: "local", subject: "local", scopes: [EVERY_SCOPE] };

function byName(agents: readonly Agent[]): ReadonlyMap<string, Agent> {
  const named = new Map<string, Agent>();
  for (const agent of agents) {
    if (named.has(agent.name))
      throw new PerdureError("AGENT_DEFINITION", `two agents are named "${agent.name}"; rename one`);
    named.set(agent.name, agent);
  }
  return named;
}

function unknownAgent(name: string, agents: ReadonlyMap<string, unknown>): Response {
  return problem(
    404,
    "AGENT_NOT_FOUND",
    `no agent is named "${name}"; there is ${[...agents.keys()].join(", ") || "none"}`,
  );
}
