/** What a request has to be, over real sockets: each refusal is a status and `{ error: { code, message } }`, before any event. */
import { agent, createRuntime, type RuntimeOptions, type Served, serve } from "perdure";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { type Answer, ask, eventsOf, json, run, served } from "./rig.ts";

const echo = { echo: async () => "done" };

const serveEcho = async (options: Omit<RuntimeOptions, "agents"> = {}): Promise<Served & { readonly at: string }> => {
  const server = await served(echo, options);
  return { ...server, at: `${server.url}/agents/echo` };
};

/** The code of a refusal, whose body has to be what the contract says. */
function refusal(answer: Answer): { status: number; code: string; message: string; details?: unknown } {
  expect(answer.headers["content-type"]).toMatch(/^application\/json/);
  const body = JSON.parse(answer.text) as { error: { code: string; message: string; details?: unknown } };
  expect(Object.keys(body)).toEqual(["error"]);
  expect(body.error).toEqual({
    code: expect.stringMatching(/^[A-Z_]+$/),
    message: expect.stringMatching(/.{10}/),
    ...("details" in body.error && { details: body.error.details }),
  });
  return { status: answer.status, ...body.error };
}

describe("a request that is not one", () => {
  it("400 INVALID_JSON for a body that is not JSON, an empty one too", async () => {
    const { at } = await serveEcho();
    for (const body of ["{", "", "nonsense", '{"threadId":"t",}']) {
      expect(refusal(await ask(at, { body }))).toMatchObject({ status: 400, code: "INVALID_JSON" });
    }
  });

  it("400 INVALID_JSON for bytes that are not UTF-8, instead of a text that was not sent", async () => {
    const { at } = await serveEcho();
    const body = Buffer.from(JSON.stringify({ ...run, threadId: "t?" }));
    body[body.indexOf("?")] = 0xff;
    expect(refusal(await ask(at, { body }))).toMatchObject({ status: 400, code: "INVALID_JSON" });
  });

  it("400 INPUT_INVALID says where, for every fault at once", async () => {
    const { at } = await serveEcho();
    const body = JSON.stringify({ threadId: 7, runId: "r", messages: [{ id: "u", role: "user" }] });
    const { status, code, details, message } = refusal(await ask(at, { body }));
    expect({ status, code }).toEqual({ status: 400, code: "INPUT_INVALID" });
    expect((details as { path: string }[]).map(({ path }) => path)).toEqual(["/threadId", "/messages/0/content"]);
    expect(message).toContain("/threadId");
  });

  it("400 BAD_REQUEST for a Host that is no host", async () => {
    const { at } = await serveEcho();
    expect(refusal(await ask(at, { headers: { ...json, host: "a b/c" } }))).toMatchObject({
      status: 400,
      code: "BAD_REQUEST",
    });
  });

  it("415 CONTENT_TYPE unless the body says that it is JSON, because a page may post anything else without asking", async () => {
    const { at } = await serveEcho();
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""]) {
      const headers = type === "" ? {} : { "content-type": type };
      expect(refusal(await ask(at, { headers }))).toMatchObject({ status: 415, code: "CONTENT_TYPE" });
    }
    expect((await ask(at, { headers: { "content-type": "Application/JSON; charset=utf-8" } })).status).toBe(200);
  });

  it("406 NOT_ACCEPTABLE when the client takes no event stream", async () => {
    const { at } = await serveEcho();
    for (const accept of ["application/json", "text/event-stream;q=0", "application/*"]) {
      expect(refusal(await ask(at, { headers: { ...json, accept } }))).toMatchObject({
        status: 406,
        code: "NOT_ACCEPTABLE",
      });
    }
    for (const accept of ["*/*", "text/*", "text/event-stream, application/json"]) {
      expect((await ask(at, { headers: { ...json, accept } })).status).toBe(200);
    }
  });

  it("413 BODY_TOO_LARGE for a body over the limit, whether its length is declared or it comes in chunks", async () => {
    const { at } = await serveEcho({ bodyLimit: 1000 });
    const large = JSON.stringify({ ...run, forwardedProps: "x".repeat(2000) });
    expect(refusal(await ask(at, { body: large }))).toMatchObject({ status: 413, code: "BODY_TOO_LARGE" });
    const pieces = [large.slice(0, 700), large.slice(700, 1400), large.slice(1400)];
    expect(refusal(await ask(at, { body: pieces }))).toMatchObject({ status: 413, code: "BODY_TOO_LARGE" });
    expect((await ask(at, { body: [JSON.stringify(run).slice(0, 9), JSON.stringify(run).slice(9)] })).status).toBe(200);
  });

  it("413 PAYLOAD_TOO_LARGE for a state or a message that the log does not take, and no run comes of it", async () => {
    const onError = vi.fn();
    const { at, url } = await serveEcho({ onError });
    const text = "x".repeat(4 * 1024 * 1024);
    for (const [what, more] of [
      ["state of the request", { state: { text } }],
      ["messages of the request", { messages: [{ id: "u", role: "user", content: text }] }],
      ["forwardedProps of the request", { forwardedProps: { text } }],
    ] as const) {
      const refused = refusal(await ask(at, { body: JSON.stringify({ ...run, ...more }) }));
      expect(refused).toMatchObject({ status: 413, code: "PAYLOAD_TOO_LARGE", message: expect.stringContaining(what) });
    }
    expect(JSON.parse((await ask(`${url}/runs`, { method: "GET" })).text)).toEqual({ runs: [] });
    expect(onError).not.toHaveBeenCalled();
    const fits = JSON.stringify({
      ...run,
      state: { text: text.slice(100) },
      messages: [{ id: "u", role: "user", content: text.slice(100) }],
    });
    expect((await ask(at, { body: fits })).status).toBe(200);
  });

  it("422 STATE_INVALID for a state that does not fit the agent's schema, with details", async () => {
    const board = { schema: z.object({ tasks: z.array(z.string()) }), initial: () => ({ tasks: [] }) };
    const strict = agent({ name: "strict", state: board, run: async () => {} });
    const server = await serve(createRuntime({ agents: [strict] }), { port: 0 });
    onTestFinished(() => server.close());
    const body = JSON.stringify({ ...run, state: { tasks: ["a", 2] } });
    expect(refusal(await ask(`${server.url}/agents/strict`, { body }))).toMatchObject({
      status: 422,
      code: "STATE_INVALID",
      details: [{ path: "/tasks/1" }],
    });
  });

  it("404 for an agent that is not there, naming those that are, and for every other path", async () => {
    const { url } = await serveEcho();
    const missing = refusal(await ask(`${url}/agents/nobody`));
    expect(missing).toMatchObject({ status: 404, code: "AGENT_NOT_FOUND" });
    expect(missing.message).toContain("echo");
    expect(refusal(await ask(`${url}/`, { method: "GET" }))).toMatchObject({ status: 404, code: "NOT_FOUND" });
  });

  it("405 with Allow for any method but POST and GET", async () => {
    const { at } = await serveEcho();
    for (const method of ["PUT", "DELETE", "PATCH"]) {
      const answer = await ask(at, { method });
      expect(refusal(answer)).toMatchObject({ status: 405, code: "METHOD_NOT_ALLOWED" });
      expect(answer.headers.allow).toBe("GET, HEAD, POST");
    }
  });

  it("500 INTERNAL without the cause when a hook throws, and onError gets it, even if onError throws too", async () => {
    const seen: unknown[] = [];
    const printed = vi.spyOn(console, "error").mockReturnValue();
    onTestFinished(() => printed.mockRestore());
    const authorize = () => {
      throw new Error("the directory at ldap://secret is down");
    };
    const onError = (error: unknown) => {
      seen.push(error);
      throw new Error("the log is full");
    };
    const { at } = await serveEcho({ authorize, onError });
    const answer = await ask(at);
    expect(refusal(answer)).toMatchObject({ status: 500, code: "INTERNAL" });
    expect(answer.text).not.toContain("secret");
    expect(seen.map(String)).toEqual(["Error: the directory at ldap://secret is down"]);
    expect(printed).toHaveBeenCalledOnce();
  });
});

