import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { HttpAgent as Agent045 } from "@ag-ui/client-0.0.45";
import { HttpAgent as Agent059 } from "@ag-ui/client-0.0.59";
import * as fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type AGUIEvent, type ContentPart, event, type Message } from "../../src/protocol/events.ts";
import { gateFor } from "../../src/protocol/gates.ts";
import { encodeSse } from "../../src/protocol/sse.ts";
import { legalStream } from "./legal-streams.ts";

// ── Real old clients over a real socket. The body of each answer waits under its path.

const bodies = new Map<string, string>();
const server = createServer((request, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" }).end(bodies.get(request.url ?? ""));
});
beforeAll(() => new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve)));
afterAll(() => new Promise((resolve) => void server.close(resolve)));

// The old clients print what they die of, at length.
beforeEach(() => {
  const quiet = ["error", "warn", "log"] as const;
  for (const method of quiet) vi.spyOn(console, method).mockImplementation(() => {});
  return () => vi.restoreAllMocks();
});

interface OldAgent {
  readonly messages: readonly unknown[];
  readonly state: unknown;
  runAgent(): Promise<unknown>;
}
const OLD: Readonly<Record<string, (url: string) => OldAgent>> = {
  "0.0.45": (url) => new Agent045({ url, threadId: "thread" }),
  "0.0.59": (url) => new Agent059({ url, threadId: "thread" }),
};
const versions = Object.keys(OLD);

let paths = 0;
/** What an old client holds after it read these events to the end; it rejects if the client died of one. */
async function read(version: string, events: readonly AGUIEvent[]): Promise<OldAgent> {
  const path = `/${paths++}`;
  bodies.set(path, events.map((next) => encodeSse(next)).join(""));
  const { port } = server.address() as AddressInfo;
  const agent = OLD[version]?.(`http://127.0.0.1:${port}${path}`);
  if (agent === undefined) throw new Error(`no client ${version}`);
  try {
    await agent.runAgent();
  } finally {
    bodies.delete(path);
  }
  return agent;
}

function gated(events: readonly AGUIEvent[], version?: string): AGUIEvent[] {
  return events.map(gateFor(version)).filter((next) => next !== null);
}

const run = (...events: readonly AGUIEvent[]) => [
  event("RUN_STARTED", { threadId: "thread", runId: "r" }),
  ...events,
  event("RUN_FINISHED", { threadId: "thread", runId: "r" }),
];
const call = [
  event("TOOL_CALL_START", { toolCallId: "c", toolCallName: "f" }),
  event("TOOL_CALL_END", { toolCallId: "c" }),
];
const ending = (outcome: NonNullable<Extract<AGUIEvent, { type: "RUN_FINISHED" }>["outcome"]>) => [
  event("RUN_STARTED", { threadId: "thread", runId: "r" }),
  event("RUN_FINISHED", { threadId: "thread", runId: "r", outcome }),
];
const MEDIA: readonly ContentPart[] = [
  { type: "text", text: "look" },
  { type: "image", source: { type: "url", value: "https://example.test/a.png" } },
  { type: "document", source: { type: "data", value: "aGk=", mimeType: "application/pdf" } },
  { type: "video", source: { type: "file", value: "file-1", provider: "openai" } },
  { type: "audio", source: { type: "url", value: "" } },
];
const showing = (...parts: readonly ContentPart[]): Message => ({ id: "u", role: "user", content: [...parts] });
const input = (message: Message) => ({ threadId: "thread", runId: "r", messages: [message], tools: [], context: [] });

