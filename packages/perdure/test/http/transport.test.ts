/** What leaves on the wire, beside what it says: both encodings, frames that clients can take, and readers who take nothing. */

import { HttpAgent } from "@ag-ui/client";
import { decode } from "@ag-ui/proto";
import type { RunContext } from "perdure";
import { normaliseTranscript } from "perdure/log";
import type { AGUIEvent, Json } from "perdure/protocol";
import { describe, expect, it } from "vitest";
import { desk } from "./desk.ts";
import {
  ask,
  deferred,
  ended,
  eventsOf,
  fresh,
  json,
  open,
  readUntil,
  says,
  served,
  serving,
  textOf,
  withoutUids,
} from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

const PROTOBUF = "application/vnd.ag-ui.event+proto";
const MEBI = 1024 * 1024;

/** The events of a protobuf stream: a length and a message, again and again. */
async function messagesOf(response: AsyncIterable<Buffer>): Promise<AGUIEvent[]> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const events: AGUIEvent[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    events.push(decode(bytes.subarray(at + 4, at + 4 + length)) as AGUIEvent);
    at += 4 + length;
  }
  return events;
}

describe("protobuf", () => {
  it("is for whoever names it: the content type is exact, and the events are those of the other encoding", async () => {
    const { agent } = desk();
    const { url } = await serving([agent]);
    const body = JSON.stringify(fresh({ messages: [says("u1", "500")] }));
    const { response } = await open(`${url}/agents/desk`, { headers: { ...json, accept: PROTOBUF }, body });
    expect(response.headers["content-type"]).toBe(PROTOBUF);
    const events = await messagesOf(response);
    const same = JSON.stringify(fresh({ messages: [says("u1", "500")] }));
    const { text } = await ask(`${url}/agents/desk`, { body: same });
    const plain = (list: readonly AGUIEvent[]) =>
      // What the encoding cannot tell apart from what is not there, and what differs between two threads.
      JSON.parse(JSON.stringify(withoutUids(list)), (key, value: unknown) =>
        key === "threadId" || (Array.isArray(value) && value.length === 0) ? undefined : value,
      ) as unknown;
    expect(events.length).toBeGreaterThan(20);
    expect(plain(events)).toEqual(plain(eventsOf(text)));
  });

  it("is what the published client shows as it shows the other", async () => {
    const { agent } = desk();
    const { url } = await serving([agent]);
    const held = [];
    for (const accept of [PROTOBUF, "text/event-stream"]) {
      const client = new HttpAgent({ url: `${url}/agents/desk`, threadId: accept, headers: { accept } });
      client.addMessage({ id: "u1", role: "user", content: "500" });
      await client.runAgent({ runId: "r" });
      held.push(normaliseTranscript({ messages: client.messages, state: client.state as Json }));
    }
    expect(held[0]).toMatchObject({ messages: { length: 7 } });
    expect(held[0]).toEqual(held[1]);
  });

  it.each([
    ["*/*", "text/event-stream"],
    [`${PROTOBUF};q=0, */*`, "text/event-stream"],
    [`text/event-stream;q=0.2, ${PROTOBUF};q=0.1`, "text/event-stream"],
    [`text/event-stream;q=0.1, ${PROTOBUF};q=0.2`, PROTOBUF],
  ])("accept: %s gets %s, from every route that streams", async (accept, type) => {
    const { url } = await served({ hello: async (ctx) => void ctx.say("Hello.") });
    const body = fresh();
    const posted = await ask(`${url}/agents/hello`, { headers: { ...json, accept }, body: JSON.stringify(body) });
    const { uid } = await ended(url, body.threadId);
    const got = [];
    for (const path of [`threads/${body.threadId}/stream`, `runs/${uid}/stream`]) {
      got.push(await ask(`${url}/${path}`, { method: "GET", headers: { accept } }));
    }
    expect([posted, ...got].map(({ headers }) => headers["content-type"])).toEqual([type, type, type]);
  });
});

describe("what gathers to more than a client takes in one frame", () => {
  const long = async (ctx: RunContext): Promise<void> => void ctx.say("x".repeat(3 * MEBI));

  it.each(versions)("is shortened, with a warning, and the published client %s lives", async (version) => {
    const warnings: string[] = [];
    const { url } = await served({ long }, { onWarning: (warning) => warnings.push(warning) });
    const threadId = "t";
    for (const turn of ["1", "2", "3"]) {
      const body = JSON.stringify({ threadId, runId: turn, messages: [says(turn, turn)], protocolVersion: "1.0" });
      await ask(`${url}/agents/long`, { body });
    }
    expect(warnings).toEqual([]);
    const stock = stockClient(version, { url: `${url}/threads/${threadId}/stream`, threadId });
    await stock.run({ runId: "look" });
    expect(warnings).toEqual([expect.stringMatching(/^a MESSAGES_SNAPSHOT of 9\d{6} bytes /)]);
    expect(stock.messages.map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "user",
      "assistant",
      "user",
      "assistant",
    ]);
    const isWhole = ({ content }: { content?: unknown }) => typeof content === "string" && content.length === 3 * MEBI;
    expect(stock.messages.filter(isWhole)).toHaveLength(2);
  });

  it("goes out in pieces where it is the arguments of a call that is open", async () => {
    const part = `"${"\\\\".repeat(0.75 * MEBI)}",`;
    const gate = deferred();
    const { url } = await served({
      args: async (ctx) => {
        using call = ctx.toolCall("write");
        call.args("[");
        for (let i = 0; i < 4; i++) call.args(part);
        await ctx.flushed();
        ctx.custom("waiting", null);
        await gate.promise;
        ctx.custom("done", null);
        call.args("0]");
      },
    });
    const body = fresh();
    const poster = await open(`${url}/agents/args`, { body: JSON.stringify(body) });
    await readUntil(poster.response, "waiting");
    const reader = await open(`${url}/threads/${body.threadId}/stream`, { method: "GET" });
    gate.resolve();
    const frames = (await textOf(reader.response)).split("\n\n");
    expect(Math.max(...frames.map((frame) => frame.length))).toBeLessThan(8 * MEBI);
    const events = frames.flatMap((frame) => eventsOf(`${frame}\n\n`));
    const args = events.flatMap((event) => (event.type === "TOOL_CALL_ARGS" ? [event.delta] : []));
    expect(args.length).toBeGreaterThan(2);
    expect(args.join("")).toBe(`[${part.repeat(4)}0]`);
  });
});

describe("a reader who takes nothing of what waits for him", () => {
  it("is cut off, and the run goes on to its end", async () => {
    // One batch, and more than the system's buffers between the two take.
    const lump = async (ctx: RunContext): Promise<void> => {
      for (let i = 0; i < 15; i++) ctx.custom("piece", "x".repeat(MEBI));
    };
    const { url } = await served({ lump }, { stalledAfter: 50 });
    const body = fresh();
    const { response } = await open(`${url}/agents/lump`, { body: JSON.stringify(body) });
    await ended(url, body.threadId);
    await new Promise((resolve) => setTimeout(resolve, 500));
    await expect(textOf(response)).rejects.toMatchObject({ code: "ECONNRESET" });
  });

  it("is not one who has nothing to take", async () => {
    const { url } = await served(
      {
        quiet: async () => {
          await new Promise((resolve) => setTimeout(resolve, 300));
        },
      },
      { stalledAfter: 20 },
    );
    expect(eventsOf((await ask(`${url}/agents/quiet`)).text).at(-1)?.type).toBe("RUN_FINISHED");
  });
});
