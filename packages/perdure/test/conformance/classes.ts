/**
 * What a producer makes of each of the official AG-UI 1.1 streams, which were written to test clients. Sorted by hand: a file that is not
 * in here fails the suite, so that somebody looks at it.
 */
import type { Rule } from "../../src/protocol/verify.ts";

/** The event of the stream at which the verifier has to stop, and for which reason. */
export interface Refusal {
  readonly at: number;
  readonly rule: Rule;
}

export interface Class {
  /** Where the verifier stops; it takes the whole stream when left out. */
  readonly refused?: Refusal;
  /** Where its strict mode stops, when that is another place. */
  readonly refusedStrictly?: Refusal;
  /** An event whose patch does not fit, and the operation at fault. The reducer keeps what it has, as the client does. */
  readonly unappliable?: { readonly at: number; readonly operation: number };
  /** A client that does not rewrite its messages for its server means by them what `expect.request` says. */
  readonly upgrades?: true;
  /** The stream as a client reads it, without what it drops. With it, the expected messages and state hold for a refused stream too. */
  readonly read?: (stream: readonly unknown[]) => readonly unknown[];
}

const accept: Class = {};
const refuse = (at: number, rule: Rule, read?: Class["read"]): Class => ({
  refused: { at, rule },
  ...(read && { read }),
});

export const LEGAL: Readonly<Record<string, Class>> = {
  "conformant-run-is-quiet": accept,
  "producer-declares-same-version-quiet": accept,
  "triad-assembles-message": accept,
  "reopen-closed-message-appends": accept,
  "tool-call-triad-assembles": accept,
  "tool-call-metadata-lands-on-the-call": accept,
  "metadata-merges-last-write-wins": accept,
  "open-metadata-preserved": accept,
  "tool-result-parts-mint-tool-message": accept,
  "tool-result-file-source-passes-through": accept,
  "reasoning-span-and-message": accept,
  "activity-snapshot-then-delta": accept,
  "activity-replace-false-preserves": accept,
  "state-snapshot-replaces": accept,
  "state-falsy-snapshot-applies": accept,
  "state-null-snapshot-applies": accept,
  "state-delta-applies": accept,
  "open-object-patch-op-extras": accept,
  "messages-snapshot-reconciles-by-id": accept,
  "raw-and-custom-pass-through": accept,
  "run-finished-cancelled-outcome-accepted": accept,
  "run-finished-interrupt-outcome-accepted": accept,
  "run-error-first-run-continues": accept,
  "late-run-error-after-finished-run-continues": accept,
  "run-error-then-new-run-continues": accept,
  "two-sequential-runs-accumulate": accept,
  "subagent-unannounced-attribution-accepted": accept,
};

export const FATAL: Readonly<Record<string, Class>> = {
  "first-event-not-run-started-fatal": refuse(0, "first-event"),
  "nested-run-started-fatal": refuse(1, "run-active"),
  "event-after-run-finished-fatal": refuse(2, "run-over"),
  "open-message-at-run-finished-fatal": refuse(3, "open-at-end"),
  "run-finished-with-active-subagent-fatal": refuse(5, "open-at-end"),
  "step-finished-without-start-fatal": refuse(1, "step-not-open"),
  "content-without-start-fatal": refuse(1, "text-not-open"),
  "reasoning-discipline-verified": refuse(1, "reasoning-message-not-open"),
  "subagent-finished-unstarted-fatal": refuse(1, "subagent-not-open"),
  "subagent-attribution-mismatch-fatal": refuse(3, "owner"),
  "subagent-started-missing-name-fatal": refuse(1, "shape"),
  "reasoning-message-wrong-role-fatal": refuse(1, "shape"),
  "malformed-known-field-fatal": refuse(2, "shape"),
  "unknown-outcome-array-fatal": refuse(1, "shape"),
  "unknown-enum-value-role-fatal": refuse(1, "shape"),
};

export const CLIENT_ONLY: Readonly<Record<string, Class>> = {
  // Chunks. Our verifier takes them as they are, so these are ordinary cases.
  "chunk-expansion-assembles": accept,
  "chunk-repeat-identical-accepted": accept,
  "raw-does-not-close-chunk-stream": accept,
  "subagent-terminal-closes-open-chunk-stream": accept,
  "first-chunk-missing-id-fatal": refuse(1, "chunk-without-id"),
  "first-tool-chunk-missing-name-fatal": refuse(1, "chunk-without-name"),
  "chunk-conflicting-role-fatal": refuse(2, "chunk-conflict"),
  "chunk-conflicting-tool-name-fatal": refuse(2, "chunk-conflict"),
  "custom-closes-chunk-stream-fatal": refuse(3, "chunk-without-id"),

  // Eras: about the client's request, which is what a server reads. The streams are ordinary; nobody may send THINKING_* any more.
  "current-peer-declares-protocol-version": accept,
  "era-pinned-peer-omits-protocol-version": accept,
  "era-0-0-39-flattens-content": accept,
  "era-0-0-47-upgrades-binary-content": { upgrades: true },
  "era-current-peer-keeps-modern-content": { upgrades: true },
  "era-0-0-57-subagent-dropped-with-warning": accept,
  "era-0-0-45-thinking-translated": refuse(1, "shape"),

  // Versions: the client warns. We declare our own version and nothing else.
  "producer-declares-newer-version-warns": { refusedStrictly: { at: 0, rule: "version" } },
  "producer-declares-uninterpretable-version-warns": { refusedStrictly: { at: 0, rule: "version" } },

  // Forgiveness: what clients survive, and producers have no business sending.
  "unknown-event-dropped": refuse(3, "shape", (stream) => stream.filter((_, i) => i !== 3)),
  "unknown-property-stripped": refuse(2, "shape", (stream) => without(stream, "2.futureProp")),
  "unknown-outcome-stripped": refuse(1, "shape", (stream) => without(stream, "1.outcome")),
  "unknown-part-in-message-list": refuse(1, "shape", (stream) => without(stream, "1.messages.0.content.1")),
  "state-delta-unknown-op-dropped": refuse(2, "shape", (stream) => without(stream, "2.delta.0")),
  "state-delta-unappliable-warns-and-keeps": { unappliable: { at: 2, operation: 1 } },
  "activity-delta-missing-target-tolerated": refuse(4, "activity-without-snapshot", (stream) => stream),
  "encrypted-value-unknown-entity-tolerated": accept,
};

/** A copy of `value` without the member or element that the dotted path names. */
function without<T>(value: T, path: string): T {
  const copy = structuredClone(value);
  const keys = path.split(".");
  const last = keys.pop() ?? "";
  let parent: unknown = copy;
  for (const key of keys) parent = Reflect.get(Object(parent), key);
  if (Array.isArray(parent)) parent.splice(Number(last), 1);
  else Reflect.deleteProperty(Object(parent), last);
  return copy;
}
