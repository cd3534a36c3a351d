import type { Ask, Reply } from "../emit/types.ts";
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import type { Interrupt as WireInterrupt } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";

/** The questions of a run by the ids that the body gave them. On the wire an id has to be unique among all runs. */
export class BodyQuestions {
  readonly replies: ReadonlyMap<string, Reply>;
  readonly #prefix: string;
  readonly #asked = new Map<string, number>();

  constructor(run: RunState) {
    this.#prefix = `${run.run.uid}:q:`;
    const replies = new Map<string, Reply>();
    for (const [wireId, { status, payload }] of run.answers) {
      const { id, ordinal } = this.#read(wireId);
      this.#asked.set(id, Math.max(ordinal + 1, this.#asked.get(id) ?? 0));
      const isResolved = status === "resolved";
      replies.set(
        id,
        isResolved && payload !== undefined ? { status, payload } : { status: isResolved ? status : "cancelled" },
      );
    }
    this.replies = replies;
  }

  idOf({ id }: Ask): string | undefined {
    if (id === undefined) return undefined;
    return `${this.#prefix}${this.#asked.get(id) ?? 0}:${id}`;
  }

  #read(wireId: string): { readonly id: string; readonly ordinal: number } {
    if (!wireId.startsWith(this.#prefix)) return { id: wireId, ordinal: 0 };
    const rest = wireId.slice(this.#prefix.length);
    const colon = rest.indexOf(":");
    return { id: rest.slice(colon + 1), ordinal: Number(rest.slice(0, colon)) };
  }
}

/** A question as the log holds it. */
export function questionOf({
  id,
  reason,
  message,
  toolCallId,
  responseSchema,
  expiresAt,
  metadata,
  subagentRunId,
}: WireInterrupt): Interrupt {
  return {
    ...{ id, path: "" as Path, kind: "question", reason, message: message ?? "", argsHash: null, audience: null },
    schema: (responseSchema ?? true) as Json,
    expiresAt: expiresAt === undefined ? null : Date.parse(expiresAt),
    ...(toolCallId !== undefined && { toolCallId }),
    ...(metadata !== undefined && { metadata: metadata as Json }),
    ...(subagentRunId !== undefined && { subagentRunId }),
  };
}
