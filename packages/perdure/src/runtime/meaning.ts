/**
 * What a POST means, as one pure function of the thread and the request (the store calls it inside the transaction that does it).
 *
 * M1. A run id that the thread knows is that leg again, or it is refused: never a second run.
 * M2. Answers are taken all or none.
 * M3. A retry after the run has ended never asks the model again.
 * M4. A message that waits is never overtaken: what comes after it waits behind it.
 * M5. What of a request's messages is news is `hear`'s to say; all else in them is the client's copy of the thread.
 */
import type { Added, LegRequest, NewEntry } from "../log/entries.ts";
import { clientOutput } from "../log/tool-result.ts";
import type { Message, RunAgentInput, ToolMessage, UserMessage } from "../protocol/events.ts";
import { isRunMade } from "../protocol/ids.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import type { Principal } from "../protocol/words.ts";
import { type Answer, type Closed, covers, type Meaning, type Reply, type ThreadView } from "../store/store.ts";
import type { Arrival } from "./agent-definition.ts";
import { type MayLand, resumeProblem } from "./answers.ts";
import { type HearingPolicy, hear } from "./hearing.ts";
import { isTranscript } from "./is-transcript.ts";

export interface MeaningRequest {
  readonly input: RunAgentInput;
  readonly principal: Principal;
  /** What the thread shows while no leg of it is open. */
  readonly shown: readonly Message[];
  readonly mayLand: MayLand;
  /** Whether a run of the thread has made a message's id, or may come to make it. */
  readonly isOurs: (id: string) => boolean;
  readonly policy: HearingPolicy;
  /** Whether a request without a message starts a run on a thread that has had one. */
  readonly emptyRequest: "hydrate" | "run";
  readonly whileActive: Arrival;
  readonly whileParked: Arrival;
  /** The first entries of a new run, should it come to that. */
  readonly first: (added: Added, view: ThreadView) => readonly NewEntry[];
  /** Gets what was odd about a request that something comes of. */
  readonly note: (what: string) => void;
}

export type Refused = Extract<Meaning, { is: "refuse" }>;

export function meaning(view: ThreadView, request: MeaningRequest): Meaning {
  const { input } = request;
  const { run, known } = view;
  if (known !== null) {
    if (!isSameRequest(view, input, known.added)) {
      return refuse(409, "RUN_ID_REUSED", { runId: input.runId, hint: "send another run id, or the same request" });
    }
    const isLive = run !== null && run.uid === known.uid && (run.legOpen || run.legDue);
    return isLive
      ? { is: "rejoin", uid: known.uid, answers: [], added: known.added }
      : { is: "hydrate", uid: known.uid, added: known.added };
  }

  const waiting = view.queued.find(({ request: { runId } }) => runId === input.runId);
  if (waiting !== undefined && run !== null) {
    return isSameRequest(view, input, waiting.request)
      ? { is: "queued", uid: run.uid }
      : refuse(409, "RUN_ID_REUSED", { runId: input.runId, hint: "send another run id, or the same request" });
  }

  const hearing = hear(
    input.messages,
    { shown: request.shown, holds: (id) => view.hasMessage(id), isOurs: request.isOurs },
    request.policy,
  );
  const asks = hearing.news.some(isUser) || hearing.misnamed.length > 0;
  const replies = readReplies(view, request, asks);
  if ("status" in replies) return replies;
  const { answers, results } = replies;
  // Without a user's message nothing goes on with the history of elsewhere: it comes with the next one.
  const messages = asks || view.run === null ? hearing.news : [];
  const added: Added = { messages, results, resume: input.resume ?? [] };
  const isUnfinished = run !== null && run.outcome === null;
  const isLive = isUnfinished && (run.legOpen || run.legDue || !run.atRest);
  const asked = new Set(answers.map(({ interrupt }) => interrupt));
  const leftOpen = view.open.filter(({ id }) => !asked.has(id));
  const taking = (meant: () => Meaning): Meaning => {
    if (hearing.refused.length > 0) return refuse(422, "SYSTEM_MESSAGE_REFUSED", { messages: [...hearing.refused] });
    if (hearing.misnamed.length > 0) return refuse(422, "MESSAGE_ID_TAKEN", { messages: [...hearing.misnamed] });
    for (const note of hearing.notes) request.note(note);
    return meant();
  };
  const begin = (): Meaning => ({ is: "run", first: request.first(added, view) });

  if (asks) {
    const isWaitedFor = view.queued.length > 0;
    if (run === null || (!isUnfinished && !isWaitedFor)) return taking(begin);
    const arriving = (arrival: Arrival, refused: Refused): Meaning =>
      arrival === "refuse" || run.aside !== null
        ? refused
        : taking(() => {
            // Results are taken with their calls, and are no part of another run.
            const own = { ...legRequest(request, { ...added, results: [] }), isBehind: true as const };
            return { is: "queue", uid: run.uid, answers, request: own, cancels: arrival === "cancel-and-go" };
          });
    const questions = leftOpen.filter(({ kind }) => kind !== "client-tool");
    if (isLive || questions.length === 0) {
      if (!isLive && !isWaitedFor) {
        return taking(() => ({ is: "leg", uid: run.uid, answers, request: legRequest(request, added) }));
      }
      return arriving(request.whileActive, refuse(409, "RUN_ACTIVE", { uid: run.uid }));
    }
    const open = { uid: run.uid, interrupts: questions.map(({ id }) => id) };
    return arriving(request.whileParked, refuse(409, "INTERRUPTS_OPEN", open));
  }
  if (isLive) return { is: "rejoin", uid: run.uid, answers, added };
  if (answers.length > 0 && run !== null)
    return { is: "leg", uid: run.uid, answers, request: legRequest(request, added) };
  const mayBegin = !isUnfinished && view.queued.length === 0;
  if (run === null || (mayBegin && request.emptyRequest === "run" && replies.isEmpty)) return taking(begin);
  for (const note of hearing.notes) request.note(note);
  return { is: "hydrate", uid: run.uid, added };
}