/** Each feature, and the old clients that die of it as it is. */
const FEATURES: readonly [string, readonly AGUIEvent[], readonly string[]][] = [
  ["pending tool calls", ending({ type: "success", pendingToolCallIds: ["c"] }), ["0.0.59"]],
  ["a cancelled run", ending({ type: "cancelled" }), ["0.0.59"]],
  [
    "an interrupt",
    ending({
      type: "interrupt",
      interrupts: [{ id: "i", reason: "tool_call", subagentRunId: "s", metadata: { a: null } }],
    }),
    [],
  ],
  [
    "a result in parts",
    run(...call, event("TOOL_CALL_RESULT", { messageId: "m", toolCallId: "c", content: [...MEDIA] })),
    ["0.0.45", "0.0.59"],
  ],
  [
    "subagents",
    run(
      event("SUBAGENT_STARTED", { subagentRunId: "s", name: "n" }),
      event("TEXT_MESSAGE_START", { messageId: "m", subagentRunId: "s" }),
      event("TEXT_MESSAGE_END", { messageId: "m" }),
      event("SUBAGENT_ERROR", { subagentRunId: "s", message: "x" }),
      event("SUBAGENT_STARTED", { subagentRunId: "s2", name: "n" }),
      event("SUBAGENT_FINISHED", { subagentRunId: "s2", outcome: { type: "suspended", interruptIds: ["i"] } }),
    ),
    ["0.0.45"],
  ],
  [
    "steps of one name under two owners",
    run(
      event("STEP_STARTED", { stepName: "plan" }),
      event("STEP_STARTED", { stepName: "plan", subagentRunId: "s" }),
      event("STEP_FINISHED", { stepName: "plan", subagentRunId: "s" }),
      event("STEP_FINISHED", { stepName: "plan" }),
    ),
    ["0.0.45"],
  ],
  [
    "an empty text delta",
    run(
      event("TEXT_MESSAGE_START", { messageId: "m" }),
      event("TEXT_MESSAGE_CONTENT", { messageId: "m", delta: "" }),
      event("TEXT_MESSAGE_END", { messageId: "m" }),
    ),
    ["0.0.45"],
  ],
  [
    "an empty reasoning delta",
    run(
      event("REASONING_MESSAGE_START", { messageId: "m", role: "reasoning" }),
      event("REASONING_MESSAGE_CONTENT", { messageId: "m", delta: "" }),
      event("REASONING_MESSAGE_END", { messageId: "m" }),
    ),
    ["0.0.45"],
  ],
  [
    "a picture by URL in a snapshot",
    run(event("MESSAGES_SNAPSHOT", { messages: [showing(...MEDIA.slice(0, 2))] })),
    ["0.0.45"],
  ],
  [
    "a provider's file in a snapshot",
    run(event("MESSAGES_SNAPSHOT", { messages: [showing(...MEDIA)] })),
    ["0.0.45", "0.0.59"],
  ],
  [
    "a result in parts in a snapshot",
    run(event("MESSAGES_SNAPSHOT", { messages: [{ id: "t", role: "tool", toolCallId: "c", content: [...MEDIA] }] })),
    ["0.0.45", "0.0.59"],
  ],
  [
    "a provider's file in an echoed request",
    [event("RUN_STARTED", { threadId: "thread", runId: "r", input: input(showing(...MEDIA)) }), ...run().slice(1)],
    ["0.0.45", "0.0.59"],
  ],
];

describe.each(versions)("client %s", (version) => {
  test.each(FEATURES)("reads a gated run with %s", async (_, events) => {
    await read(version, gated(events));
  });

  const fatal = FEATURES.filter(([, , dying]) => dying.includes(version));
  test.each(fatal)("would die of an ungated run with %s", async (_, events) => {
    await expect(read(version, events)).rejects.toThrow();
  });

  test("reads random legal runs once they are gated, up to a RUN_ERROR", async () => {
    await fc.assert(
      fc.asyncProperty(legalStream({ chunks: true, maxRuns: 2 }), async (events) => {
        const end = events.findIndex(({ type }) => type === "RUN_ERROR");
        await read(version, gated(end < 0 ? events : events.slice(0, end + 1)));
      }),
      { numRuns: 60 },
    );
  });

  test("keeps the text of a result, and sees media as binary parts", async () => {
    const agent = await read(
      version,
      gated(
        run(
          event("MESSAGES_SNAPSHOT", { messages: [showing(...MEDIA)] }),
          ...call,
          event("TOOL_CALL_RESULT", { messageId: "m", toolCallId: "c", content: [...MEDIA] }),
        ),
      ),
    );
    expect(agent.messages[0]).toMatchObject({
      content: [
        { type: "text", text: "look" },
        { type: "binary", mimeType: "image/*", url: "https://example.test/a.png" },
        { type: "binary", mimeType: "application/pdf", data: "aGk=" },
        { type: "binary", mimeType: "video/*", id: "file-1" },
      ],
    });
    expect(agent.messages.at(-1)).toMatchObject({ role: "tool", content: "look" });
  });
});

describe("gateFor", () => {
  const events = FEATURES.flatMap(([, list]) => list);

  test.each(["1.0", "1.1", "2.0", "1", "10.3.1"])("lets everything through for a reader of %s, as it is", (version) => {
    for (const next of events) expect(gateFor(version)(next)).toBe(next);
  });

  test.each([undefined, "", "0.0.59", "0.9", "draft", "v1.0", "1.0-beta", "-1", "1.x"])(
    "takes %j for a version before 1.0",
    (version) => {
      expect(gated(ending({ type: "cancelled" }), version)[1]).not.toHaveProperty("outcome");
    },
  );

  test("changes no event that it was given", () => {
    const before = JSON.stringify(events);
    gated(events);
    expect(JSON.stringify(events)).toBe(before);
  });

  test("leaves what an old reader can take as it is", () => {
    for (const next of run(...call, event("CUSTOM", { name: "n", value: null })))
      expect(gateFor(undefined)(next)).toBe(next);
  });
});
