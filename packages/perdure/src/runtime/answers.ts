/** Whether an answer to a question may be taken: who may give it, and what it has to look like. */
import type { Interrupt } from "../log/entries.ts";
import { isOperators } from "../log/interrupts.ts";
import type { Json } from "../protocol/json.ts";
import { type Issue, validateSync } from "../protocol/validate.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Answer, Answered, EventStore } from "../store/store.ts";
import { answerSchema } from "./answer-schemas.ts";
import { askedFork, FORK_NEEDS_SERVER } from "./diverged.ts";
import { readDid } from "./interrupts.ts";

export interface AnswerProblem {
  readonly status: 403 | 409 | 422;
  readonly code: "ANSWER_FORBIDDEN" | "STILL_RUNNING" | "ANSWER_INVALID";
  /** For whoever asks, in a sentence that goes on behind a colon. */
  readonly why: string;
  readonly details: Json;
}

/** The scope that every answer needs. */
const ANSWER_SCOPE = "answer";

/** Stands for all of them. */
export const EVERY_SCOPE = "*";

/** Whether a write's own body may still show whether it was applied. */
export type MayLand = (question: Interrupt) => boolean;

/** @returns why a `resume` entry may not answer it, or undefined */
export function resumeProblem(question: Interrupt, answer: Answer, mayLand: MayLand): AnswerProblem | undefined {
  if (isOperators(question)) return forbidden(question, "it waits for an operator, who answers it in the inbox");
  return answerProblem(question, answer, mayLand);
}

/**
 * Answers a question from the inbox.
 *
 * @param mayLand - default: nobody drives, so nothing does
 * @returns what is wrong with the answer, if anything
 */
export async function answerQuestion(
  store: EventStore,
  answer: Answer,
  mayLand: (run: Uid, path: Path) => boolean = () => false,
): Promise<Answered | (AnswerProblem & { readonly is: "refused" })> {
  const question = await store.question(answer.interrupt);
  // What the client's own tool says comes with the client's next request.
  if (question === null || question.interrupt.kind === "client-tool") return { is: "none" };
  const problem =
    question.closed === null
      ? answerProblem(question.interrupt, answer, ({ path }) => mayLand(question.uid, path))
      : undefined;
  const refused = problem ?? (question.closed === null ? forkProblem(question.interrupt, answer) : undefined);
  return refused === undefined ? await store.answer(answer) : { ...refused, is: "refused" };
}

/** @returns why the answer is refused, or undefined */
export function answerProblem(
  question: Interrupt,
  answer: Answer,
  mayLand: MayLand = () => false,
): AnswerProblem | undefined {
  const { scopes } = answer.by;
  if (question.kind === "contract-changed") {
    return forbidden(question, "it waits for an operator, not for an answer");
  }
  const missing = mayAnswerFor(scopes, question.audience);
  if (missing !== undefined) return forbidden(question, `the scope "${missing}" is needed`);
  if (answer.status === "cancelled") {
    if (!isOperators(question)) return undefined;
    return invalid(question, [{ path: "", message: "an operator's question is answered by an action, not cancelled" }]);
  }
  const validated = validateSync(answerSchema(question.schema), answer.payload ?? null);
  if (validated.ok) return isTooEarly(question, answer, mayLand) ? tooEarly(question) : undefined;
  return invalid(question, validated.issues);
}

/** @returns the scope that is missing, if one is */
export function mayAnswerFor(scopes: readonly string[], audience: string | null): string | undefined {
  if (scopes.includes(EVERY_SCOPE)) return undefined;
  return [ANSWER_SCOPE, ...(audience === null ? [] : [audience])].find((scope) => !scopes.includes(scope));
}

/** Whoever could fork the run has done so before he comes here. */
function forkProblem(question: Interrupt, answer: Answer): AnswerProblem | undefined {
  if (askedFork(question, answer) === undefined) return undefined;
  return invalid(question, [{ path: "/action", message: FORK_NEEDS_SERVER }]);
}

/** "Not done" of a write that goes on: it would be believed even if that does it, and this process dies before it says so. */
function isTooEarly(question: Interrupt, { payload }: Answer, mayLand: MayLand): boolean {
  return question.kind === "unknown-write" && readDid(payload).did === "no" && mayLand(question);
}

function tooEarly({ id }: Interrupt): AnswerProblem {
  const why = "the write still runs; say that it was not done when it has ended, if the question is still open then";
  return { status: 409, code: "STILL_RUNNING", why, details: { interrupt: id, why } };
}

function forbidden(question: Interrupt, why: string): AnswerProblem {
  return { status: 403, code: "ANSWER_FORBIDDEN", why, details: { interrupt: question.id, why } };
}

function invalid({ id }: Interrupt, found: readonly Issue[]): AnswerProblem {
  const issues = found.map(({ path, message }) => ({ path, message }));
  const why = issues.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`)).join("; ");
  return { status: 422, code: "ANSWER_INVALID", why, details: { interrupt: id, issues } };
}