describe("who may ask", () => {
  it("403 FOREIGN_ORIGIN for a page of another origin, the same origin passes", async () => {
    const { at, port } = await serveEcho();
    for (const origin of ["https://evil.example", "null", `http://127.0.0.1:${port + 1}`]) {
      expect(refusal(await ask(at, { headers: { ...json, origin } }))).toMatchObject({
        status: 403,
        code: "FOREIGN_ORIGIN",
      });
    }
    expect((await ask(at, { headers: { ...json, origin: `http://127.0.0.1:${port}` } })).status).toBe(200);
  });

  it("403 FOREIGN_HOST for a name that was rebound to this machine", async () => {
    const { at } = await serveEcho();
    for (const host of ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"]) {
      expect(refusal(await ask(at, { headers: { ...json, host } }))).toMatchObject({
        status: 403,
        code: "FOREIGN_HOST",
      });
    }
    expect((await ask(at, { headers: { ...json, host: "localhost" } })).status).toBe(200);
  });

  it("a host other than loopback is not served without an authorize hook", async () => {
    const runtime = createRuntime({ agents: [] });
    await expect(serve(runtime, { port: 0, hostname: "0.0.0.0" })).rejects.toMatchObject({ code: "AUTHORIZE_MISSING" });
    const open = createRuntime({ agents: [], authorize: () => null });
    const server = await serve(open, { port: 0, hostname: "0.0.0.0" });
    await server.close();
  });

  it("authorize says who asks: nobody is 401, somebody is ctx.principal, and another Host is fine then", async () => {
    const principal = { tenant: "acme", subject: "ann", scopes: ["answer"] };
    const who = { who: async (ctx: { principal: unknown }) => ctx.principal };
    const { url } = await served(who, {
      authorize: (request) => (request.headers.get("authorization") === "Bearer ann" ? principal : null),
    });
    expect(refusal(await ask(`${url}/agents/who`))).toMatchObject({ status: 401, code: "UNAUTHORIZED" });
    const headers = { ...json, authorization: "Bearer ann", host: "agents.acme.example" };
    const answer = await ask(`${url}/agents/who`, { headers });
    expect(eventsOf(answer.text).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: principal });
    // Whether an agent exists is nobody else's business.
    expect(refusal(await ask(`${url}/agents/nobody`))).toMatchObject({ status: 401 });
  });

  it("no CORS header unless asked, and no preflight is granted", async () => {
    const { at, port } = await serveEcho();
    const origin = `http://127.0.0.1:${port}`;
    const answers = [
      await ask(at, { headers: { ...json, origin } }),
      await ask(at, { method: "OPTIONS", headers: { origin, "access-control-request-method": "POST" } }),
    ];
    for (const { headers } of answers) {
      expect(Object.keys(headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
    }
    expect(answers[1]?.status).toBe(405);
  });

  it("CORS for the origins that were named: the preflight passes, also before authorize, and the stream carries the header", async () => {
    const origin = "https://app.example";
    const { at } = await serveEcho({
      cors: { origins: [origin] },
      authorize: (r) => (r.method === "POST" ? LOCAL : null),
    });
    const preflight = await ask(at, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type" },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers["access-control-allow-origin"]).toBe(origin);
    expect(preflight.headers["access-control-allow-headers"]).toBe("content-type");
    expect(preflight.headers["access-control-allow-methods"]).toContain("POST");
    const answer = await ask(at, { headers: { ...json, origin } });
    expect(answer.status).toBe(200);
    expect(answer.headers["access-control-allow-origin"]).toBe(origin);
    const other = await ask(at, { headers: { ...json, origin: "https://other.example" } });
    expect(other.headers["access-control-allow-origin"]).toBeUndefined();
  });
});

const LOCAL = { tenant: "t", subject: "s", scopes: [] };

describe("serve and createRuntime", () => {
  it("a taken port is PORT_TAKEN, naming port and host and what to do", async () => {
    const { port } = await serveEcho();
    const taken = serve(createRuntime({ agents: [] }), { port });
    await expect(taken).rejects.toMatchObject({
      code: "PORT_TAKEN",
      message: expect.stringMatching(new RegExp(`port ${port} of 127.0.0.1 is taken; .*0 for a free one`)),
      cause: { code: "EADDRINUSE" },
    });
  });

  it("two agents of one name are AGENT_DEFINITION", () => {
    const twin = () => agent({ name: "twin", run: async () => {} });
    expect(() => createRuntime({ agents: [twin(), twin()] })).toThrow(
      expect.objectContaining({ code: "AGENT_DEFINITION", message: expect.stringContaining('"twin"') }),
    );
  });

  it("fetch alone answers the same, without a socket", async () => {
    const { fetch } = createRuntime({ agents: [agent({ name: "echo", run: async () => "done" })] });
    const request = new Request("http://localhost/agents/echo", {
      method: "POST",
      headers: json,
      body: JSON.stringify(run),
    });
    const response = await fetch(request);
    expect(eventsOf(await response.text()).map(({ type }) => type)).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
  });

  it("what was odd about a request is told to onWarning, and the run goes on", async () => {
    const warnings: string[] = [];
    const { at } = await serveEcho({ onWarning: (warning) => warnings.push(warning) });
    const body = JSON.stringify({ ...run, mood: "good" });
    expect((await ask(at, { body })).status).toBe(200);
    expect(warnings).toEqual([expect.stringContaining("/mood")]);
  });
});
