/** A fork as it is asked for over HTTP, and as it is refused there. */
import { UserMessageSchema } from "@ag-ui/core/schemas";
import { z } from "zod";
import type { ContentPart } from "../protocol/events.ts";
import { idProblem } from "../protocol/ids.ts";
import type { Json } from "../protocol/json.ts";
import type { ForkOptions, ForkRefusedError } from "../runtime/fork.ts";
import { problem } from "./problem.ts";

const edits = z.strictObject({
  instructions: z.string().exactOptional(),
  model: z.string().exactOptional(),
  input: z
    .custom<string | readonly ContentPart[]>(
      (content) => UserMessageSchema.safeParse({ id: "u", role: "user", content }).success,
    )
    .exactOptional(),
  state: z.custom<Json>((value) => value !== undefined).exactOptional(),
});

const options = z.strictObject({
  at: z.number().exactOptional(),
  edits: edits.exactOptional(),
  agent: z.string().exactOptional(),
  thread: z
    .string()
    .refine((thread) => idProblem(thread) === undefined)
    .exactOptional(),
  acknowledge: z.array(z.string()).exactOptional(),
});

export const FORK_INPUT =
  "send { at?, edits?: { instructions?, model?, input?, state? }, agent?, thread?, acknowledge?: [step path or tool] } as JSON";

/** @returns undefined for what is no such thing */
export function readForkOptions(body: Json): ForkOptions | undefined {
  const { data } = options.safeParse(body);
  return data;
}

export function forkProblem({ code, message, writes }: ForkRefusedError): Response {
  const details = code === "WRITES_NOT_ACKNOWLEDGED" ? { details: { writes } as unknown as Json } : {};
  return problem(STATUS[code], code, message, details);
}

const STATUS: Readonly<Record<ForkRefusedError["code"], number>> = {
  RUN_NOT_FOUND: 404,
  AGENT_NOT_FOUND: 404,
  FORK_UNSUPPORTED: 422,
  FORK_POINT: 422,
  RUN_PRUNED: 409,
  FORK_EDIT: 422,
  STATE_INVALID: 422,
  WRITES_NOT_ACKNOWLEDGED: 409,
  THREAD_EXISTS: 409,
};
