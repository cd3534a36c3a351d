/**
 * A run forked at one of its entries, as the first entries of another run. It owns what of a log is history and what is begun anew; who may
 * fork, and where the fork stands, is the runtime's business.
 *
 * K1. A step that had ended by the entry is history: its facts are the fork's, and it never runs again.
 * K2. All else is begun anew, as if it had never been: a call with its approval, its suspension and its keys; a model step without an answer.
 * K3. The committed state is that at the entry, without what suspended calls had committed: they do it again.
 * K4. What clients were shown of steps stands as one snapshot, whether or not the frames are still there. Frames that loop code made outside of
 *     steps are kept, because its next entering is compared with them.
 * K5. The legs become one, and what only concerned the other run is left out: that it rested, was cancelled, stopped by its budget or ended,
 *     and what it has used.
 * K6. Ids that the run has made are renamed to the fork's, where they are ids. What a tool has said is left as it is.
 *
 * What a fork of a custom loop has more than that is `fork-code.ts`'s.
 */
import type { ContentPart, Message } from "../protocol/events.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { rebase } from "../protocol/patch.ts";
import { hasCall, isAnswered } from "../protocol/verify.ts";
import type { Effect, Hash, Path, Uid } from "../protocol/words.ts";
import type { Entry, Fact, Frame, LegRequest, NewEntry } from "./entries.ts";
import { Folding, fold } from "./fold.ts";
import { resolveInput } from "./model-output.ts";
import type { RunState, StepState } from "./run-state.ts";
import { withoutAttempt } from "./running.ts";
import { readRaise } from "./spending.ts";
import { editedArguments } from "./tool-result.ts";

/** The run that is forked, whole. */
export interface ForkSource {
  readonly entries: readonly Entry[];
  /** Of all of them. */
  readonly state: RunState;
  /** The run before it in its thread. */
  readonly before: RunState | undefined;
  /** The runs below it, or below those from which its history is, each with the step that has begun it or what it is below. */
  readonly children: ReadonlyMap<string, Path>;
}

/** What the fork is, where it is another thing than the run. */
export interface Forked {
  readonly uid: Uid;
  readonly agent: string;
  readonly definition: Hash;
  readonly thread: string;
  readonly labels: Fact<"run.started">["labels"];
  /** Who has asked for it. Default: who asked last in the run. */
  readonly principal: LegRequest["principal"] | undefined;
  /** In place of the agent's own. Default: the run's. */
  readonly instructions?: string | undefined;
  /** By its name, in place of the agent's own. */
  readonly model?: string | undefined;
  /** In place of the newest user message's content. */
  readonly input?: string | readonly ContentPart[] | undefined;
  /** In place of the committed state. */
  readonly state?: Json | undefined;
}

/** A call behind the entry that has changed the world, or may have. */
export interface ForkedWrite {
  readonly path: Path;
  readonly name: string;
  readonly effect: Effect;
  /** `unknown`: it may have been applied, or still may be. */
  readonly applied: "yes" | "unknown";
  readonly toolCallId?: string;
  /** Where the log has it. */
  readonly input?: Json;
}

/** A run's log, cut. */
export interface ForkPoint {
  /** The last entry that counts: a run cannot be cut before what its first request said. */
  readonly at: number;
  readonly prefix: readonly Entry[];
  /** The run at that entry. */
  readonly state: RunState;
  /** The steps that are history. */
  readonly kept: ReadonlySet<Path>;
  /** Questions about the run's budget on which it was not raised. */
  readonly stops: ReadonlySet<string>;
}

