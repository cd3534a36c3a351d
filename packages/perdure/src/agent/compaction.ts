/**
 * Long conversations: what models are asked with once a conversation has grown too long, in place of all of it.
 *
 * K1. A summary is the output of a recorded step, which stands at `cN` before the model step N that it was made for. It stands for everything up
 *     to the turn that it names, in this run and in every later one of the thread, and nothing is summarised twice.
 * K2. Turns are kept or summarised whole: a user's message, or a model's answer with the results of its calls. So no call loses its result.
 * K3. What clients are shown does not change, nor does the log: a summary that does not fit it any more stands for nothing.
 */
import type { RunState, StepState } from "../log/fold.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { Next, OwnStep } from "../runtime/agent-definition.ts";
import type { AgentBudget } from "./agent-budget.ts";
import { estimateTokens } from "./estimate-tokens.ts";
import { ModelError } from "./model-error.ts";
import type { LanguageModel } from "./model-port.ts";
import type { Turn } from "./prompt.ts";
import { type CompactionContext, contextOf, type Summariser, summariserOf, summaryPrompt } from "./summarise.ts";

/** When a conversation is too long, and what becomes of its older part. */
export interface Compaction {
  /** How long the prompt of a model call may be, in tokens. They are estimated, at four characters of text each and 1,500 for a file. */
  readonly after: number;
  /** How many of the newest turns stay as they are: a user's message is one, a model's answer with the results of its calls is one. Default 8. */
  readonly keep?: number;
  /**
   * Who summarises the rest: a model, or a function, which may run again after a crash and changes nothing. Default: the agent's own model.
   *
   * @returns the summary, as the model is to read it in place of what it sums up
   */
  readonly by?: LanguageModel | ((context: CompactionContext) => string | Promise<string>);
  /** What a model is told that summarises. */
  readonly instructions?: string;
  /** What becomes of a model call that its provider refuses because the prompt is too long, once: Default `compact`. */
  readonly onContextOverflow?: "compact" | "fail";
}

const COMPACTION_STEP = "compaction";

/** Code of a model call that was refused for its length. */
const CONTEXT_TOO_LONG = "MODEL_CONTEXT_TOO_LONG";

/** A conversation of which the older part may have been summed up. */
export interface Conversation {
  /** As a model is given it. */
  readonly turns: readonly Turn[];
  /** Whether the first turn stands for older ones. */
  readonly isSummarised: boolean;
}

/** The conversation by the newest summary that stands for a part of it. */
export function conversationOf(all: readonly Turn[], runs: readonly RunState[]): Conversation {
  for (const { summary, upTo } of summariesOf(runs)) {
    const groups = unitsOf(all);
    const last = groups.findLastIndex(([first]) => idOf(first) === upTo);
    if (last === -1) continue;
    const older = groups.slice(0, last + 1).flat();
    const stay = older.filter(isSystem);
    return { turns: [...stay, summaryTurn(summary), ...groups.slice(last + 1).flat()], isSummarised: true };
  }
  return { turns: all, isSummarised: false };
}

export interface CompactorOptions extends Compaction {
  readonly model: LanguageModel;
  readonly boundOf: AgentBudget["boundOf"];
  /** The conversation of these runs. */
  readonly converse: (runs: readonly RunState[]) => Conversation;
  /** The estimated tokens of a model call with these turns. */
  readonly sizeOf: (turns: readonly Turn[], run: RunState) => number;
}

/** Puts the summarising where it belongs in what the loop wants next. */
export class Compactor {
  readonly #options: CompactorOptions;
  readonly #summarise: Summariser;

  constructor(options: CompactorOptions) {
    this.#options = options;
    this.#summarise = summariserOf(options.by ?? options.model, options.instructions);
  }

  /** @param wanted - what the loop wants */
  next(wanted: Next, run: RunState, before: readonly RunState[]): Next {
    if (wanted.next === "model") return this.#beforeModel(wanted, run, before);
    if (wanted.next === "fail" && wanted.error.code === CONTEXT_TOO_LONG)
      return this.#afterOverflow(wanted, run, before);
    return wanted;
  }

  #beforeModel(wanted: Next & { next: "model" }, run: RunState, before: readonly RunState[]): Next {
    if (run.steps.has(wanted.path)) return wanted;
    const path = `c${wanted.path}` as Path;
    const step = run.steps.get(path);
    // Also without a summary: a conversation that is too long may still be taken.
    if (step?.finished !== undefined) return wanted;
    const cut = this.#cut(run, before, step, false);
    return cut === undefined ? wanted : { next: "own", step: this.#step(path, cut) };
  }