export function legRequest(
  { input, principal, shown }: Pick<MeaningRequest, "input" | "principal" | "shown">,
  added: Added,
): LegRequest {
  return {
    ...(!isTranscript(input.messages, [...shown, ...added.results, ...added.messages]) && { isBehind: true }),
    runId: input.runId,
    ...added,
    tools: input.tools,
    context: input.context,
    state: (input.state ?? null) as Json,
    forwardedProps: (input.forwardedProps ?? null) as Json,
    principal,
    protocolVersion: input.protocolVersion ?? null,
    ...(input.parentRunId !== undefined && { parentRunId: input.parentRunId }),
  };
}

interface Replies {
  readonly answers: readonly Answer[];
  /** The tool messages among what was answered with. */
  readonly results: readonly ToolMessage[];
  /** The request brought neither resume entries nor client results. */
  readonly isEmpty: boolean;
}

/** The answers that take effect; refused as a whole when one of them may not. */
function readReplies(
  view: ThreadView,
  { input, principal, shown, mayLand }: MeaningRequest,
  hasNews: boolean,
): Replies | Refused {
  const open = new Map(
    view.open.map((question) => [
      question.kind === "client-tool" ? (question.toolCallId ?? question.id) : question.id,
      question,
    ]),
  );
  const entries = input.resume ?? [];
  const answers: Answer[] = [];
  const unknown: string[] = [];
  const conflicts: { readonly entry: Answer; readonly closed: Closed }[] = [];
  let covered = 0;
  for (const { interruptId, status, payload } of entries) {
    const reply: Reply = payload === undefined ? { status } : { status, payload: payload as Json };
    const answer: Answer = { interrupt: interruptId, ...reply, by: principal };
    const question = open.get(interruptId);
    if (question !== undefined && question.kind !== "client-tool") {
      if (answers.some(({ interrupt }) => interrupt === interruptId))
        return refuse(422, "ANSWER_INVALID", { interrupt: interruptId, why: "it is answered twice in this request" });
      const problem = resumeProblem(question, answer, mayLand);
      if (problem) return refuse(problem.status, problem.code, problem.details);
      answers.push(answer);
      continue;
    }
    const closed = view.closed(interruptId);
    if (closed === null) unknown.push(interruptId);
    else if (covers(closed, reply)) covered++;
    else conflicts.push({ entry: answer, closed });
  }
  const results: ToolMessage[] = [];
  const held = new Set(shown.map(({ id }) => id));
  const isTaken = (id: string): boolean => held.has(id) || view.hasMessage(id) || isRunMade(id);
  for (const message of input.messages.filter(isTool)) {
    const call = open.get(message.toolCallId);
    // The first result counts.
    if (call?.kind !== "client-tool" || results.some(({ toolCallId }) => toolCallId === message.toolCallId)) continue;
    // What is another message already, or will be, cannot be this one too: on nobody's screen the call would have a result.
    if (isTaken(message.id)) return refuse(422, "MESSAGE_ID_TAKEN", { messages: [message.id] });
    results.push(message);
    answers.push({ interrupt: call.id, status: "resolved", payload: clientOutput(message), by: principal });
  }
  if (conflicts.length > 0) {
    const details = conflicts.map(({ entry, closed }) => ({
      interrupt: entry.interrupt,
      status: closed.status,
      by: closed.by,
      at: closed.at,
    }));
    return { ...refuse(409, "INTERRUPT_ANSWERED", details), contested: conflicts.map(({ entry }) => entry) };
  }
  if (unknown.length > 0 && answers.length === 0 && covered === 0 && !hasNews) {
    return refuse(409, "INTERRUPT_NOT_FOUND", { interrupts: unknown });
  }
  return { answers, results, isEmpty: entries.length === 0 && answers.length === 0 };
}

/**
 * Whether this is the request that the thread has under its run id. Whatever else the body holds is the stock client's copy of the thread: also
 * user messages under other ids, where something was said after them.
 */
function isSameRequest(view: ThreadView, input: RunAgentInput, recorded: Added): boolean {
  const asked = recorded.messages.filter(isUser);
  const before = new Set(asked.map(({ id }) => id));
  const last = input.messages.findLastIndex(
    ({ id, role }) => before.has(id) || role === "assistant" || role === "tool",
  );
  const messages = input.messages.filter(
    (message, i): message is UserMessage =>
      isUser(message) && (before.has(message.id) || (i > last && !view.hasMessage(message.id))),
  );
  const answered = new Set(recorded.results.map(({ toolCallId }) => toolCallId));
  const results = input.messages.filter(isTool).filter(({ toolCallId }) => answered.has(toolCallId));
  return isEqual(messages, asked) && isEqual(results, recorded.results) && isEqual(input.resume ?? [], recorded.resume);
}

function isEqual(a: unknown, b: unknown): boolean {
  return jsonEqual(a as Json, b as Json);
}

function isUser(message: Message): message is UserMessage {
  return message.role === "user";
}

function isTool(message: RunAgentInput["messages"][number]): message is ToolMessage {
  return message.role === "tool";
}

function refuse(status: 403 | 409 | 422, code: string, details: Json): Refused {
  return { is: "refuse", status, code, details };
}
