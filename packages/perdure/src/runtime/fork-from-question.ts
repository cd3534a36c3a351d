import type { Uid } from "../protocol/words.ts";
import type { Answer, EventStore } from "../store/store.ts";
import { type AnswerProblem, answerProblem } from "./answers.ts";
import { askedFork } from "./diverged.ts";
import { type ForkedRun, type ForkOptions, ForkRefusedError } from "./fork.ts";

/**
 * Forks the run of a question, where its answer asks for that.
 *
 * @param fork - makes the fork. May throw {@link ForkRefusedError}
 * @returns undefined when the answer is one
 */
export async function forkFromQuestion(
  store: EventStore,
  answer: Answer,
  fork: (run: Uid, options: ForkOptions) => Promise<ForkedRun>,
): Promise<ForkedByAnswer | (AnswerProblem & { readonly is: "refused" }) | undefined> {
  const question = await store.question(answer.interrupt);
  const options = question === null || question.closed !== null ? undefined : askedFork(question.interrupt, answer);
  if (question === null || options === undefined) return undefined;
  const problem = answerProblem(question.interrupt, answer);
  if (problem !== undefined) return { ...problem, is: "refused" };
  try {
    return { is: "forked", fork: (await fork(question.uid, options)).uid as Uid, isNew: true };
  } catch (error) {
    if (!(error instanceof ForkRefusedError) || error.code !== "THREAD_EXISTS") throw error;
    const { tenant, subject, agent } = (await store.run(question.uid)) ?? {};
    if (tenant === undefined || subject === undefined || agent === undefined) throw error;
    const { items } = await store.runs({ tenant, subject, agent, thread: question.interrupt.id, limit: 1 });
    const [made] = items;
    if (made === undefined) throw error;
    return { is: "forked", fork: made.uid, isNew: false };
  }
}

export interface ForkedByAnswer {
  readonly is: "forked";
  readonly fork: Uid;
  /** Whether it was not there before. */
  readonly isNew: boolean;
}
