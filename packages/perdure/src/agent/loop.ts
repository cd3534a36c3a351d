/**
 * The built-in loop: ask the model, run the calls it made, ask again, until it has nothing to call. It folds the log and replays no user
 * code, so it goes on after any crash, and under a newer version of itself.
 *
 * Model steps stand at 0, 2, 4 …; call i of the turn that model step m began at (m + 1).i.
 */
import type { AskedOfModel } from "../log/fixture.ts";
import type { RunState, StepState } from "../log/fold.ts";
import { clientMessage, clientResult, editedArguments } from "../log/tool-result.ts";
import type { Message, UserMessage } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import {
  isAgentTool,
  type Loop,
  type LoopCall,
  type ModelStep,
  type Next,
  type OwnStep,
} from "../runtime/agent-definition.ts";
import type { LoopBudget } from "../runtime/budget.ts";
import { BUDGET_EXCEEDED } from "../runtime/budget-question.ts";
import { modelToAsk } from "../runtime/model-retry.ts";
import type { ToolRegistry } from "../tool/registry.ts";
import { agentBudget, type Budgeted } from "./agent-budget.ts";
import { type Compaction, Compactor, type Conversation, conversationOf, isModel } from "./compaction.ts";
import { estimateTokens } from "./estimate-tokens.ts";
import { callModel } from "./model-call.ts";
import { NOT_WHOLE, unusableEnd } from "./model-end.ts";
import { type ModelOutput, readModelOutput } from "./model-output.ts";
import {
  type CallSettings,
  type LanguageModel,
  type ModelTimeouts,
  type ModelTool,
  offeredTools,
} from "./model-port.ts";
import { type ToolResult, type Turn, toPrompt, unusableParts } from "./prompt.ts";
import { ANSWER_STEP, ANSWER_TOOL, OUTPUT_INVALID, repairRequest, type StructuredOutput } from "./structured-output.ts";

export interface LoopOptions {
  /** The model, then its fallbacks. */
  readonly models: readonly LanguageModel[];
  /** What is otherwise with another model of the agent's, by its name. */
  readonly alternatives: Readonly<Record<string, Pick<LoopOptions, "models" | "output">>>;
  readonly instructions: string;
  readonly tools: ToolRegistry;
  readonly settings: StepSettings;
  /** How often each model is asked for one answer, at most. */
  readonly attempts: number;
  readonly timeouts: ModelTimeouts;
  readonly budgeted: Omit<Budgeted, "models" | "called" | "toolName">;
  readonly output?: StructuredOutput | undefined;
  readonly compaction?: Compaction | undefined;
}

/** How a model is asked: the same each time, or as the step needs it. */
export type StepSettings = CallSettings | ((about: AboutStep) => CallSettings);

/** What `settings` may look at. */
export interface AboutStep {
  /** Model steps of this run before this one. */
  readonly stepNumber: number;
  /** The conversation as clients see it. */
  readonly messages: readonly Message[];
}

