/** Deliberate faults, as changes of the product's sources on their way into a server's bundle. A campaign that does not see them is worth nothing. */

export interface Replacement {
  /** Relative to the product's sources. */
  readonly file: string;
  readonly old: string;
  readonly new: string;
}

export interface Break {
  readonly what: string;
  /** Only the chaos campaign kills often enough to see it. */
  readonly isRare?: true;
  readonly replacements: readonly Replacement[];
}

/** By name: what is broken, and how. */
export const breaks: Readonly<Record<string, Break>> = {
  "attempt-late": {
    what: "an attempt is not durable before its body runs",
    replacements: [
      {
        file: "runtime/call-runner.ts",
        old: "      session.add(entries);\n      await session.committed();\n    } else {",
        new: "      session.add(entries);\n    } else {",
      },
      {
        // Commits that gather for a while do no harm to those who wait for them.
        file: "runtime/run-log.ts",
        old: "void SETTLED.then(() => this.#append());",
        new: "setTimeout(() => this.#append(), 50);",
      },
      {
        file: "runtime/run-log.ts",
        old: "if (this.#isFlushing) await Promise.resolve();",
        new: "while (this.#isFlushing) await new Promise((resolve) => setTimeout(resolve, 5));",
      },
    ],
  },
  "end-first": {
    what: "a retraction ends what is open before the snapshot takes it off the screen",
    replacements: [
      {
        file: "log/retract.ts",
        old: '    ...(changes ? [snapshot] : []),\n    ...endsOf(open, (item) => item.kind !== "step" && item.kind !== "subagent"),',
        new: '    ...endsOf(open, (item) => item.kind !== "step" && item.kind !== "subagent"),\n    ...(changes ? [snapshot] : []),',
      },
    ],
  },
  "raw-replay": {
    what: "a reader without a cursor gets the run's frames again, not a prelude",
    replacements: [
      {
        file: "runtime/follow.ts",
        old: "read === null ? null : await missedBetween(threads, this.options.run, read, head)",
        new: "await missedBetween(threads, this.options.run, read ?? -1, head)",
      },
    ],
  },
  "write-again": {
    what: "a write whose outcome is unknown runs again",
    replacements: [
      {
        file: "runtime/decide.ts",
        old: 'if (effect === "write" && failed.applied === "unknown") {',
        new: 'if (effect === "write" && failed.applied === "unknown" && at < 0) {',
      },
    ],
  },
  "key-per-attempt": {
    what: "an idempotent call that runs again has another key",
    replacements: [
      {
        file: "runtime/call-runner.ts",
        old: "const key = attemptKey(session.state, call.path, tool, phase, business);",
        new: "const key = attemptKey(session.state, call.path, tool, phase, business) + (business === null ? n : '');",
      },
    ],
  },
  "reconcile-deaf": {
    what: "what reconcile has found is not believed",
    replacements: [
      {
        file: "tool/erase.ts",
        old: 'return { applied: "yes", output: await record(judgement.output) };',
        new: 'return { applied: "no" };',
      },
    ],
  },
  "answer-dropped": {
    what: "an answer is accepted, and its run does not hear of it",
    replacements: [
      {
        file: "store/transactions.ts",
        old: 'addInbox(tx, run, by.subject, { kind: "answer", interrupt });\n  wake',
        new: 'if (tx.at < 0) addInbox(tx, run, by.subject, { kind: "answer", interrupt });\n  wake',
      },
    ],
  },
  "text-stays": {
    what: "the text that a cut attempt has shown stays on the screen",
    replacements: [
      {
        file: "log/retract.ts",
        old: "const changes = reduceMessages",
        new: "const changes = n < 0 && reduceMessages",
      },
    ],
  },
  "cursor-repeats": {
    what: "a reader with a cursor gets the frame of its cursor again",
    replacements: [
      {
        file: "runtime/follow.ts",
        old: "if (shown.seq > after && shown.seq <= head)",
        new: "if (shown.seq >= after && shown.seq <= head)",
      },
    ],
  },
  "state-later": {
    what: "what an answer does to the screen follows in a batch of its own",
    isRare: true,
    replacements: [
      {
        file: "runtime/call-runner.ts",
        old: '        ...(end.status === "ok" ? session.showing(call.path, apply(session.state.committed, end.patch)) : []),\n      ];',
        new: "      ];",
      },
    ],
  },
};

/** @throws when the text is not there exactly once: the product has changed, and the fault has to be put anew */
export function replaced(source: string, { file, old, new: replacement }: Replacement): string {
  const parts = source.split(old);
  if (parts.length !== 2) throw new Error(`${file} holds ${parts.length - 1} times what the break replaces: ${old}`);
  return parts.join(replacement);
}
