/** Asks a runtime as a front end would, without a socket. */
import type { Runtime } from "../../src/index.ts";

export interface Reply {
  readonly status: number;
  readonly text: string;
}

export function posts(body: unknown): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

/** @returns a function that asks for a path, posts `body` there if there is one, and resolves when it has the whole reply */
export function asking(runtime: Pick<Runtime, "fetch">): (path: string, body?: object) => Promise<Reply> {
  return async (path, body) => {
    const response = await runtime.fetch(new Request(`http://localhost${path}`, body && posts(body)));
    return { status: response.status, text: await response.text() };
  };
}

/** The first request of a thread: one message. */
export function saying(content: string, { threadId = "t", runId = "r", id = "u" } = {}): object {
  return { threadId, runId, messages: [{ id, role: "user", content }] };
}
