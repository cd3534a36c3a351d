/**
 * Whether a call that an earlier deployment began can go on under this one. It may unless going on would be a guess: what a human approved,
 * or what may be half done, is never run as something else.
 */

import type { RunState } from "../log/fold.ts";
import type { Asked, StepState } from "../log/run-state.ts";
import { editedArguments } from "../log/tool-result.ts";
import type { Json } from "../protocol/json.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { InvalidAnswer, InvalidInput } from "../tool/errors.ts";
import type { LoopCall } from "./agent-definition.ts";
import { sha256 } from "./hash.ts";
import { attemptKey } from "./keys.ts";

/** What keeps a call from going on, for an operator. */
export interface ContractChange {
  readonly what: string;
  /** What to do about it. */
  readonly next: string;
}

/** The question that a call has put to an operator, while it is open. */
export function contractQuestionOf(step: StepState | undefined): Asked | undefined {
  return step?.asked.findLast(({ interrupt, answer }) => interrupt.kind === "contract-changed" && answer === null);
}

/** @returns undefined when the call can go on */
export async function contractChange(
  run: RunState,
  call: LoopCall,
  step: StepState,
  tool: DynTool | undefined,
): Promise<ContractChange | undefined> {
  const { effect, contract } = step.started;
  if (tool === undefined) {
    const isHalfDone = step.attempts.length > 0 && effect !== "read";
    return isHalfDone
      ? {
          what: `the tool is gone, and its ${effect} may be half done`,
          next: `deploy it again, or name "${call.name}" among the aliases of the tool that has taken its place, and restart`,
        }
      : undefined;
  }
  const isOther = contract !== sha256(tool.contract);
  const name = `tool \`${tool.name}\``;
  if (isOther && effect !== tool.effect && (effect === "write" || tool.effect === "write")) {
    return {
      what: `${name} was a ${effect} when the call began and is a ${tool.effect} now`,
      next: `deploy it as a ${effect} until the call has ended, and restart; or give the changed tool another name`,
    };
  }
  const input = editedArguments(step) ?? call.input;
  if (isOther) {
    const misfit = await misfitOf(step, tool, input);
    if (misfit !== undefined) {
      return {
        what: `${name} no longer takes what was recorded: ${misfit}`,
        next: "deploy a version that takes it, and restart",
      };
    }
  }
  const begun = step.attempts.findLast(({ phase }) => phase === "call");
  if (begun !== undefined && begun.key !== keyNow(run, call, tool, input)) {
    return {
      what: `${name} gives the call another idempotency key than the one under which it has begun`,
      next: "deploy the former `idempotencyKey`, and former names oldest first in `aliases`, and restart",
    };
  }
  return undefined;
}

function keyNow(run: RunState, call: LoopCall, tool: DynTool, input: Json): string | undefined {
  try {
    return attemptKey(run, call.path, tool, "call", tool.keyFor(input));
  } catch {
    return undefined; // it had one
  }
}

async function misfitOf(step: StepState, tool: DynTool, input: Json): Promise<string | undefined> {
  const suspension = step.asked.findLast(({ interrupt }) => interrupt.kind === "suspension");
  const answer = suspension?.answer?.status === "resolved" ? (suspension.answer.payload ?? null) : undefined;
  try {
    await tool.checkJson(input, answer);
  } catch (error) {
    if (error instanceof InvalidInput || error instanceof InvalidAnswer) return error.message;
    // What the schema itself cannot do is for the attempt to say.
  }
  return undefined;
}
