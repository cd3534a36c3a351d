/** The published clients and an agent with a model. The oracle is the transcript written here; ids are renamed in order of appearance. */

import type { Message } from "@ag-ui/core";
import { normaliseTranscript } from "perdure/log";
import { describe, expect, it } from "vitest";
import { desk } from "./desk.ts";
import { serving } from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

const called = (id: string, name: string, cents: number) => ({
  id,
  type: "function" as const,
  function: { name, arguments: JSON.stringify({ cents }) },
});

/** What a refund of so many cents looks like, when it was approved where it has to be. */
const refunded = (cents: number): Message[] => [
  { id: "u1", role: "user", content: `${cents}` },
  { id: "thought", role: "reasoning", content: "Look first." },
  { id: "first", role: "assistant", content: "One moment.", toolCalls: [called("c1", "look", cents)] },
  { id: "r1", role: "tool", toolCallId: "c1", content: JSON.stringify({ paid: cents }) },
  { id: "second", role: "assistant", toolCalls: [called("c2", "refund", cents)] },
  { id: "r2", role: "tool", toolCallId: "c2", content: JSON.stringify({ refunded: cents }) },
  { id: "third", role: "assistant", content: `Done with ${cents} cents.` },
];

const held = (messages: readonly Message[]) => normaliseTranscript({ messages, state: {} });

describe.each(versions)("the published client %s and a model", (version) => {
  /** A client on a thread of its own, with something to ask for. */
  async function asking(cents: number, options: Parameters<typeof desk>[0] = {}) {
    const { agent, ledger } = desk(options);
    const { url } = await serving([agent]);
    const stock = stockClient(version, { url: `${url}/agents/desk`, threadId: "t" });
    stock.add({ id: "u1", role: "user", content: `${cents}` });
    return { stock, ledger, url };
  }

  it("shows reasoning, text, and two calls with their results, each on the message that made it", async () => {
    const { stock, ledger } = await asking(500);
    const { types } = await stock.run({ runId: "r" });
    expect(types.at(-1)).toBe("RUN_FINISHED");
    expect(held(stock.messages)).toEqual(held(refunded(500)));
    expect(ledger).toEqual([500]);
  });

  it("is asked for an approval, and the result of what it approved lands on the old call", async () => {
    const { stock, ledger } = await asking(9000);
    const { asked } = await stock.run({ runId: "r" });
    expect(asked).toMatchObject([{ reason: "tool_call" }]);
    expect(held(stock.messages)).toEqual(held(refunded(9000).slice(0, 5)));
    expect(ledger).toEqual([]);
    const resume = asked.map(({ id }) => ({
      interruptId: id,
      status: "resolved" as const,
      payload: { approved: true },
    }));
    const { types } = await stock.run({ runId: "r2", resume });
    expect(types).not.toContain("TOOL_CALL_START");
    expect(held(stock.messages)).toEqual(held(refunded(9000)));
    expect(ledger).toEqual([9000]);
  });

  it.each(["REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT"])(
    "whose connection is cut at %s sends the same request again, and holds what an uninterrupted one does",
    async (type) => {
      const { stock, ledger } = await asking(500, { delayMs: 2 });
      await stock.run({ runId: "r", cutAt: type });
      const { types } = await stock.run({ runId: "r" });
      expect(types.slice(0, 3)).toEqual(["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]);
      expect(types.at(-1)).toBe("RUN_FINISHED");
      expect(held(stock.messages)).toEqual(held(refunded(500)));
      expect(ledger).toEqual([500]);
    },
  );
});