export function builtInLoop(options: LoopOptions): Loop {
  const { models, alternatives, instructions, tools, settings, attempts, timeouts, budgeted } = options;
  const { output: structured, compaction } = options;
  const answersByCall = structured?.mode === "tool";
  const serverTools = [...tools, ...(answersByCall ? [structured.tool] : [])].map(
    ({ name, description, inputSchema }): ModelTool => ({ name, description, inputSchema }),
  );
  const format = structured?.mode === "json" ? { responseFormat: structured.format } : {};
  /** Else a model that has nothing to call answers in text. */
  const withChoice = (given: CallSettings): CallSettings =>
    answersByCall ? { toolChoice: { type: "required" }, ...given } : given;
  const converse = (runs: readonly RunState[]): Conversation => conversationOf(turnsOf(runs), runs);
  const offered = (turns: readonly Turn[], run: RunState) => ({
    prompt: toPrompt({ instructions: withContext(instructions, run), turns }),
    tools: offeredTools(serverTools, run.request?.tools ?? []),
  });
  const asks = ({ run, before, settings: asked }: Pick<ModelStep, "run" | "before" | "settings">) => ({
    ...offered(converse([...before, run]).turns, run),
    settings: asked as CallSettings,
  });
  const policy = { models: models.map(({ provider, modelId }) => ({ provider, modelId })), attempts };
  const settingsOf = (run: RunState, path: Path): Json => {
    if (typeof settings !== "function") return withChoice(settings) as Json;
    const given = settings({ stepNumber: Number(path) / 2, messages: run.messages });
    return toJson(withChoice(given), "settings of a model step");
  };
  const limited = agentBudget({
    ...{ ...budgeted, toolName: (name) => tools.get(name)?.name },
    called: [...tools].flatMap((tool) => (isAgentTool(tool) ? [tool.agent] : [])),
    models: [...models, ...(compaction !== undefined && isModel(compaction.by) ? [compaction.by] : [])],
  });
  const budget: LoopBudget = {
    ...limited,
    reserve({ run, before, path, left }) {
      const step = run.steps.get(path);
      const asked = asks({ run, before, settings: recordedSettings(step) ?? settingsOf(run, path) });
      const model = models[modelToAsk(step, policy)] ?? (models[0] as LanguageModel);
      // The schema of a structured answer is read as another tool's would be.
      const answers = structured?.mode === "json" ? [structured.tool] : [];
      const { maxOutputTokens } = asked.settings;
      return limited.boundOf({ ...asked, model, tools: [...asked.tools, ...answers], maxOutputTokens }, left);
    },
  };
  const compactor =
    compaction &&
    new Compactor({
      ...{ ...compaction, model: models[0] as LanguageModel, converse, boundOf: limited.boundOf },
      sizeOf(turns, run) {
        const asked = offered(turns, run);
        return estimateTokens(asked.prompt) + estimateTokens(asked.tools as unknown as Json);
      },
    });
  return {
    budget,
    tools: [...tools],
    tool: (name) => (structured !== undefined && name === ANSWER_TOOL ? structured.tool : tools.get(name)),
    describes: {
      instructions,
      tools: [...serverTools, ...Object.values(format)] as unknown as Json,
      settings: typeof settings === "function" ? null : (withChoice(settings) as Json),
    },
    models: policy,
    settings: settingsOf,
    alternatives: Object.keys(alternatives),
    as: ({ instructions: other = instructions, model }) =>
      builtInLoop({ ...options, ...(model !== undefined && alternatives[model]), instructions: other }),
    next(run, before) {
      const wanted = next(run, structured);
      return compactor === undefined ? wanted : compactor.next(wanted, run, before);
    },
    unusable: (messages) => messages.flatMap((message) => (message.role === "user" ? unusableParts(message) : [])),
    asks: (step) => asks(step) as unknown as AskedOfModel,
    async callModel({ run, before, model: index, settings, maxOutputTokens, signal, emit }: ModelStep) {
      const model = models[index] ?? (models[0] as LanguageModel);
      const asked = asks({ run, before, settings });
      const bounded = { ...asked.settings, ...(maxOutputTokens !== undefined && { maxOutputTokens }) };
      const answer = await callModel({ model, ...asked, ...format, settings: bounded, timeouts, signal }, emit);
      const unusable = unusableEnd(model, answer, index === models.length - 1);
      if (unusable !== undefined) throw unusable;
      const { usage, ...output } = answer;
      return { output: output as unknown as Json, usage };
    },
  };
}

function next(run: RunState, structured: StructuredOutput | undefined): Next {
  const path = lastModelStep(run);
  const step = run.steps.get(path);
  if (step?.finished === undefined) return { next: "model", path };
  if (step.finished.status !== "ok") return { next: "fail", error: errorOf(step) };
  const output = outputOf(step);
  const isCut = NOT_WHOLE[output.finishReason];
  if (isCut !== null) {
    const isBudgets = output.finishReason === "length" && step.attempts.at(-1)?.reserved?.isRest === true;
    return { next: "fail", error: isBudgets ? CUT_BY_BUDGET : isCut };
  }
  if (output.calls.length === 0) {
    return structured === undefined
      ? { next: "finish", outputOf: path }
      : afterText(run, path, output.text, structured);
  }
  const calls = output.calls.map(({ id, name, input, invalid }, index): LoopCall => {
    const call = { path: `${Number(path) + 1}.${index}` as Path, id, name, input, model: path, index };
    return invalid === undefined ? call : { ...call, invalid };
  });
  const isAnswered = calls.every((call) => run.steps.get(call.path)?.finished !== undefined);
  if (!isAnswered) return { next: "calls", calls };
  const again: Next = { next: "model", path: String(Number(path) + 2) as Path };
  return structured === undefined ? again : (afterCalls(run, step, calls, structured) ?? again);
}

