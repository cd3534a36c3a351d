/** What would be otherwise about a recorded call of a tool, without running it. */
import type { Fact } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { resolveInput } from "../log/model-output.ts";
import { editedArguments } from "../log/tool-result.ts";
import type { Json } from "../protocol/json.ts";
import { sha256 } from "../runtime/hash.ts";
import { attemptKey } from "../runtime/keys.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { Differences } from "./replay-differences.ts";

interface Calling {
  /** The run as it was when the call began, or later. */
  readonly state: RunState;
  /** The whole run. */
  readonly recorded: RunState;
  /** The arguments as the model, or the code, gives them. */
  readonly asked: Json;
  /** Undefined where there is none any more. */
  readonly tool: DynTool | undefined;
  /** A human is asked about each write, whatever its tool says. */
  readonly asksForWrites: boolean;
  /** The line in the code. */
  readonly at?: string | null;
}

export async function callDifferences(
  differences: Differences,
  { path, name, step, effect, contract, input: ref }: Fact<"step.started">,
  calling: Calling,
): Promise<void> {
  const { state, recorded, tool, at = null } = calling;
  const differs = (message: string): void => differences.add(path, "tool", message, { at });
  const isOffered = state.request?.tools.some((one) => one.name === name) ?? false;
  if (step === "client-tool") {
    if (tool !== undefined) differs(`the client ran ${name}, now the server does`);
    else if (!isOffered) differs(`the client is not offered ${name}`);
    return;
  }
  if (tool === undefined) {
    if (contract !== null) differs(`there is no tool ${name} any more`);
    return;
  }
  if (contract === null) return differs(`there was no tool ${name} then, now there is`);
  if (tool.effect !== effect) return differs(`${name} was a ${effect}, now it is a ${tool.effect}`);
  const end = recorded.steps.get(path);
  const given = end === undefined ? undefined : editedArguments(end);
  const input = given ?? resolveInput(state, ref);
  const misfit = await tool.checkJson(input).then(
    () => undefined,
    (error: unknown) => error,
  );
  const refused = end?.finished?.status === "error" && end.finished.error.code === "INVALID_INPUT";
  if (refused !== (misfit !== undefined)) {
    const why = misfit instanceof Error ? `: ${misfit.message}` : "";
    return differs(refused ? `${name} takes now what it refused then` : `${name} refuses what it took then${why}`);
  }
  if (misfit === undefined) await gateDifferences(differences, tool, input, { ...calling, path });
  if (contract !== sha256(tool.contract)) {
    differs(`the contract of ${name} (its schemas) is another one; what was recorded fits it`);
  }
}

/** Whether the same people are asked, and the same key is taken. */
async function gateDifferences(
  differences: Differences,
  tool: DynTool,
  input: Json,
  { path, state, recorded, asked, asksForWrites, at = null }: Calling & { readonly path: Fact<"step.started">["path"] },
): Promise<void> {
  const step = recorded.steps.get(path);
  const wasAsked = step?.asked.some(({ interrupt }) => interrupt.kind === "approval") ?? false;
  const attempt = step?.attempts.find(({ phase }) => phase === "call");
  const isUnattended = step?.finished !== undefined || attempt !== undefined || wasAsked;
  try {
    const own = await tool.approvalFor(asked);
    const asks = own !== false || (asksForWrites && tool.effect === "write");
    if (isUnattended && asks !== wasAsked) {
      const message = asks ? `${tool.name} asks for an approval now` : `${tool.name} asks for no approval any more`;
      differences.add(path, "approval", message, { at });
    }
    const key = tool.keyFor(input);
    // The history of a fork has keys of the run that it was made from.
    const isOwn = key !== null || state.run.forkedFrom === undefined;
    if (attempt !== undefined && isOwn && attempt.key !== attemptKey(state, path, tool, "call", key)) {
      differences.add(path, "key", `${tool.name} gives the call another idempotency key`, { at });
    }
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const message = `what ${tool.name} says of the call before it is run fails now: ${why}`;
    differences.add(path, "tool", message, { at });
  }
}
