/** Model calls of custom loops: their options checked, and made what the driver asks. */

import type { AskedOfModel } from "../log/fixture.ts";
import type { Message } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Agent, AgentTool, LoopModels, PreparedModel } from "../runtime/agent-definition.ts";
import { sha256 } from "../runtime/hash.ts";
import { modelToAsk } from "../runtime/model-retry.ts";
import { registry } from "../tool/registry.ts";
import type { AgentBudget } from "./agent-budget.ts";
import { agentTool } from "./agent-tool.ts";
import { AgentDefinitionError } from "./definition-error.ts";
import type { ModelCallOptions, ModelTurn } from "./loop-context.ts";
import { callModel } from "./model-call.ts";
import { unusableEnd } from "./model-end.ts";
import { readModelOptions } from "./model-options.ts";
import { readModelOutput } from "./model-output.ts";
import { type LanguageModel, type ModelTool, offeredTools, type Prompt } from "./model-port.ts";
import { type ToolResult, type Turn, toPrompt } from "./prompt.ts";

/** @param agent - how errors name it */
export function loopModels(agent: string, budget: AgentBudget): LoopModels {
  return { budget, prepare: (options) => prepare(agent, budget, options as ModelCallOptions), toolOf };
}

const tools = new WeakMap<Agent, AgentTool>();

/** The same tool each time, for it is known by what it is. */
function toolOf(agent: Agent): AgentTool {
  const known = tools.get(agent) ?? agentTool(agent, { description: agent.description ?? `Asks ${agent.name}.` });
  tools.set(agent, known);
  return known;
}

function prepare(agent: string, budget: AgentBudget, options: ModelCallOptions): PreparedModel {
  const whose = `ctx.model() of agent "${agent}"`;
  const { instructions = "", settings = {} } = options;
  const { models, attempts, timeouts } = readModelOptions(options, whose);
  if ((options.prompt === undefined) === (options.messages === undefined)) {
    throw new AgentDefinitionError(`${whose} needs either a prompt or messages`);
  }
  const own = registry(options.tools ?? []);
  const tools = offeredTools(
    [...own].map(({ name, description, inputSchema }): ModelTool => ({ name, description, inputSchema })),
    options.clientTools ?? [],
  );
  const turns = turnsOf(options);
  const policy = { models: models.map(({ provider, modelId }) => ({ provider, modelId })), attempts };
  const modelAt = (index: number): LanguageModel => models[index] ?? (models[0] as LanguageModel);
  const promptOf = (): Prompt => toPrompt({ instructions, turns });
  return {
    checkPrices: () => budget.checkPrices(models),
    ask: (path) => ({
      ...{ path, policy },
      started: ({ head }) => ({
        ...{ kind: "step.started", path, step: "model", name: "model", effect: "read", contract: null },
        input: {
          history: {
            // The messages are the code's own: their hash says whether they are others now.
            upTo: head,
            instructions: sha256(instructions),
            tools: sha256(JSON.stringify(tools)),
            settings: { ...(toJson(settings) as object), messages: sha256(JSON.stringify(turns)) },
          },
        },
      }),
      reserve(step, left) {
        const { maxOutputTokens } = settings;
        const model = modelAt(modelToAsk(step, policy));
        return budget.boundOf({ model, prompt: promptOf(), tools, maxOutputTokens }, left);
      },
      async call({ model: index, maxOutputTokens, signal, emit }) {
        const asked = modelAt(index);
        const bounded = { ...settings, ...(maxOutputTokens !== undefined && { maxOutputTokens }) };
        const request = { model: asked, prompt: promptOf(), tools, settings: bounded, timeouts, signal };
        const answer = await callModel(request, emit);
        const unusable = unusableEnd(asked, answer, index === models.length - 1);
        if (unusable !== undefined) throw unusable;
        const { usage, ...output } = answer;
        return { output: output as unknown as Json, usage };
      },
    }),
    asks: () => ({ prompt: toPrompt({ instructions, turns }), tools, settings }) as unknown as AskedOfModel,
    read(recorded, usage) {
      const output = readModelOutput(recorded);
      const { messageId, text, reasoning, finishReason } = output;
      const calls = output.calls.map(({ id, name, input, invalid }) => ({
        ...{ id, name, input },
        ...(invalid !== undefined && { invalid }),
      }));
      const reasoningText = reasoning.map((part) => part.text).join("\n");
      const turn: ModelTurn = { messageId, text, reasoningText, calls, finishReason, usage, output };
      return { turn, calls: calls.map((call) => ({ call, tool: own.get(call.name) })) };
    },
  };
}

function turnsOf({ prompt, messages }: ModelCallOptions): readonly Turn[] {
  if (messages === undefined) {
    return [{ kind: "message", message: { id: "prompt", role: "user", content: prompt ?? "" } }];
  }
  return messages.map((item): Turn => {
    if (isMessage(item)) return { kind: "message", message: item };
    return isResult(item) ? { kind: "results", results: [item] } : { kind: "model", output: item.output };
  });
}

function isMessage(item: Message | ModelTurn | ToolResult): item is Message {
  return "role" in item;
}

function isResult(item: ModelTurn | ToolResult): item is ToolResult {
  return "callId" in item;
}
