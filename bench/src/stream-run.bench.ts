/** A run of 10,000 text deltas, from `message.delta` to the frame's text. */
import { agent, streamRun } from "perdure";
import { encodeSse } from "perdure/protocol";
import { Bench, type Contender, made } from "./harness.ts";

const DELTAS = 10_000;

const talker = agent({
  name: "talker",
  async run(ctx) {
    using message = ctx.message();
    for (let i = 0; i < DELTAS; i++) message.delta(" word");
  },
});
const input = {
  threadId: "thread",
  runId: "run",
  state: {},
  messages: [{ id: "1", role: "user" as const, content: "Talk." }],
  tools: [],
  context: [],
  forwardedProps: {},
};

const run: Contender = {
  name: "streamRun, encodeSse",
  async run(times) {
    let sum = 0;
    for (let i = 0; i < times; i++) for await (const event of streamRun(talker, input)) sum += made(encodeSse(event));
    return sum;
  },
};

const bench = new Bench("stream-run");
await bench.compare(
  `A run of ${DELTAS.toLocaleString("en")} deltas`,
  run,
  [],
  [{ atLeastPerSecond: 500_000, of: "events", each: DELTAS }],
);
bench.finish();
