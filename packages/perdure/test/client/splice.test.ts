/**
 * A reader whose cursor is refused inside a run. Everything is real but the socket: the agent, and all of the published client below it, whose
 * verifier would end the run with an error.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ResumableHttpAgent } from "../../src/client.ts";
import type { Entry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold, type RunState, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { encodeSse } from "../../src/protocol/sse.ts";
import { type Exchange, exchangesOf, uninterrupted } from "../log/clients.ts";
import { headsOf, logOf } from "../log/entries.ts";
import { play, sameShape, turns } from "../log/play.ts";
import { traces } from "../log/traces.ts";
import { quietClient } from "../protocol/published-client.ts";

quietClient();

const AS = { threadId: "thread", runId: "mine" };

interface Held {
  readonly messages: unknown;
  readonly state: unknown;
  readonly seen: readonly AGUIEvent[];
  /** Calls as they were shown ended: with the arguments that a front end would run them with. */
  readonly ended: readonly { readonly id: string; readonly args: string }[];
}

/** Reads a log whose stream breaks off behind entry `cut`, and goes on with a prelude of what the log holds at `head`. */
async function spliced(log: readonly Entry[], cut: number, head: number): Promise<Held> {
  const seen: AGUIEvent[] = [];
  const ended: { id: string; args: string }[] = [];
  let bodies: string[] = [];
  const agent = new ResumableHttpAgent({
    url: "http://perdure.test/agents/desk",
    threadId: "thread",
    sleep: async () => {},
    async fetch() {
      const body = bodies.shift();
      if (body !== undefined)
        return new Response(body, { headers: { "content-type": "text/event-stream", "perdure-run": "u" } });
      agent.abortRun();
      throw new Error("there is nothing more");
    },
  });
  let before: RunState | undefined;
  for (const exchange of exchangesOf(log)) {
    agent.messages.push(...structuredClone(exchange.adds as typeof agent.messages));
    bodies = bodiesOf(exchange, before, cut, head);
    before = fold(exchange.entries, before);
    const { runId } = exchange;
    await agent.connectAgent(
      { runId, follow: true },
      {
        onEvent: ({ event }) => void seen.push(structuredClone(event) as AGUIEvent),
        onToolCallEndEvent({ event: { toolCallId: id }, messages }) {
          const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
          ended.push({ id, args: calls.find((call) => call.id === id)?.function.arguments ?? "" });
        },
      },
    );
  }
  return { messages: agent.messages, state: agent.state, seen, ended };
}

/** What the connections bring, one after the other. */
function bodiesOf({ entries }: Exchange, before: RunState | undefined, cut: number, head: number): string[] {
  const [first = 0, last = 0] = [entries[0]?.seq, entries.at(-1)?.seq];
  const framed = (some: readonly Entry[], from: RunState | undefined) =>
    [...rendered(some, from)].map(({ seq, event }) => encodeSse(event, `c${seq}`)).join("");
  if (head < first || last < head) return [framed(entries, before)];
  const state = fold(
    entries.filter(({ seq }) => seq <= head),
    before,
  );
  const again = prelude(state, AS);
  return [
    framed(
      entries.filter(({ seq }) => seq <= cut),
      before,
    ),
    again.map((event, i) => encodeSse(event, i === again.length - 1 ? `c${head}` : undefined)).join("") +
      framed(
        entries.filter(({ seq }) => seq > head),
        state,
      ),
  ];
}

/** A front end runs a call when it is shown ended: with the arguments that it has in the end, and each one once. */
function checkEnded({ messages, ended }: Held): void {
  const calls = (messages as { toolCalls?: { id: string; function: { arguments: string } }[] }[]).flatMap(
    ({ toolCalls = [] }) => toolCalls.map(({ id, function: { arguments: args } }) => ({ id, args })),
  );
  for (const one of ended) expect(calls).toContainEqual(one);
  expect(new Set(ended.map(({ id }) => id)).size).toBe(ended.length);
}

/** Whether a reader of the entries up to there is inside a run. */
function isInRun(log: readonly Entry[], seq: number): boolean {
  const seen = [...rendered(log)].filter((one) => one.seq <= seq).map(({ event: { type } }) => type);
  return seen.lastIndexOf("RUN_STARTED") > Math.max(seen.lastIndexOf("RUN_FINISHED"), seen.lastIndexOf("RUN_ERROR"));
}

describe.each(traces)("within $name", ({ batches }) => {
  const log = logOf(batches);

  test("wherever it breaks off and whenever it comes back, a reader ends with the same messages and state", async () => {
    const whole = normaliseTranscript(await uninterrupted("1.0.0", log));
    for (const [i, head] of headsOf(batches).entries()) {
      for (const cut of new Set([head, Math.max(0, head - 1 - (i % 7)), Math.floor(head / 2)])) {
        const held = await spliced(log, cut, head);
        expect(normaliseTranscript(held as never), `cut ${cut}, head ${head}`).toEqual(whole);
        checkEnded(held);
      }
    }
  });
});

describe("within a random run with crashes", () => {
  test("wherever it breaks off and whenever it comes back, a reader ends with the same messages and state", async () => {
    let splices = 0;
    await fc.assert(
      fc.asyncProperty(turns, fc.nat(), fc.nat(), async (any, cutAt, back) => {
        const { batches } = play(sameShape(any));
        const log = logOf(batches);
        const heads = headsOf(batches);
        const head = heads[back % heads.length] ?? 0;
        const cut = cutAt % (head + 1);
        const held = await spliced(log, cut, head);
        expect(normaliseTranscript(held as never)).toEqual(normaliseTranscript(await uninterrupted("1.0.0", log)));
        checkEnded(held);
        if (!isInRun(log, cut)) return;
        const starts = (events: readonly { readonly type: string }[]) =>
          events.filter(({ type }) => type === "RUN_STARTED").length;
        expect(starts(held.seen)).toBeLessThanOrEqual(starts([...rendered(log)].map(({ event }) => event)));
        splices++;
      }),
      { numRuns: 200 },
    );
    expect(splices).toBeGreaterThan(50);
  });
});