  /** The refused call is over; the next one stands behind the summary. */
  #afterOverflow(wanted: Next, run: RunState, before: readonly RunState[]): Next {
    const refused = lastModelStep(run);
    const next = String(Number(refused) + 2) as Path;
    const path = `c${next}` as Path;
    const step = run.steps.get(path);
    if (step?.finished !== undefined) return step.finished.status === "ok" ? { next: "model", path: next } : wanted;
    if (this.#options.onContextOverflow === "fail" || run.steps.has(`c${refused}` as Path)) return wanted;
    if (isShown(run, refused)) return wanted;
    const cut = this.#cut(run, before, step, true);
    return cut === undefined ? wanted : { next: "own", step: this.#step(path, cut) };
  }

  /** Which turns are to be summed up; undefined for none. */
  #cut(run: RunState, before: readonly RunState[], begun: StepState | undefined, isForced: boolean): Cut | undefined {
    const { after, keep = KEEP, converse, sizeOf } = this.#options;
    const { turns, isSummarised } = converse([...before, run]);
    const units = unitsOf(turns);
    const recorded = begun === undefined ? undefined : upToOf(begun);
    if (recorded !== undefined) {
      const at = units.findIndex(([first]) => idOf(first) === recorded);
      if (at !== -1) return { older: units.slice(0, at + 1).flat(), upTo: recorded };
    }
    const kept = isForced ? Math.min(keep, Math.floor(units.length / 2)) : keep;
    const older = units.slice(0, Math.max(0, units.length - kept));
    const upTo = idOf(older.at(-1)?.[0]);
    if (older.length <= (isSummarised ? 1 : 0) || upTo === undefined) return undefined;
    const cut = { older: older.flat(), upTo };
    if (isForced) return cut;
    if (sizeOf(turns, run) <= after) return undefined;
    // What the newest turns take alone no summary makes shorter: then it would be made again for each of them.
    const fresh = older.slice(isSummarised ? 1 : 0).flat();
    return estimateTokens(contextOf(fresh).prompt) * WORTH_IT >= after ? cut : undefined;
  }

  #step(path: Path, { older, upTo }: Cut): OwnStep {
    const { by, model, instructions, boundOf } = this.#options;
    const asked = by ?? model;
    return {
      ...{ path, name: COMPACTION_STEP, input: { upTo } },
      ...(isModel(asked) && {
        reserve: (left) => {
          const prompt = summaryPrompt(contextOf(older).text, instructions);
          return boundOf({ model: asked, prompt, tools: [], maxOutputTokens: undefined }, left, LONGEST_SUMMARY);
        },
      }),
      run: async (signal, maxOutputTokens) => {
        const { summary, usage } = await this.#summarise({ ...contextOf(older), signal }, maxOutputTokens);
        return { output: { summary, upTo }, ...(usage !== undefined && { usage }) };
      },
      mayRetry: (error) => error instanceof ModelError && error.retryable,
    };
  }
}

export function isModel(by: Compaction["by"]): by is LanguageModel {
  return by !== undefined && typeof by !== "function";
}

const KEEP = 8;
/** Under a budget. Tokens, what the model thinks before included. */
const LONGEST_SUMMARY = 8_192;
/** A summary has to take the place of at least this part of what a prompt may be. */
const WORTH_IT = 10;

interface Cut {
  readonly older: readonly Turn[];
  /** The id of the last turn among them. */
  readonly upTo: string;
}

function* summariesOf(runs: readonly RunState[]): Generator<{ readonly summary: string; readonly upTo: string }> {
  for (const { steps } of runs.toReversed()) {
    const made = [...steps.values()].flatMap(({ started, finished }) =>
      started.step === "custom" && started.name === COMPACTION_STEP && finished?.status === "ok" ? [finished] : [],
    );
    for (const { output } of made.sort((a, b) => b.seq - a.seq)) {
      if (!isJsonObject(output)) continue;
      const { summary, upTo } = output;
      if (typeof summary === "string" && typeof upTo === "string") yield { summary, upTo };
    }
  }
}

/** What belongs together (K2). */
function unitsOf(turns: readonly Turn[]): readonly (readonly Turn[])[] {
  const units: Turn[][] = [];
  for (const turn of turns) {
    const isNext = turn.kind === "model" || (turn.kind === "message" && BEGINS.has(turn.message.role));
    const unit = units.at(-1);
    if (isNext || unit === undefined) units.push([turn]);
    else unit.push(turn);
  }
  return units;
}
const BEGINS: ReadonlySet<string> = new Set(["user", "assistant"]);

function idOf(turn: Turn | undefined): string | undefined {
  if (turn?.kind === "message") return turn.message.id;
  return turn?.kind === "model" ? (turn.output.messageId ?? undefined) : undefined;
}

/** They steer the model, wherever they stand, so they are not summed up. */
function isSystem(turn: Turn): boolean {
  return turn.kind === "message" && (turn.message.role === "system" || turn.message.role === "developer");
}

function summaryTurn(summary: string): Turn {
  return {
    kind: "message",
    message: { id: "summary", role: "user", content: `Summary of the conversation so far:\n\n${summary}` },
  };
}

function upToOf({ started }: StepState): string | undefined {
  const value: Json = "value" in started.input ? started.input.value : null;
  return isJsonObject(value) && typeof value.upTo === "string" ? value.upTo : undefined;
}

/** Whether clients hold something that the step has said. */
function isShown({ run, messages }: RunState, path: Path): boolean {
  const own = idAt(run.uid, path, "message", 0);
  return messages.some(({ id }) => id === own || id.startsWith(`${run.uid}:${path}.`));
}

function lastModelStep({ steps }: RunState): Path {
  let ordinal = 0;
  while (steps.has(String(ordinal + 2) as Path)) ordinal += 2;
  return String(ordinal) as Path;
}
