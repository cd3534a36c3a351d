/**
 * The messages of a finished run when its frames are gone. They stand in one `transcript` entry, as references wherever something else in the
 * log has them: what the thread showed before the run, what its requests brought, and the texts that its steps have put out. So a pruned log
 * holds everything once.
 *
 * 1. Restoring gives the same messages byte for byte: the order of members is that of the frames that made them.
 * 2. References point to facts of the same log, of its children's logs and to the thread before it, which pruning leaves as they are.
 * 3. What no fact says stands here as it is: what a transformer has rewritten, what a body of the user's own has emitted, activities.
 */
import type { Message } from "../protocol/events.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Fact, OwnTextRef } from "./entries.ts";
import { LogError } from "./log-error.ts";
import type { RunState, StepState } from "./run-state.ts";
import { resultContent } from "./tool-result.ts";

/** What a transcript refers to. */
export interface TranscriptSource {
  readonly run: { readonly uid: Uid };
  /** The messages that the thread showed before the run. */
  readonly before: readonly Message[];
  /** The messages that the run's requests have brought. */
  readonly brought: readonly Message[];
  readonly steps: { get(path: Path): StepState | undefined };
}

type Item = Fact<"transcript">["messages"][number];
type TextPlace = Extract<Item, { message: unknown }>["texts"][number];
type TextRef = TextPlace["of"];
type Key = TextPlace["at"][number];

/** Text that is shorter costs less than a reference to it. UTF-16 units. */
const WORTH_IT = 80;

/**
 * The entry that stands for the frames of a run which has come to `state`.
 *
 * @param children - the runs below it
 */
export function transcriptOf(state: RunState, children: readonly RunState[] = []): Fact<"transcript"> {
  const source = sourceOf(state);
  const items: Item[] = [];
  const known = knownMessages(source);
  const texts = new Map<string, TextRef>(knownTexts(source));
  for (const child of children) {
    for (const [text, of] of knownTexts(sourceOf(child))) {
      if (!texts.has(text)) texts.set(text, { child: child.run.uid, of });
    }
  }
  for (const message of state.messages) {
    const place = known.get(JSON.stringify(message));
    const last = items.at(-1);
    if (place === undefined) items.push(asItem(message, texts));
    else if ("brought" in place) items.push(place);
    else if (last !== undefined && "kept" in last && last.kept !== "all" && last.kept.to === place.at) {
      items[items.length - 1] = { kept: { from: last.kept.from, to: place.at + 1 } };
    } else items.push({ kept: { from: place.at, to: place.at + 1 } });
  }
  const [first] = items;
  const keepsAll =
    first !== undefined && "kept" in first && first.kept !== "all" && first.kept.to === source.before.length;
  if (keepsAll && first.kept.from === 0) items[0] = { kept: "all" };
  const isShown = JSON.stringify(state.shown) !== JSON.stringify(state.committed);
  return { kind: "transcript", messages: items, ...(isShown && { shown: state.shown }) };
}

/** @throws {@link LogError} when it refers to something that is not there */
export function restoreMessages(
  { messages }: Pick<Fact<"transcript">, "messages">,
  source: TranscriptSource,
): readonly Message[] {
  return messages.flatMap((item): readonly Message[] => {
    if ("kept" in item) {
      if (item.kept === "all") return source.before;
      const { from, to } = item.kept;
      if (to > source.before.length) throw missing(source, `messages ${from} to ${to} of the thread before it`);
      return source.before.slice(from, to);
    }
    if ("brought" in item) {
      const message = source.brought[item.brought];
      if (message === undefined) throw missing(source, `message ${item.brought} of its requests`);
      return [message];
    }
    return [item.texts.reduce((message, place) => withText(message, place, source), item.message)];
  });
}

function sourceOf({ run, before, brought, steps }: RunState): TranscriptSource & Pick<RunState, "steps"> {
  return { run, before: before.messages, brought, steps };
}

/** The transcript with the texts that stand in the logs of children. */
export function withChildTexts(
  transcript: Fact<"transcript">,
  textOf: (child: Uid, of: OwnTextRef) => string,
): Fact<"transcript"> {
  const messages = transcript.messages.map((item): Item => {
    if (!("texts" in item) || !item.texts.some(({ of }) => "child" in of)) return item;
    const texts = item.texts.map(({ at, of }) => ({
      at,
      of: "child" in of ? { ...of, shown: textOf(of.child, of.of) } : of,
    }));
    return { ...item, texts };
  });
  return { ...transcript, messages };
}

/** The runs whose texts a transcript refers to. */
export function childrenIn({ messages }: Fact<"transcript">): ReadonlySet<Uid> {
  return new Set(
    messages.flatMap((item) =>
      "texts" in item ? item.texts.flatMap(({ of }) => ("child" in of ? of.child : [])) : [],
    ),
  );
}

/** A text of a run's log. @throws {@link LogError} when the log does not have it */
export function textIn(state: RunState, of: OwnTextRef): string {
  return textAt(of, sourceOf(state));
}

type KnownMessage = { readonly at: number } | { readonly brought: number };