/** An answer in text counts once it was read. */
function afterText(run: RunState, model: Path, text: string, structured: StructuredOutput): Next {
  const path = `${Number(model) + 1}.0` as Path;
  const read = run.steps.get(path);
  if (read?.finished?.status === "ok") return { next: "finish", outputOf: path };
  if (read?.finished !== undefined) return afterBadAnswer(run, model, errorOf(read), structured);
  const step: OwnStep = {
    ...{ path, name: ANSWER_STEP, input: { textOf: model } },
    run: async () => ({ output: await structured.readText(text) }),
  };
  return { next: "own", step };
}

/** @returns null when the model is asked again as after any call */
function afterCalls(
  run: RunState,
  model: StepState,
  calls: readonly LoopCall[],
  structured: StructuredOutput,
): Next | null {
  const answers = calls.flatMap(({ name, path }) => {
    const step = run.steps.get(path);
    return name === ANSWER_TOOL && step !== undefined ? [step] : [];
  });
  const [last] = answers.slice(-1);
  // Somebody who spoke meanwhile wants an answer that has heard him.
  if (last === undefined || hasSpokenSince(run, model)) return null;
  const given = answers.find(({ finished }) => finished?.status === "ok");
  if (given !== undefined) return { next: "finish", outputOf: given.started.path };
  return afterBadAnswer(run, model.started.path, errorOf(last), structured);
}

function afterBadAnswer(run: RunState, model: Path, { message }: RecordedError, { repairs }: StructuredOutput): Next {
  if (badAnswers(run) <= repairs) return { next: "model", path: String(Number(model) + 2) as Path };
  const times = repairs === 0 ? "" : ` after ${repairs} ${repairs === 1 ? "repair" : "repairs"}`;
  return {
    next: "fail",
    error: { code: OUTPUT_INVALID, message: `The agent gave no valid output${times}: ${message}` },
  };
}

/** How many model steps of the run have given an answer that does not fit. */
function badAnswers({ steps }: RunState): number {
  const turns = new Set<string>();
  for (const [path, { started, finished }] of steps) {
    const isAnswer = started.name === ANSWER_TOOL || (started.step === "custom" && started.name === ANSWER_STEP);
    if (isAnswer && finished?.status === "error") turns.add(path.slice(0, path.indexOf(".")));
  }
  return turns.size;
}

function hasSpokenSince({ leg }: RunState, { finished }: StepState): boolean {
  const isLater = leg !== null && finished !== undefined && leg.seq > finished.seq;
  return isLater && (leg.request?.messages.some(({ role }) => role === "user") ?? false);
}

const CUT_BY_BUDGET: RecordedError = {
  code: BUDGET_EXCEEDED,
  message: "The model's answer was cut at what the budget had left for it.",
};

/** The settings with which a step began. */
function recordedSettings(step: StepState | undefined): Json | undefined {
  const input = step?.started.input;
  return input !== undefined && "history" in input ? input.history.settings : undefined;
}

/** The newest model step, or where the first one will stand. */
function lastModelStep({ steps }: RunState): Path {
  let ordinal = 0;
  while (steps.has(String(ordinal + 2) as Path)) ordinal += 2;
  return String(ordinal) as Path;
}

function errorOf({ finished }: StepState): RecordedError {
  return finished?.status === "error"
    ? finished.error
    : { code: "CANCELLED", message: "The model call was cancelled." };
}

const outputs = new WeakMap<object, ModelOutput>();

/** What a finished model step said; read once, because every decision asks for it. */
function outputOf({ finished }: StepState): ModelOutput {
  const recorded = finished?.status === "ok" ? finished : undefined;
  const known = recorded && outputs.get(recorded);
  if (known) return known;
  const output = readModelOutput(recorded?.output ?? null);
  if (recorded) outputs.set(recorded, output);
  return output;
}

const ACCEPTED = "accepted";

/** The system prompt, and behind it what the user interface says about its situation. */
function withContext(instructions: string, run: RunState): string {
  const context = (run.request?.context ?? []).map(({ description, value }) => `${description}: ${value}`);
  if (context.length === 0) return instructions;
  const said = ["Context from the user interface:", ...context].join("\n");
  return instructions === "" ? said : `${instructions}\n\n${said}`;
}

/** What a recorded model step answered. */
interface Answer {
  readonly run: RunState;
  readonly path: Path;
  readonly at: number;
  readonly output: ModelOutput;
}

/**
 * The conversation so far: what requests have brought, and what the recorded model steps of the thread answered and got for their calls. What
 * else clients were shown, as an answer that was cut, the model does not get.
 */
