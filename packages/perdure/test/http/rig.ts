/** A served runtime, and requests as raw as a test wants them. */
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import {
  type Agent,
  agent,
  createRuntime,
  type Principal,
  type RunContext,
  type RuntimeOptions,
  type Served,
  type ServeOptions,
  serve,
} from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { onTestFinished } from "vitest";

export const run = { threadId: "t", runId: "r", messages: [], protocolVersion: "1.0" };
export const json = { "content-type": "application/json" };

let threads = 0;
/** A request on a thread of its own: one that is known already would be answered with what is there. */
export function fresh<M extends object>(more?: M): typeof run & M {
  return { ...run, threadId: `t${++threads}`, ...more } as typeof run & M;
}

type Body<S> = (ctx: RunContext<S>) => Promise<unknown>;

/** Serves the bodies, each as the agent of its name, until the test is over. */
export async function served<S>(
  bodies: Readonly<Record<string, Body<S>>>,
  options: Omit<RuntimeOptions, "agents"> & Pick<ServeOptions, "linger"> = {},
): Promise<Served> {
  const agents = Object.entries(bodies).map(([name, body]) => agent<S>({ name, run: body }));
  const server = await serve(createRuntime({ agents, onError: () => {}, ...options }), {
    port: 0,
    ...(options.linger !== undefined && { linger: options.linger }),
  });
  onTestFinished(() => server.close());
  return server;
}

/** Lets each request say who asks. */
export const byHeader: NonNullable<RuntimeOptions["authorize"]> = (request) =>
  JSON.parse(request.headers.get("x-who") ?? "null") as Principal | null;

export const as = (subject: string, scopes: readonly string[] = ["answer"], tenant = "acme") => ({
  ...json,
  "x-who": JSON.stringify({ tenant, subject, scopes }),
});

/** Serves agents, until the test is over. */
export async function serving(agents: readonly Agent[], options: Omit<RuntimeOptions, "agents"> = {}): Promise<Served> {
  const server = await serve(createRuntime({ agents, onError: () => {}, ...options }), { port: 0 });
  onTestFinished(() => server.close());
  return server;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

interface Raw {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Several pieces go out chunked. */
  readonly body?: string | Buffer | readonly string[];
}

/** Sends a request with exactly these headers. The answer's body is not read yet. */
export function open(
  url: string,
  { method = "POST", headers = json, body = JSON.stringify(fresh()) }: Raw = {},
): Promise<{
  readonly response: IncomingMessage;
  readonly abort: () => void;
}> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent: false }, (response) =>
      resolve({ response, abort: () => sent.destroy() }),
    );
    sent.on("error", reject);
    if (method !== "POST") sent.end();
    else if (typeof body === "string" || Buffer.isBuffer(body)) sent.end(body);
    else {
      for (const piece of body) sent.write(piece);
      sent.end();
    }
  });
}

/** Sends a request and reads the whole answer. */
export async function ask(url: string, raw: Raw = {}): Promise<Answer> {
  const { response } = await open(url, raw);
  return { status: response.statusCode ?? 0, headers: response.headers, text: await textOf(response) };
}

export async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return text;
}

/** Reads until `wanted` has been seen. */
export async function readUntil(response: IncomingMessage, wanted: string): Promise<string> {
  let text = "";
  while (!text.includes(wanted)) {
    const chunk: unknown = response.read();
    if (chunk === null) await new Promise((more) => response.once("readable", more));
    else text += (chunk as Buffer).toString();
  }
  return text;
}

/** GET, and the answer's JSON. */
export async function get<T>(url: string, headers: Readonly<Record<string, string>> = {}): Promise<T> {
  return JSON.parse((await ask(url, { method: "GET", headers })).text) as T;
}

/** A run as `/runs` lists it. */
export interface ListedRun {
  readonly uid: string;
  readonly agent: string;
  readonly thread: string;
  readonly turn: number;
  readonly state: string;
}

/** Resolves when the newest run of a thread is in one of these states. */
export async function ended(
  url: string,
  thread: string,
  states = ["success", "failed", "cancelled"],
  headers: Readonly<Record<string, string>> = {},
): Promise<ListedRun> {
  for (;;) {
    const { runs } = await get<{ runs: ListedRun[] }>(`${url}/runs?thread=${thread}`, headers);
    if (runs[0] !== undefined && states.includes(runs[0].state)) return runs[0];
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export interface Framed {
  readonly event: AGUIEvent;
  /** The frame's `id:`. */
  readonly cursor: string | undefined;
}

export function framesOf(text: string): Framed[] {
  return text.split("\n\n").flatMap((frame) => {
    const lines = frame.split("\n");
    const data = lines.find((line) => line.startsWith("data: "))?.slice("data: ".length);
    const cursor = lines.find((line) => line.startsWith("id: "))?.slice("id: ".length);
    return data === undefined ? [] : [{ cursor, event: JSON.parse(data) as AGUIEvent }];
  });
}

export function eventsOf(text: string): AGUIEvent[] {
  return framesOf(text).map(({ event }) => event);
}

/** What was sent, with each uid, which the server makes, as `#1`, `#2`, … in order of appearance. */
export function withoutUids<T>(value: T): T {
  const names = new Map<string, string>();
  const text = JSON.stringify(value).replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (uid) => {
    const name = names.get(uid) ?? `#${names.size + 1}`;
    names.set(uid, name);
    return name;
  });
  return JSON.parse(text) as T;
}

/** A promise and what settles it. */
export function deferred<T = void>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

/** A message of the user. */
export const says = (id: string, content: string) => ({ id, role: "user", content });

/** The events of a stream, by type. */
export const types = (text: string): string[] => eventsOf(text).map(({ type }) => type);
