import { afterEach, describe, expect, test, vi } from "vitest";
import { encodeEntry, parseEntry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { fold, rendered } from "../../src/log/fold.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { quietClient } from "../protocol/published-client.ts";
import { uninterrupted, versions } from "./clients.ts";
import { logOf, uid } from "./entries.ts";
import { traces } from "./traces.ts";

quietClient();
afterEach(() => vi.unstubAllGlobals());

describe.each(traces)("$name", ({ batches, uninterrupted: plain }) => {
  const log = logOf(batches);

  test("is a log: each entry is written and read back as it was", () => {
    for (const entry of log) {
      const { seq, at, ...fresh } = entry;
      expect(parseEntry(encodeEntry(fresh).text, { run: uid, seq, at })).toEqual(entry);
    }
  });

  test("shows a stream that the strict verifier accepts", () => {
    let wire = newWire({ strict: true });
    for (const { event } of rendered(log)) wire = verify(wire, event);
    verifyEnd(wire);
  });

  test("has the essence of the story without the crash", () => {
    expect(essence(log)).toEqual(essence(logOf(plain)));
  });

  test.each(versions)(
    "leaves a client %s with what it holds without the crash, and what the fold says",
    async (version) => {
      const held = await uninterrupted(version, log);
      expect(normaliseTranscript(held)).toEqual(normaliseTranscript(await uninterrupted(version, logOf(plain))));
      const { messages, shown, committed } = fold(log);
      expect(normaliseTranscript(held)).toEqual(normaliseTranscript({ messages, state: shown }));
      expect(shown).toEqual(committed);
    },
  );
});