/** Where a run is cut that is forked at its entry `at`. */
export function forkPoint({ entries, before }: Pick<ForkSource, "entries" | "before">, at: number): ForkPoint {
  const cut = Math.max(at, openingOf(entries));
  const prefix = entries.filter(({ seq, kind }) => seq <= cut && kind !== "transcript");
  const state = fold(prefix, before);
  const kept = new Set([...state.steps].flatMap(([path, { finished }]) => (finished ? [path] : [])));
  const last = [...state.steps.values()].at(-1);
  // Nothing rests on an answer that there is none of, unless code has gone on without it: it is asked for again.
  if (last?.started.step === "model" && last.finished?.status !== "ok" && !goesOn(prefix, state, last.finished)) {
    kept.delete(last.started.path);
  }
  const stops = prefix.flatMap((entry): string[] => {
    if (entry.kind !== "interrupt.opened" || entry.interrupt.kind !== "budget") return [];
    const answer = state.answers.get(entry.interrupt.id);
    return answer === undefined || readRaise(answer) === undefined ? [entry.interrupt.id] : [];
  });
  return { at: cut, prefix, state, kept, stops: new Set(stops) };
}

/** Whether code of a custom loop has done something behind the end of a step. */
function goesOn(prefix: readonly Entry[], { steps }: RunState, end: { readonly seq: number } | undefined): boolean {
  const from = end?.seq ?? Number.POSITIVE_INFINITY;
  return prefix.some(
    (entry) => entry.seq > from && (entry.kind === "state" || (entry.kind === "frame" && isLoopFrame(entry, steps))),
  );
}

/** The place of the last of the entries with which a run begins. Those of a fork may be more than one leg's; those of a pruned run have no frames. */
function openingOf(entries: readonly Entry[]): number {
  const started = entries.findIndex((entry) => isOpening(entry));
  let last = started === -1 ? entries.findIndex(({ kind }) => kind === "leg.started") : started;
  for (let next = entries[last + 1]; next !== undefined && opens(next); next = entries[last + 1]) last += 1;
  return entries[last]?.seq ?? 0;
}

function opens(entry: Entry): boolean {
  return entry.kind === "state" ? entry.path === "" : isOpening(entry);
}

function isOpening(entry: Entry): boolean {
  if (entry.kind !== "frame") return false;
  if ("ref" in entry) return OPENING.has(entry.ref.of);
  return entry.event.type === "MESSAGES_SNAPSHOT" && entry.bridge === true && entry.past === undefined;
}