function turnsOf(runs: readonly RunState[]): Turn[] {
  const recorded = new Map<string, Answer>();
  for (const run of runs) {
    for (const [path, step] of run.steps) {
      if (step.started.step !== "model" || step.finished?.status !== "ok") continue;
      const output = outputOf(step);
      if (output.messageId !== null) recorded.set(output.messageId, { run, path, at: step.finished.seq, output });
    }
  }
  const brought = new Set(runs.flatMap((run) => run.brought.map(({ id }) => id)));
  const messages = runs.at(-1)?.messages ?? [];
  const takenBack = answersTakenBack(runs, recorded, messages);
  const before = (id: string | undefined) => (takenBack.get(id) ?? []).flatMap(turnsOfAnswer);
  return [
    ...messages.flatMap((message): Turn[] => {
      const own = message.role === "assistant" ? recorded.get(message.id) : undefined;
      if (own !== undefined) return [...before(message.id), ...turnsOfAnswer(own)];
      return [...before(message.id), ...(brought.has(message.id) ? [{ kind: "message", message } as const] : [])];
    }),
    ...before(undefined),
  ];
}

/**
 * Answers of which no message is left, because none of their calls could be run: a model that did not see them would give them again. By the
 * message that they stand in front of; undefined is the end.
 */
function answersTakenBack(
  runs: readonly RunState[],
  recorded: ReadonlyMap<string, Answer>,
  messages: readonly Message[],
): ReadonlyMap<string | undefined, readonly Answer[]> {
  const places = new Map(messages.map(({ id }, i) => [id, i]));
  if ([...recorded.keys()].every((id) => places.has(id))) return new Map();
  const found = new Map<string | undefined, Answer[]>();
  let next: string | undefined;
  for (const run of runs.toReversed()) {
    const spoken = run.leg?.request?.messages.find(({ id }) => places.has(id))?.id;
    for (const [id, answer] of [...recorded].toReversed()) {
      if (answer.run !== run) continue;
      if (places.has(id)) next = id;
      else {
        const isEarlier = spoken !== undefined && answer.at < (run.leg?.seq ?? 0);
        const at = isEarlier && placeOf(places, spoken) < placeOf(places, next) ? spoken : next;
        found.set(at, [answer, ...(found.get(at) ?? [])]);
      }
    }
    next = run.brought.find(({ id }) => places.has(id))?.id ?? next;
  }
  return found;
}

function placeOf(places: ReadonlyMap<string, number>, id: string | undefined): number {
  return (id === undefined ? undefined : places.get(id)) ?? Number.POSITIVE_INFINITY;
}

function turnsOfAnswer({ run, path, output }: Answer): Turn[] {
  const results = output.calls.map((call, index) => resultOf(run, path, index, call));
  const repair = output.calls.length === 0 ? repairOf(run, path) : undefined;
  return [
    { kind: "model", output },
    ...(results.length > 0 ? [{ kind: "results", results } as const] : []),
    ...(repair !== undefined ? [{ kind: "message", message: repair } as const] : []),
  ];
}

/** What the model is told about a text that was no answer (O2). */
function repairOf(run: RunState, model: Path): UserMessage | undefined {
  const path = `${Number(model) + 1}.0` as Path;
  const step = run.steps.get(path);
  if (step?.started.name !== ANSWER_STEP || step.finished?.status !== "error") return undefined;
  return { id: `${run.run.uid}:${path}`, role: "user", content: repairRequest(step.finished.error.message) };
}

function resultOf(
  run: RunState,
  model: Path,
  index: number,
  call: { readonly id: string; readonly name: string },
): ToolResult {
  const step = run.steps.get(`${Number(model) + 1}.${index}` as Path);
  const result = { callId: call.id, name: call.name };
  const finished = step?.finished;
  switch (finished?.status) {
    case "ok": {
      const fromClient = step && clientMessage(step);
      if (fromClient !== undefined) return { ...result, ...clientResult(fromClient) };
      const edited = editedArguments(step);
      // What the model wrote itself need not be told to it again.
      const output = call.name === ANSWER_TOOL ? ACCEPTED : finished.output;
      return { ...result, output: edited === undefined ? output : { output, argumentsEditedByHuman: edited } };
    }
    case "error": {
      const edited = editedArguments(step);
      if (edited === undefined) return { ...result, error: finished.error };
      const { message } = finished.error;
      const change = `a human had changed its arguments to ${JSON.stringify(edited)}`;
      return { ...result, error: { ...finished.error, message: `${message} (${change})` } };
    }
    case "cancelled":
      return { ...result, error: { code: "CANCELLED", message: "cancelled" } };
    default:
      // The run ended before the call was run: its answer was cut.
      return { ...result, error: { code: "NOT_RUN", message: "the run ended before this call was run" } };
  }
}
