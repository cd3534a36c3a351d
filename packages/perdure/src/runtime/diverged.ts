/**
 * What an operator is asked where a custom loop's code does something else than it did, and what he may do about it.
 *
 * `accept` and `abandon` are answers. "Fork from here" is none: the run stays as it is and its question stays open, for its former code may be
 * deployed again, and what it has done behind that place is its own. Another run goes on under the new code from the last entry before it.
 */
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/run-state.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { Answer } from "../store/store.ts";
import type { ForkOptions } from "./fork.ts";
import type { Diverged } from "./loop-errors.ts";

const FORK = "fork";

export function divergedQuestion(run: RunState, { difference, at, message, place }: Diverged): Interrupt {
  const { path, seq, what, recorded, wanted, next } = difference;
  return {
    ...{ id: freeId(run, path), path, kind: "diverged", reason: "perdure:diverged", message },
    schema: {
      type: "object",
      properties: {
        action: { enum: ["accept", "abandon", FORK] },
        acknowledge: { type: "array", items: { type: "string" } },
      },
      required: ["action"],
      additionalProperties: false,
    },
    ...{ argsHash: null, audience: "operator", expiresAt: null },
    metadata: { place, what, recorded, wanted, at, next, forkAt: seq - 1 },
  };
}

/** The last entry before the place where code and record part; undefined for other questions. */
export function forkPlace({ kind, metadata }: Pick<Interrupt, "kind" | "metadata">): number | undefined {
  const at = kind === "diverged" && isJsonObject(metadata) ? metadata.forkAt : undefined;
  return typeof at === "number" ? at : undefined;
}

/** The fork that an answer asks for in place of an answer; undefined when it does not. */
export function askedFork(question: Interrupt, { status, payload }: Answer): ForkOptions | undefined {
  const at = forkPlace(question);
  if (at === undefined || status !== "resolved" || !isJsonObject(payload) || payload.action !== FORK) return undefined;
  const acknowledge = Array.isArray(payload.acknowledge) ? payload.acknowledge.map(String) : [];
  // One for each question: asked for again it is there.
  return { at, acknowledge, thread: question.id };
}

/** Why an answer that asks for a fork is refused where no agents are. */
export const FORK_NEEDS_SERVER =
  "a fork goes on with its agent, which only a server has: answer with --url instead of --store";

function freeId({ run, interrupts, answers }: RunState, path: Path): string {
  for (let n = 0; ; n++) {
    const id = idAt(run.uid, path, "operator", n);
    if (!interrupts.has(id) && !answers.has(id)) return id;
  }
}
