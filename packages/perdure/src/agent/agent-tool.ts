import type { UserMessage } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import { validate } from "../protocol/validate.ts";
import type { Agent, AgentTool } from "../runtime/agent-definition.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import { erase } from "../tool/erase.ts";
import { HandlerError, ToolDefinitionError } from "../tool/errors.ts";
import { jsonSchema } from "../tool/json-schema.ts";

/** What a sub-agent is asked where nothing else is said. */
interface Task {
  readonly task: string;
}

/**
 * How an agent is offered to another one's model.
 *
 * @typeParam I - schema of the arguments
 * @typeParam S - state of the agent that has the tool
 */
export interface AgentToolOptions<I extends Schema = Schema<Task>, S = Json>
  extends Partial<Pick<ToolDefinition, "name" | "aliases" | "description">>,
    Pick<ToolDefinition<I, Schema, Schema, S, "idempotent">, "approval" | "state" | "reduce"> {
  /** The arguments that the model writes. Default: `{ task: string }`. */
  readonly input?: I;
  /** The sub-agent's first user message. Default: the task; for an `input` of your own, its JSON text. */
  readonly message?: (input: Infer<I>) => UserMessage["content"];
}

const TASK = jsonSchema<Task>({
  type: "object",
  properties: { task: { type: "string", description: "What to do, with everything that has to be known for it." } },
  required: ["task"],
  additionalProperties: false,
});

/**
 * An agent as a tool of another one. A call is a run of its own: with its own log, state and history, driven to its end whatever happens to the
 * process, and shown as it goes as a subagent. Its answer is the call's result: its text, or its structured output.
 *
 * ```ts
 * const desk = agent({
 *   name: "desk",
 *   model,
 *   tools: [refund, agentTool(research, { description: "Finds out what happened to an order." })],
 * });
 * ```
 *
 * A call that is cut is not made again: its run is found again and goes on. What the sub-agent asks of humans, it asks through the agent that
 * has called it. A run that fails, or is cancelled, is an error for the model. `research` need not be among the agents of `createRuntime`; if it
 * is not, it has no route of its own.
 *
 * @param of - the agent that does it
 * @param options - `name` and `description` are the agent's own unless given
 * @throws {@link ToolDefinitionError} when there is no description, or the input gives no JSON Schema
 */
export function agentTool<I extends Schema = Schema<Task>, S = Json>(
  of: Agent,
  options: AgentToolOptions<I, S> = {},
): AgentTool {
  const { name = of.name, description = of.description ?? "", input, message: _, ...rest } = options;
  const schema: Schema = input ?? TASK;
  const tool = erase({
    ...(rest as Partial<ToolDefinition>),
    ...{ name, description, effect: "idempotent", input: schema, parallel: true },
    call() {
      const why = `\`${name}\` is an agent: its calls are runs, which createRuntime drives`;
      throw new HandlerError(why, { applied: "no", code: "AGENT_TOOL" });
    },
  });
  return Object.freeze({
    ...tool,
    agent: of,
    async messageFor(given: Json): Promise<UserMessage["content"]> {
      const validated = await validate(schema, given);
      if (!validated.ok) throw new HandlerError(`the arguments of \`${name}\` do not fit`, { applied: "no" });
      if (options.message !== undefined) return asContent(options.message(validated.value as Infer<I>), name);
      return input === undefined ? (validated.value as Task).task : JSON.stringify(given);
    },
  });
}

function asContent(said: unknown, name: string): UserMessage["content"] {
  const content = toJson(said, `what message() of \`${name}\` returned`);
  if (typeof content === "string" || Array.isArray(content)) return content as UserMessage["content"];
  throw new ToolDefinitionError(name, "its message() returned neither a text nor a list of content parts");
}
