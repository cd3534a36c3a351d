/**
 * A fork of a custom loop's run. Its code is run again from the top, so beside what `fork.ts` takes along it is given what the code has done since
 * it began: what it has emitted, what it made of the state, and what it was told when it began.
 *
 * M1. What the code has emitted stands as frames of the past: it is held against them and they are not shown. What clients hold at the entry is
 *     one snapshot, in which half a message stays half a message.
 * M2. Nothing is open on the fork's screen. What the code goes on with is opened again under its id, as behind the end of a leg.
 * M3. What the code began with stands before RUN_STARTED and right behind it, also where it had begun a second time (`ctx.interrupt`).
 * M4. Another state is what the code goes on with from what it has heard of last; where it has heard of nothing it begins with it.
 */
import { withoutCalls } from "../protocol/closing.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { reduceMessages } from "../protocol/reduce.ts";
import type { Path } from "../protocol/words.ts";
import type { Entry, Fact, NewEntry } from "./entries.ts";
import { fold } from "./fold.ts";
import {
  copyOf,
  type Forked,
  type ForkPoint,
  type ForkSource,
  lastUserMessage,
  legAs,
  messagesAt,
  missingResults,
  Numbered,
  type Rename,
  ROOT,
  renaming,
  root,
  startedAs,
  stateAfter,
  wholeHistory,
} from "./fork.ts";
import type { RunState } from "./run-state.ts";

/** What the code has done, up to the entry. */
export interface ForkedCode {
  /** The run when it began. */
  readonly base: RunState;
  /** What it has emitted since, by lane, and where that stands. `isOptional`: the end of a leg has closed it. */
  readonly lanes: ReadonlyMap<
    Path,
    readonly { readonly event: AGUIEvent; readonly seq: number; readonly isOptional: boolean }[]
  >;
  /** Whether it has heard of anything since. */
  readonly hasHeard: boolean;
  /** Where calls stood that the end of a leg has taken from the screen: the message without them, and the ids of those before it. */
  readonly vacancies: ReadonlyMap<string, { readonly message: Message; readonly preceding: ReadonlySet<string> }>;
}

/** The first entries of the fork. */
export function forkCodeEntries(
  source: ForkSource,
  point: ForkPoint,
  forked: Forked,
  code: ForkedCode,
): readonly NewEntry[] {
  const { run } = source.state;
  const { prefix, kept } = point;
  const { base, hasHeard } = code;
  const rename = renaming(run.uid, forked.uid);
  const edited = forked.input === undefined ? undefined : lastUserMessage(point)?.id;
  const withInput = <M extends Message>(message: M): M =>
    message.id === edited ? { ...message, content: forked.input } : message;
  const shownAs = (messages: readonly Message[]): readonly Message[] =>
    messages.map((message) => rename(withInput(message)));

  const leg = legAs(prefix, forked, withInput, base.request);
  const start = hasHeard ? base.committed : (forked.state ?? base.committed);
  const opening: NewEntry[] = [
    startedAs(run, point, forked),
    leg,
    ...(jsonEqual(start, leg.request?.state ?? {}) ? [] : [replaced(start)]),
  ];
  const history = new Numbered(opening.length + 1);
  const since = prefix.findIndex(({ seq }) => seq > base.head);
  const [before, after] = since === -1 ? [prefix, []] : [prefix.slice(0, since), prefix.slice(since)];
  for (const entry of before) {
    const copy = entry.kind === "frame" ? undefined : withoutPatch(copyOf(entry, point, rename));
    if (copy !== undefined) history.add(entry.seq, history.placed(copy));
  }
  const begun = shownAs(base.messages);
  for (const entry of [root({ of: "RUN_STARTED", leg: 1 }), root({ of: "STATE_SNAPSHOT" }), ...snapshot(begun)]) {
    history.add(base.head, entry);
  }
  for (const [seq, copy] of sinceBegun(after, point, code, rename)) history.add(seq, history.placed(copy));
  const held = shownAs(heldAt(source, point, code));
  const first: NewEntry[] = [
    ...opening,
    ...history.entries,
    ...(hasHeard ? stateAfter(source, point, forked.state) : []),
    root({ of: "STATE_SNAPSHOT" }),
    ...(jsonEqual(held as unknown as Json, begun as unknown as Json) ? [] : snapshot(held)),
  ];
  return wholeHistory([...first, ...missingResults(first, kept)]);
}