/** By their JSON, so that nothing is taken for another that differs in its bytes. */
function knownMessages({ before, brought }: TranscriptSource): ReadonlyMap<string, KnownMessage> {
  const known = new Map<string, KnownMessage>();
  for (const [i, message] of brought.entries()) known.set(JSON.stringify(message), { brought: i });
  for (const [i, message] of before.entries()) known.set(JSON.stringify(message), { at: i });
  return known;
}

function knownTexts(source: TranscriptSource & Pick<RunState, "steps">): ReadonlyMap<string, OwnTextRef> {
  const known = new Map<string, OwnTextRef>();
  const learn = (text: string, of: OwnTextRef): void => {
    if (text.length >= WORTH_IT && !known.has(text)) known.set(text, of);
  };
  for (const [i, message] of source.brought.entries()) {
    for (const { at, text } of textsIn(message as unknown as Json)) learn(text, { brought: i, in: at });
  }
  for (const [path, step] of source.steps) {
    const { finished } = step;
    if (finished === undefined) continue;
    learn(resultContent(step, finished), { result: path });
    if (finished.status !== "ok") continue;
    for (const { at, text } of textsIn(finished.output)) learn(text, { output: path, in: at });
    // A call's arguments, as most models write them.
    for (const { at, value } of inputsIn(finished.output)) learn(JSON.stringify(value), { output: path, in: at });
  }
  return known;
}

/** The members that make a message what it is: these are never taken out of it. */
const STRUCTURE: ReadonlySet<string> = new Set([
  ...["id", "role", "type", "name", "toolCallId", "activityType", "subagentRunId", "mimeType"],
]);

function asItem(message: Message, known: ReadonlyMap<string, TextRef>): Item {
  const texts = textsIn(message as unknown as Json).flatMap(({ at, text }): TextPlace[] => {
    const of = known.get(text);
    return of === undefined ? [] : [{ at, of }];
  });
  return {
    message: texts.reduce<Json>((left, { at }) => put(left, at, ""), message as unknown as Json) as unknown as Message,
    texts,
  };
}

function textsIn(
  value: Json,
  at: readonly Key[] = [],
): readonly { readonly at: readonly Key[]; readonly text: string }[] {
  if (typeof value === "string") return value.length < WORTH_IT ? [] : [{ at, text: value }];
  if (Array.isArray(value)) return value.flatMap((item: Json, i) => textsIn(item, [...at, i]));
  if (!isJsonObject(value)) return [];
  return Object.entries(value).flatMap(([key, item]) => (STRUCTURE.has(key) ? [] : textsIn(item, [...at, key])));
}

function inputsIn(output: Json): readonly { readonly at: readonly Key[]; readonly value: Json }[] {
  if (!isJsonObject(output) || !Array.isArray(output.calls)) return [];
  return output.calls.flatMap((call: Json, i) =>
    isJsonObject(call) && typeof call.input === "object" ? [{ at: ["calls", i, "input"], value: call.input }] : [],
  );
}

function withText(message: Message, { at, of }: TextPlace, source: TranscriptSource): Message {
  if (!("child" in of)) return put(message as unknown as Json, at, textAt(of, source)) as unknown as Message;
  if (of.shown === undefined) throw missing(source, `a text of run ${of.child}, which was not loaded with it,`);
  return put(message as unknown as Json, at, of.shown) as unknown as Message;
}

/** A text as it is, or the JSON of another value. */
function textAt(of: OwnTextRef, source: TranscriptSource): string {
  if ("result" in of) {
    const step = source.steps.get(of.result);
    if (step?.finished === undefined) throw missing(source, `the result of step ${of.result}`);
    return resultContent(step, step.finished);
  }
  const value = get(rootOf(of, source), of.in);
  if (value === undefined) throw missing(source, `a text at ${JSON.stringify(of)}`);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function rootOf(of: Exclude<OwnTextRef, { result: Path }>, source: TranscriptSource): Json | undefined {
  if ("brought" in of) return source.brought[of.brought] as Json | undefined;
  const finished = source.steps.get(of.output)?.finished;
  return finished?.status === "ok" ? finished.output : undefined;
}

function get(value: Json | undefined, [key, ...rest]: readonly Key[]): Json | undefined {
  if (key === undefined || value === undefined) return value;
  if (Array.isArray(value)) return get(typeof key === "number" ? (value as readonly Json[])[key] : undefined, rest);
  return isJsonObject(value) && Object.hasOwn(value, key) ? get(value[key], rest) : undefined;
}

/** The value with another text at a place that it has. Members keep their order. */
function put(value: Json, [key, ...rest]: readonly Key[], text: string): Json {
  if (key === undefined) return text;
  if (Array.isArray(value) && typeof key === "number") {
    return (value as readonly Json[]).map((item, i) => (i === key ? put(item, rest, text) : item));
  }
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, name === key ? put(item, rest, text) : item]),
  );
}

function missing({ run }: TranscriptSource, what: string): LogError {
  return new LogError(run.uid, "its transcript", `${what} is not there`);
}
