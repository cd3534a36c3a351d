/** A recorded run as a file: to look at elsewhere, and to hold a later version of its agent against. */
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Entry } from "./entries.ts";

/** What a model step was asked. All JSON, as a provider gets it. */
export interface AskedOfModel {
  readonly prompt: Json;
  readonly tools: Json;
  readonly settings: Json;
}

export interface RunFixture {
  readonly perdure: "run";
  readonly version: 1;
  readonly run: Uid;
  readonly agent: string;
  /** The entries of the thread's runs before it, oldest first, and in the end its own. Deltas of one block are joined. */
  readonly logs: readonly (readonly Entry[])[];
  /** By model step, as far as whoever exported it knew: the log has hashes of instructions and tools alone. */
  readonly asked: { readonly [path: Path]: AskedOfModel };
}

/**
 * Changes a text before it leaves, for example to hide what is secret. Equal texts have to become equal.
 *
 * @param text - a text of a payload: what people, models and tools have said, never a name or an id
 */
export type Redact = (text: string) => string;

const DELTAS: ReadonlySet<string> = new Set([
  ...["TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"],
]);

/** The same entries with fewer frames: deltas that follow each other in one block are one. */
export function withJoinedDeltas(entries: readonly Entry[]): readonly Entry[] {
  const joined: Entry[] = [];
  for (const entry of entries) {
    const last = joined.at(-1);
    const both = last === undefined ? undefined : joinedWith(last, entry);
    if (both === undefined) joined.push(entry);
    else joined[joined.length - 1] = both;
  }
  return joined;
}

/** It stands where the later one stood, so that what had been read up to there is what it was. */
function joinedWith(last: Entry, next: Entry): Entry | undefined {
  if (last.kind !== "frame" || next.kind !== "frame" || last.path !== next.path) return undefined;
  if (!("event" in last) || !("event" in next) || !DELTAS.has(last.event.type)) return undefined;
  if (last.bridge !== next.bridge || last.past !== next.past) return undefined;
  const { delta: before, ...block } = last.event as { delta: string };
  const { delta, ...same } = next.event as { delta: string };
  if (JSON.stringify(block) !== JSON.stringify(same)) return undefined;
  return { ...next, event: { ...next.event, delta: before + delta } } as Entry;
}

/** The members of an entry in which everything is payload. */
const PAYLOADS: ReadonlySet<string> = new Set([
  ...["value", "input", "output", "edited", "payload", "state", "shown", "snapshot", "content", "text", "delta"],
  ...["message", "result", "forwardedProps", "metadata", "description", "encryptedValue", "data"],
]);
/** Texts that hold JSON. */
const JSON_TEXTS: ReadonlySet<string> = new Set(["arguments"]);

/** The fixture with every text of a payload changed. */
export function redacted({ logs, asked, ...fixture }: RunFixture, redact: Redact): RunFixture {
  const all = (value: Json): Json => {
    if (typeof value === "string") return redact(value);
    if (Array.isArray(value)) return value.map(all);
    if (!isJsonObject(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([member, inner]) => [member, all(inner)]));
  };
  const parts = (value: Json): Json => {
    if (Array.isArray(value)) return value.map(parts);
    if (!isJsonObject(value)) return value;
    const isArguments = value.type === "TOOL_CALL_ARGS";
    return Object.fromEntries(
      Object.entries(value).map(([member, inner]) => {
        if (typeof inner === "string" && (JSON_TEXTS.has(member) || (isArguments && member === "delta"))) {
          return [member, inJson(inner, all)];
        }
        // An operation's value, or a message's own parts: what is structure there is told by their members.
        const isOpen = typeof inner === "object" && (member === "delta" || member === "message");
        return [member, PAYLOADS.has(member) && !isOpen ? all(inner) : parts(inner)];
      }),
    );
  };
  return {
    ...fixture,
    logs: logs.map((entries) => {
      const models = new Set(
        entries.flatMap((entry) => (entry.kind === "step.started" && entry.step === "model" ? [entry.path] : [])),
      );
      return entries.map((entry) => {
        // A model's answer has structure of its own, and an input may be a reference.
        if (entry.kind === "step.finished" && entry.status === "ok" && models.has(entry.path)) {
          return { ...entry, output: parts(entry.output) };
        }
        if (entry.kind === "step.started") return { ...entry, input: parts(entry.input as unknown as Json) } as Entry;
        return parts(entry as unknown as Json) as unknown as Entry;
      });
    }),
    asked: Object.fromEntries(
      Object.entries(asked).map(([path, { prompt, ...rest }]) => [path, { ...rest, prompt: promptParts(prompt, all) }]),
    ),
  };
}

const NAMES: ReadonlySet<string> = new Set(["type", "role", "toolCallId", "toolName", "mediaType"]);

function promptParts(value: Json, all: (value: Json) => Json): Json {
  if (Array.isArray(value)) return value.map((part) => promptParts(part, all));
  if (!isJsonObject(value)) return all(value);
  return Object.fromEntries(
    Object.entries(value).map(([member, inner]) => {
      if (NAMES.has(member)) return [member, inner];
      return [member, member === "content" || member === "output" ? promptParts(inner, all) : all(inner)];
    }),
  );
}

/** A text that is JSON stays JSON. */
function inJson(text: string, all: (value: Json) => Json): string {
  try {
    return JSON.stringify(all(JSON.parse(text) as Json));
  } catch {
    return all(text) as string;
  }
}