/** What clients held at the entry. In what a fork has from another run, what the code had emitted up to there is all that is known of its messages. */
function heldAt(source: ForkSource, point: ForkPoint, { base, lanes, vacancies }: ForkedCode): readonly Message[] {
  const events = [...lanes.values()].flat().toSorted((a, b) => a.seq - b.seq);
  const history = source.state.run.forkedFrom?.history ?? -1;
  const said = new Map(
    (point.at < history
      ? events.reduce<readonly Message[]>((messages, { event }) => reduceMessages(messages, event), base.messages)
      : []
    ).map((message) => [message.id, message]),
  );
  /** Calls that are open on the screen, and those that the code has not ended itself. */
  const [open, begun] = [new Set<string>(), new Set<string>()];
  for (const { event, isOptional } of events) {
    if (event.type === "TOOL_CALL_START") for (const calls of [open, begun]) calls.add(event.toolCallId);
    if (event.type === "TOOL_CALL_END")
      for (const calls of isOptional ? [open] : [open, begun]) calls.delete(event.toolCallId);
  }
  const shown = { ...point, state: wholeSnapshot(source, point) };
  const held = messagesAt(source, shown, (message) => (point.at < history ? said.get(message.id) : message)).map(
    (message) => withoutCalls(message, open),
  );
  for (const call of begun) {
    const { message, preceding } = vacancies.get(call) ?? {};
    if (message === undefined || preceding === undefined || held.some(({ id }) => id === message.id)) continue;
    held.splice(held.findLastIndex(({ id }) => preceding.has(id)) + 1, 0, message);
  }
  return held;
}

/** What leaves the screen by one snapshot, to come back in another order by the next one, has not left it. */
function wholeSnapshot({ entries, before }: ForkSource, { at, prefix, state }: ForkPoint): RunState {
  const isSnapshot = (entry: Entry | undefined): boolean =>
    entry?.kind === "frame" && "bridge" in entry && entry.event.type === "MESSAGES_SNAPSHOT";
  const next = entries.find(({ seq }) => seq > at);
  return next !== undefined && isSnapshot(next) && isSnapshot(prefix.at(-1)) ? fold([...prefix, next], before) : state;
}

/** What is kept of the code's time since it began, each with its place in the run. */
function* sinceBegun(
  entries: readonly Entry[],
  point: ForkPoint,
  { lanes, hasHeard }: ForkedCode,
  rename: Rename,
): Generator<readonly [seq: number, entry: NewEntry]> {
  const emitted = new Map(
    [...lanes].flatMap(([path, events]) => events.map((one) => [one.seq, { ...one, path }] as const)),
  );
  for (const entry of entries) {
    const { seq } = entry;
    const one = emitted.get(seq);
    if (one !== undefined) {
      const { path, event, isOptional } = one;
      const bridge = isOptional && ({ bridge: true } as const);
      yield [seq, { kind: "frame", path, event: rename(event), ...bridge, past: true }];
    }
    const copy = entry.kind === "frame" ? undefined : copyOf(entry, point, rename);
    // The code has seen nothing of it, and what it begins with is another state (M4).
    if (copy !== undefined && (hasHeard || copy.kind !== "state")) yield [seq, copy];
  }
}

/** A snapshot that says the order, too: clients keep that of what they hold. */
function snapshot(messages: readonly Message[]): readonly NewEntry[] {
  return [[], messages].map((held): NewEntry => {
    const event: AGUIEvent = { type: "MESSAGES_SNAPSHOT", messages: [...held] };
    return { kind: "frame", path: ROOT, event, bridge: true };
  });
}

function replaced(value: Json): Fact<"state"> {
  return { kind: "state", path: ROOT, patch: [{ op: "replace", path: "", value }] };
}

/** What it did to the state is in the one that the code began with. */
function withoutPatch(entry: NewEntry | undefined): NewEntry | undefined {
  if (entry?.kind === "state") return undefined;
  if (entry?.kind === "step.finished" && entry.status === "ok") return { ...entry, patch: [] };
  if (entry?.kind !== "interrupt.opened") return entry;
  const { patch: _, ...opened } = entry;
  return opened;
}
