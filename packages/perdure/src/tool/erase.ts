import { canonicalJson } from "../protocol/canonical.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { boundaryOf } from "./boundary.ts";
import { readPolicy } from "./check-definition.ts";
import type { Approval, ToolContext, ToolDefinition } from "./definition.ts";
import { deriveContract, deriveSchemas } from "./derive.ts";
import type { DynTool } from "./dyn-tool.ts";
import { MissingIdempotencyKey, ReduceError } from "./errors.ts";
import { isSuspension, type Judgement, type ToolOutcome } from "./outcome.ts";

/**
 * The erased form of a tool: JSON in, JSON out. This is the one place where typed handlers meet untyped values.
 *
 * 1. No body runs without its key, nor with arguments that were not validated. The body gets the validated value, the log keeps the input.
 * 2. What a body throws says whether it was applied: a `read` never, an effect only where it said "no" itself. Raw error text stays in `cause`.
 * 3. A body that returned is done: whatever is wrong with its output is {@link InvalidOutput}, never a failure that is tried again.
 * 4. After the body nothing is left that could fail for want of the input: `reduce` needs it at once, so a schema that only validates
 *    asynchronously is refused before.
 *
 * @throws {@link ToolDefinitionError} when the definition is not one
 */
export function erase(tool: ToolDefinition): DynTool {
  const policy = readPolicy(tool);
  const schemas = deriveSchemas(tool);
  const { name, effect } = tool;
  const { accept, acceptNow, acceptAnswer, answerAsOutput, run, record, failedBefore } = boundaryOf(tool);

  return Object.freeze({
    name,
    aliases: Object.freeze([...(tool.aliases ?? [])]),
    description: tool.description,
    effect,
    ...schemas,
    contract: deriveContract(tool, schemas),
    policy: Object.freeze(policy),
    mayNeedApproval: tool.approval !== undefined && tool.approval !== false,

    async callJson(input: Json, ctx: ToolContext): Promise<ToolOutcome<Json>> {
      const keyed = requireKey(ctx);
      const value = await accept(input);
      const returned = await run(() => tool.call(value, keyed));
      if (!isSuspension(returned)) return { type: "output", output: await record(returned) };
      const { message, reason, expiresIn, metadata } = returned;
      return {
        type: "suspend",
        message,
        ...(reason !== undefined && { reason }),
        ...(expiresIn !== undefined && { expiresIn }),
        ...(metadata !== undefined && { metadata }),
      };
    },

    async resumeJson(answer: Json, input: Json, ctx: ToolContext): Promise<Json> {
      const keyed = requireKey(ctx);
      const value = await accept(input);
      const accepted = await acceptAnswer(answer);
      if (!tool.resume) return await answerAsOutput(accepted);
      return await record(await run(() => tool.resume?.(accepted, value, keyed)));
    },

    async checkJson(input: Json, answer?: Json): Promise<void> {
      await accept(input);
      if (answer === undefined) return;
      const accepted = await acceptAnswer(answer);
      if (!tool.resume) await answerAsOutput(accepted);
    },

    async reconcileJson(input: Json, ctx: ToolContext): Promise<Judgement<Json>> {
      const keyed = requireKey(ctx);
      if (!tool.reconcile) return { applied: "unknown", note: `tool \`${name}\` has no reconcile` };
      const value = await accept(input);
      // Whatever happens here says nothing about the write itself, so it stays unknown.
      const judgement: Judgement<unknown> | undefined = await run(() => tool.reconcile?.(value, keyed));
      switch (judgement?.applied) {
        case "yes":
          return { applied: "yes", output: await record(judgement.output) };
        case "no":
          return { applied: "no" };
        case "unknown":
          return { applied: "unknown", ...(judgement.note !== undefined && { note: String(judgement.note) }) };
        default:
          return { applied: "unknown", note: `reconcile of tool \`${name}\` returned no judgement` };
      }
    },

    reduceJson(draft: Json, output: Json, input: Json): void {
      if (!tool.reduce) return;
      const value = acceptNow(input);
      let returned: unknown;
      try {
        returned = tool.reduce(draft, output, value);
      } catch (cause) {
        throw new ReduceError(name, "threw", { cause });
      }
      if (returned instanceof Promise) {
        returned.catch(() => {}); // Its outcome comes too late to matter; unhandled it would end the process.
        throw new ReduceError(name, "is asynchronous, and it must not be");
      }
    },

    keyFor(input: Json): string | null {
      if (!tool.idempotencyKey) return null;
      const value = acceptNow(input);
      let parts: unknown;
      try {
        parts = tool.idempotencyKey(value);
        // JSON would read undefined as null, and two calls that lack the part would become one.
        if (Array.isArray(parts) && !parts.includes(undefined)) return canonicalJson(toJson(parts, "it"));
      } catch (cause) {
        throw failedBefore("its idempotencyKey threw or is not JSON", cause);
      }
      throw failedBefore("its idempotencyKey is not a list of JSON values without undefined");
    },

    async approvalFor(input: Json): Promise<Approval> {
      const { approval = false } = tool;
      if (typeof approval !== "function") return approval;
      const value = await accept(input);
      let answer: Approval;
      try {
        answer = await approval(value);
      } catch (cause) {
        throw failedBefore("its approval threw", cause);
      }
      if (isApproval(answer)) return answer;
      throw failedBefore("its approval returned neither a boolean nor a request with a message");
    },
  });

  function requireKey(ctx: ToolContext): ToolContext<unknown, string> {
    if (effect !== "read" && !ctx.idempotencyKey) throw new MissingIdempotencyKey(name, effect);
    // Earned by the line above for every effect; the handler of a read has the wider type and knows that there may be none.
    return ctx as ToolContext<unknown, string>;
  }
}

/** Fails closed: what a function without types returns must not pass for "no approval needed" because it is falsy. */
function isApproval(value: unknown): value is Approval {
  return typeof value === "boolean" || (isJsonObject(value) && typeof value.message === "string");
}
