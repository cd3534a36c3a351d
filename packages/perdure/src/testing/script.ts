/** What the outside does in a play: what a user says, how questions are answered, what a client's own tools return. */
import type { Reply } from "../emit/types.ts";
import type { InterruptKind } from "../log/entries.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Context, Message, Tool, UserMessage, Interrupt as WireInterrupt } from "../protocol/events.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";

/** A look at the world, by whoever answers. */
export interface Look<W> {
  readonly world: W;
  /** All that has happened so far. */
  readonly effects: () => readonly string[];
  /** Whether an effect has happened. */
  readonly happened: (effect: string) => boolean;
}

/** A question as a front end shows it. */
export interface ScriptQuestion {
  readonly kind: InterruptKind;
  readonly message: string;
  /** The tool whose call is asked about, or "" where there is none. */
  readonly tool: string;
  /** What the model called it with. */
  readonly input: Json;
  /** As RUN_FINISHED lists it. */
  readonly interrupt: WireInterrupt;
}

/** A reply to a question; `"cancel-run"` cancels the whole run instead. */
export type ScriptReply = Reply | "cancel-run";

/** Answers a question. It has to answer equal questions equally, in every play. */
export type Answering<W> = (question: ScriptQuestion, look: Look<W>) => ScriptReply;

/** Answers the questions that fit all that is given. */
export interface AnswerRule<W> {
  readonly kind?: InterruptKind;
  readonly tool?: string;
  /** The whole text, or a pattern in it. */
  readonly message?: string | RegExp;
  readonly reply: ScriptReply | Answering<W>;
}

/** What begins a turn. */
export interface ScriptTurn {
  /** Default: "go". */
  readonly says?: UserMessage["content"];
  /** The state that the client sends. Default: the one that it holds. */
  readonly state?: Json;
  readonly context?: readonly Context[];
  readonly forwardedProps?: { readonly [name: string]: Json };
}

/** What is signalled, by name: its payload, or what gives the payload of the nth signal of a run, from 0. */
export interface ScriptSignals<W> {
  readonly [name: string]: Json | ((look: Look<W>, nth: number) => Json);
}

/** A conversation from outside. Each turn begins when the one before is over: its run has ended, and nothing is asked any more. */
export interface MatrixScript<W = undefined> {
  /** Default: one turn, "go". */
  readonly turns?: readonly (string | ScriptTurn)[];
  /** A function, or rules, of which the first that fits answers. Default: nobody answers, and a question is a finding. */
  readonly answers?: readonly AnswerRule<W>[] | Answering<W>;
  /** Whether somebody answers this one in the inbox, before the client says the same. Default: nobody. */
  readonly inInbox?: (question: ScriptQuestion, look: Look<W>) => boolean;
  /** What is sent to code that waits for a signal (`ctx.receive`): one for each wait, once its run has nothing else to do, and before any time that it waits for beside is up. Default: nothing. */
  readonly signals?: ScriptSignals<W>;
  /** The client's own tools, offered with every request. */
  readonly tools?: readonly Tool[];
  /** What the client's tools return, by name: the text of the tool message. */
  readonly results?: { readonly [tool: string]: string | ((input: Json, look: Look<W>) => string) };
}

/** The script does not say what happens next. */
export class MatrixScriptError extends PerdureError {
  override readonly name = "MatrixScriptError";
  constructor(message: string) {
    super("MATRIX_SCRIPT", message);
  }
}

/** A call that is open at the client. */
export interface ClientCall {
  readonly id: string;
  readonly name: string;
  readonly input: Json;
}

/** The call of an id, among the messages that a client holds. */
export function callOf(messages: readonly Message[], id: string | undefined): ClientCall | undefined {
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const call = calls.find((one) => one.id === id);
  if (call === undefined) return undefined;
  return { id: call.id, name: call.function.name, input: JSON.parse(call.function.arguments || "{}") as Json };
}

/** A question, with the call that it is about. */
export function questionOf(interrupt: WireInterrupt, messages: readonly Message[]): ScriptQuestion {
  const call = callOf(messages, interrupt.toolCallId);
  return {
    kind: (isJsonObject(interrupt.metadata) ? interrupt.metadata.kind : "question") as InterruptKind,
    message: interrupt.message ?? "",
    tool: call?.name ?? "",
    input: call?.input ?? null,
    interrupt,
  };
}

export function replyTo<W>({ answers = [] }: MatrixScript<W>, question: ScriptQuestion, look: Look<W>): ScriptReply {
  if (typeof answers === "function") return answers(question, look);
  const rule = answers.find((one) => fits(one, question));
  if (rule === undefined) {
    const { kind, message, tool } = question;
    throw new MatrixScriptError(
      `nobody answers the question "${message}" (${kind}${tool && `, tool \`${tool}\``}); add a rule to the script's \`answers\``,
    );
  }
  return typeof rule.reply === "function" ? rule.reply(question, look) : rule.reply;
}

function fits<W>({ kind, tool, message }: AnswerRule<W>, question: ScriptQuestion): boolean {
  if (kind !== undefined && kind !== question.kind) return false;
  if (tool !== undefined && tool !== question.tool) return false;
  if (message === undefined) return true;
  return typeof message === "string" ? message === question.message : message.test(question.message);
}

export function resultOf<W>({ results = {} }: MatrixScript<W>, call: ClientCall, look: Look<W>): string {
  const result = Object.hasOwn(results, call.name) ? results[call.name] : undefined;
  if (result === undefined) {
    throw new MatrixScriptError(`nobody runs the client's tool \`${call.name}\`; add it to the script's \`results\``);
  }
  return typeof result === "function" ? result(call.input, look) : result;
}
