import { afterEach, describe, expect, test, vi } from "vitest";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { quietClient } from "../protocol/published-client.ts";
import { rejoined, uninterrupted, versions } from "./clients.ts";
import { headsOf, logOf } from "./entries.ts";
import { traces } from "./traces.ts";

quietClient();
afterEach(() => vi.unstubAllGlobals());

describe.each(traces)("at every head of $name", ({ batches }) => {
  const log = logOf(batches);
  const heads = headsOf(batches);

  test("the prelude and what is live after it are a stream that the strict verifier accepts", () => {
    for (const head of heads) {
      const state = fold(log.slice(0, head + 1));
      const as = { threadId: "thread", runId: state.leg?.runId ?? "again" };
      const live = [...rendered(log.slice(head + 1), state)].map(({ event }) => event);
      let wire = newWire({ strict: true });
      for (const event of [...prelude(state, as), ...live]) wire = verify(wire, event);
      verifyEnd(wire);
    }
  });

  test.each(versions)(
    "a client %s ends with the same transcript, reloaded or with what it had seen",
    async (version) => {
      const whole = normaliseTranscript(await uninterrupted(version, log));
      for (const [i, head] of heads.entries()) {
        // Nothing seen, the batch before, and something in between: a connection may be cut anywhere, also within a batch.
        for (const seen of new Set([-1, Math.max(-1, head - 1 - (i % 5)), heads[Math.floor(i / 2)] ?? -1])) {
          const held = await rejoined(version, log, seen, head);
          expect(normaliseTranscript(held), `seen ${seen}, head ${head}`).toEqual(whole);
        }
      }
    },
  );
});