const OPENING: ReadonlySet<string> = new Set(["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]);

/** What of the run has changed the world, or may have, and is not the fork's history. In the order in which it began. */
export function writesAfter(
  { state }: Pick<ForkSource, "state">,
  { kept }: Pick<ForkPoint, "kept">,
): readonly ForkedWrite[] {
  return [...state.steps.values()].flatMap((step): ForkedWrite[] => {
    const { path, name, effect, toolCallId, input: ref } = step.started;
    const applied = effect === "read" || kept.has(path) ? "no" : appliedOf(step);
    if (applied === "no") return [];
    const input = editedArguments(step) ?? ("history" in ref ? undefined : resolveInput(state, ref));
    return [
      {
        path,
        name,
        effect,
        applied,
        ...(toolCallId !== undefined && { toolCallId }),
        ...(input !== undefined && { input }),
      },
    ];
  });
}

function appliedOf({ attempts, finished }: StepState): "no" | "yes" | "unknown" {
  // What another run has done is not done by asking for it again.
  if (finished?.via === "dedup") return "no";
  if (finished?.status === "ok") return "yes";
  if (finished?.status === "error") return finished.applied;
  return attempts.every(({ failed }) => failed?.applied === "no") ? "no" : "unknown";
}

/** The newest message of the run's user that stands in the prefix. */
export function lastUserMessage({ prefix }: ForkPoint): Message | undefined {
  return requestsOf(prefix)
    .flatMap(({ messages }) => messages)
    .findLast(({ role }) => role === "user");
}

/** The first entries of the fork. */
export function forkEntries(source: ForkSource, point: ForkPoint, forked: Forked): readonly NewEntry[] {
  const { run } = source.state;
  const { prefix, kept } = point;
  const rename = renaming(run.uid, forked.uid);
  const edited = forked.input === undefined ? undefined : lastUserMessage(point)?.id;
  const withInput = <M extends Message>(message: M): M =>
    message.id === edited ? { ...message, content: forked.input } : message;
  const messages = messagesAt(source, point).map((message) => rename(withInput(message)));

  const opening: NewEntry[] = [startedAs(run, point, forked), legAs(prefix, forked, withInput)];
  const started = openingOf(prefix);
  const history = new Numbered(opening.length + 1);
  let isOpened = false;
  for (const entry of prefix) {
    if (!isOpened && entry.seq > started) {
      isOpened = true;
      history.add(entry.seq - 1, root({ of: "RUN_STARTED", leg: 1 }));
    }
    const copy = copyOf(entry, point, rename);
    if (copy !== undefined) history.add(entry.seq, history.placed(copy));
  }
  if (!isOpened) history.add(point.at, root({ of: "RUN_STARTED", leg: 1 }));
  const first: NewEntry[] = [
    ...opening,
    ...history.entries,
    ...stateAfter(source, point, forked.state),
    root({ of: "STATE_SNAPSHOT" }),
    // Clients keep the order of what they hold, and the requests' messages were all said at once here.
    ...[[], messages].map(
      (held): NewEntry => ({
        ...{ kind: "frame", path: ROOT, event: { type: "MESSAGES_SNAPSHOT", messages: [...held] } },
      }),
    ),
  ];
  return wholeHistory([...first, ...missingResults(first, kept)]);
}

/** It says of itself where what follows is its own. */
export function wholeHistory(first: readonly NewEntry[]): readonly NewEntry[] {
  return first.map((entry) =>
    entry.kind === "run.started" && entry.forkedFrom !== undefined
      ? { ...entry, forkedFrom: { ...entry.forkedFrom, history: first.length - 1 } }
      : entry,
  );
}

export const ROOT = "" as Path;

export function root(ref: Extract<Frame, { ref: unknown }>["ref"]): Frame {
  return { kind: "frame", path: ROOT, ref };
}

/** What makes the state that the copied facts come to the one that the fork begins with. */
export function stateAfter(source: ForkSource, point: ForkPoint, edited: Json | undefined): readonly NewEntry[] {
  const value = edited ?? stateAt(source, point);
  return value === point.state.committed
    ? []
    : [{ kind: "state", path: ROOT, patch: [{ op: "replace", path: "", value }] }];
}

/** The committed state at the entry (K3). */
export function stateAt({ before }: ForkSource, point: ForkPoint): Json {
  const { prefix } = point;
  const folding = new Folding(before);
  const undone: { readonly from: Json; readonly to: Json }[] = [];
  for (const entry of prefix) {
    const isUndone =
      entry.kind === "interrupt.opened" && entry.patch !== undefined && !isHistory(point, entry.interrupt);
    const from = isUndone ? folding.state.committed : undefined;
    folding.add(entry);
    if (from !== undefined) undone.push({ from, to: folding.state.committed });
  }
  if (undone.length === 0) return point.state.committed;
  return undone.reduceRight((state, { from, to }) => rebase(to, state, from).state, folding.state.committed);
}

/** A question that nobody had answered is the other run's; so is one of a call that is begun anew. */
function isHistory(
  { state, kept, stops }: ForkPoint,
  { id, path }: { readonly id: string; readonly path: Path },
): boolean {
  if (stops.has(id)) return false;
  return state.answers.has(id) && (kept.has(path) || !state.steps.has(path));
}

export function startedAs(run: Fact<"run.started">, { at }: ForkPoint, forked: Forked): Fact<"run.started"> {
  const { uid, agent, definition, thread, labels, instructions = run.instructions, model } = forked;
  const { owner, turn } = run;
  return {
    ...{ kind: "run.started", uid, agent, definition, owner, thread, turn, labels },
    forkedFrom: { uid: run.uid, seq: at },
    ...(instructions !== undefined && { instructions }),
    ...(model !== undefined && { model }),
  };
}

/**
 * One leg for all that there were, with all that was said in them (K5).
 *
 * @param asking - the request whose tools and context count. Default: the newest
 */
export function legAs(
  prefix: readonly Entry[],
  { uid, principal }: Forked,
  withInput: <M extends Message>(message: M) => M,
  asking?: LegRequest | null,
): Fact<"leg.started"> {
  const runId = `${uid}.1`;
  const requests = requestsOf(prefix);
  const [first] = requests;
  const newest = asking ?? requests.at(-1);
  if (first === undefined || newest === undefined) return { kind: "leg.started", leg: 1, runId, request: null };
  const { isBehind: _, parentRunId: __, ...request } = newest;
  return {
    ...{ kind: "leg.started", leg: 1, runId },
    request: {
      ...{ ...request, runId, results: [], resume: [], state: first.state, principal: principal ?? newest.principal },
      messages: requests.flatMap(({ messages }) => messages.map(withInput)),
    },
  };
}

function requestsOf(prefix: readonly Entry[]): readonly LegRequest[] {
  return prefix.flatMap((entry) => (entry.kind === "leg.started" && entry.request !== null ? [entry.request] : []));
}

export type Rename = <T>(value: T) => T;

/** What becomes of an entry; undefined for what does not go along. */
export function copyOf(entry: Entry, point: ForkPoint, rename: Rename): NewEntry | undefined {
  const { state, kept } = point;
  const { seq: _, at: __, ...copy } = entry;
  switch (copy.kind) {
    case "step.started":
      return kept.has(copy.path) ? ({ ...copy, ...rename({ toolCallId: copy.toolCallId }) } as NewEntry) : undefined;
    case "step.attempt": {
      const { reserved: _, allotted: __, ...attempt } = copy;
      return kept.has(copy.path) ? attempt : undefined;
    }
    case "step.waiting":
    case "step.failed":
      return kept.has(copy.path) ? copy : undefined;
    case "step.finished": {
      if (!kept.has(copy.path)) return undefined;
      const { usage: _, spent: __, ...end } = copy;
      const isModel = state.steps.get(copy.path)?.started.step === "model";
      return isModel && end.status === "ok" ? { ...end, output: rename(end.output) } : end;
    }
    case "interrupt.opened": {
      const { interrupt, patch = [] } = copy;
      if (isHistory(point, interrupt)) return { ...copy, interrupt: rename(interrupt) };
      // What follows was said of a state that had it; {@link stateAfter} takes it back.
      return patch.length > 0 ? { kind: "state", path: interrupt.path, patch } : undefined;
    }
    case "interrupt.answered":
      return isHistory(point, { id: copy.id, path: askedAt(state, copy.id) }) ? rename(copy) : undefined;
    case "inbox.taken":
      return copy.item === "cancel" || copy.item === "abandon" ? undefined : copy;
    case "state":
    case "memo":
      return copy;
    case "frame":
      return isLoopFrame(copy, state.steps) ? rename(copy) : undefined;
    case "run.started":
    case "leg.started":
    case "leg.finished":
    case "run.parked":
    case "run.resumed":
    case "run.finished":
    case "transcript":
      return undefined;
    default:
      return copy satisfies never;
  }
}

/** The step that a question was asked about; the root lane for one of the whole run. */
function askedAt({ steps }: RunState, id: string): Path {
  for (const [path, { asked }] of steps) if (asked.some(({ interrupt }) => interrupt.id === id)) return path;
  return ROOT;
}

/** K4. */
function isLoopFrame(frame: Frame, steps: RunState["steps"]): boolean {
  if (!("event" in frame)) return false;
  const { event } = frame;
  if (OWN_EVENTS.has(event.type) || (event.type === "CUSTOM" && event.name.startsWith("perdure."))) return false;
  return stepAround(steps, frame.path) === undefined;
}

/** What the driver shows of a run itself; the fork's driver shows its own. */
const OWN_EVENTS: ReadonlySet<string> = new Set([
  ...["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT"],
]);

/** The innermost step at a lane. */
function stepAround(steps: ReadonlyMap<Path, unknown>, lane: Path): Path | undefined {
  for (let path: string = lane; path !== ""; path = path.slice(0, Math.max(0, path.lastIndexOf(".")))) {
    if (steps.has(path as Path)) return path as Path;
  }
  return undefined;
}

/**
 * What clients held at the entry, without what is begun anew. Of a pruned run only what it came to is known, and of what a fork has from another run
 * what that had come to: so it is told by the ids.
 *
 * @param ofCode - a message of no step, as it was at the entry; undefined when there was none. Default: as it is
 */
export function messagesAt(
  { state: whole, entries, children }: ForkSource,
  { at, state, kept }: ForkPoint,
  ofCode: (message: Message) => Message | undefined = (message) => message,
): readonly Message[] {
  const isPruned = entries.some(({ kind }) => kind === "transcript");
  const { uid, forkedFrom } = whole.run;
  const history = forkedFrom?.history ?? -1;
  const shown = isPruned
    ? whole.messages
    : at < history
      ? fold(entries.filter(({ seq }) => seq <= history)).messages
      : [...state.running.values()].reduce<readonly Message[]>(
          (messages, running) => withoutAttempt(messages, running),
          state.messages,
        );
  const saidLater = new Set(
    requestsOf(entries.filter(({ seq }) => seq > at)).flatMap(({ messages }) => messages.map(({ id }) => id)),
  );
  const stepOfCall = new Map([...whole.steps].map(([path, { started }]) => [started.toolCallId, path]));
  return shown.flatMap((message) => {
    if (saidLater.has(message.id)) return [];
    const answered = message.role === "tool" ? stepOfCall.get(message.toolCallId) : undefined;
    const lane = laneOf(message.id, uid);
    const child = children.get(runOfSubagent(message.subagentRunId ?? ""));
    const step = answered ?? child ?? (lane === undefined ? undefined : stepAround(whole.steps, lane));
    if (step === undefined) return ofCode(message) ?? [];
    return kept.has(step) ? [message] : [];
  });
}

/** The place at which a run has made an id, itself or in a subagent there. */
function laneOf(id: string, uid: Uid): Path | undefined {
  const [maker, lane, made] = id.split(":");
  return maker === uid && made !== undefined ? (lane as Path) : undefined;
}

/** The run that a subagent is, or in whose body it was begun. */
export function runOfSubagent(id: string): string {
  return id.slice(0, id.includes(":") ? id.indexOf(":") : undefined);
}

/** Results that were recorded and had not been shown: the entry stands within their batch. */
export function missingResults(first: readonly NewEntry[], kept: ReadonlySet<Path>): readonly NewEntry[] {
  const { steps, wire } = fold(first.map((entry, seq) => ({ ...entry, seq, at: 0 })));
  return [...kept].flatMap((path): NewEntry[] => {
    const id = steps.get(path)?.started.toolCallId;
    if (id === undefined || !hasCall(wire, id) || isAnswered(wire, id)) return [];
    return [{ kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } }];
  });
}

/** Entries at their new places. */
export class Numbered {
  readonly entries: NewEntry[] = [];
  readonly #places: { readonly was: number; readonly is: number }[] = [];

  constructor(private readonly first: number) {}

  add(was: number, entry: NewEntry): void {
    this.#places.push({ was, is: this.first + this.entries.length - 1 });
    this.entries.push(entry);
  }

  /** The entry as it is said here: what a model step had read ends at another place. */
  placed(entry: NewEntry): NewEntry {
    if (entry.kind !== "step.started" || !("history" in entry.input)) return entry;
    const { history } = entry.input;
    const upTo = this.#places.findLast(({ was }) => was <= history.upTo)?.is ?? 0;
    return { ...entry, input: { history: { ...history, upTo } } };
  }
}

const ID_MEMBERS: ReadonlySet<string> = new Set([
  ...["id", "messageId", "toolCallId", "parentMessageId", "subagentRunId", "parentSubagentRunId", "entityId"],
]);

/** Changes the ids that one run has made into those of another (K6). */
export function renaming(from: Uid, to: Uid): Rename {
  const walk = (value: Json): Json => {
    if (Array.isArray(value)) return value.map(walk);
    if (!isJsonObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([member, inner]) => [
        member,
        typeof inner === "string" && ID_MEMBERS.has(member) && inner.startsWith(`${from}:`)
          ? `${to}${inner.slice(from.length)}`
          : walk(inner),
      ]),
    );
  };
  return <T>(value: T): T => walk(value as Json) as T;
}
