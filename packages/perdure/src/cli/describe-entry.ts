import type { Entry, Fact, FrameRef, InputRef } from "../log/entries.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { jsonText, quoted, short } from "./wording.ts";

/** An entry as a line of a log says it. */
export interface Described {
  /** The kind of a fact; of a frame, the type of its event. */
  readonly kind: string;
  readonly path: string;
  readonly what: string;
}

export function describeEntry(entry: Entry): Described {
  if (entry.kind !== "frame") return { kind: entry.kind, path: pathOf(entry), what: whatOf(entry) };
  const { path } = entry;
  if ("event" in entry) {
    const what = eventText(entry.event);
    return { kind: entry.event.type, path, what: entry.past ? join("before the fork", what) : what };
  }
  return { kind: entry.ref.of, path, what: refText(entry.ref) };
}

function pathOf(fact: Fact): string {
  if (fact.kind === "interrupt.opened") return fact.interrupt.path;
  return "path" in fact ? fact.path : "";
}

function whatOf(fact: Fact): string {
  switch (fact.kind) {
    case "run.started":
      return join(`${fact.agent}, turn ${fact.turn}`, fact.thread && `of thread ${fact.thread}`, fact.owner.subject);
    case "leg.started": {
      if (fact.request === null) return `leg ${fact.leg}, with no request`;
      const { messages, results, resume } = fact.request;
      const counted = [count(messages, "message"), count(results, "result"), count(resume, "answer")];
      return join(`leg ${fact.leg}`, ...counted, ...messages.map(({ content }) => textOf(content)));
    }
    case "leg.finished": {
      const { outcome } = fact;
      const error = outcome.type === "error" ? `${outcome.error.code}: ${outcome.error.message}` : "";
      return join(`leg ${fact.leg}: ${outcome.type}`, error);
    }
    case "step.started":
      return join(`${fact.step} ${fact.name}`, fact.step === "tool" && fact.effect, inputText(fact.input));
    case "step.attempt":
      return join(
        `attempt ${fact.n}`,
        fact.model !== undefined && `asks ${fact.model.provider}/${fact.model.modelId}`,
        fact.phase === "resume" && "goes on after an answer",
        fact.key !== null && `key ${fact.key}`,
        fact.edited !== undefined && `with ${jsonText(fact.edited)}`,
      );
    case "step.failed":
      return join(`attempt ${fact.n}`, `${fact.error.code}: ${fact.error.message}`, `applied: ${fact.applied}`);
    case "step.finished":
      return finishedText(fact);
    case "step.waiting":
      return `waits for the key that step ${fact.holder.path} of run ${fact.holder.uid} holds`;
    case "state":
      return jsonText(fact.patch as Json);
    case "memo":
      return `${fact.transformer} ${jsonText(fact.value)}`;
    case "interrupt.opened": {
      const { kind, message, id } = fact.interrupt;
      return join(`${kind} ${quoted(message)}`, id);
    }
    case "interrupt.answered":
      return join(`${fact.status} by ${fact.by}`, fact.payload !== undefined && jsonText(fact.payload), fact.id);
    case "inbox.taken":
      return `${fact.item} by ${fact.by}`;
    case "run.parked":
      return fact.why;
    case "run.resumed":
      return `${fact.why}, epoch ${fact.epoch}`;
    case "transcript":
      return `in place of its frames: ${count(fact.messages, "part") || "no message"}`;
    case "run.finished": {
      const { outcome, output, error, unresolved } = fact;
      const code = error && `${error.code}: ${error.message}`;
      return join(
        outcome,
        output !== undefined && jsonText(output),
        code,
        unresolved.length > 0 && `unresolved: ${unresolved.join(", ")}`,
      );
    }
    default:
      return fact satisfies never;
  }
}

function finishedText(fact: Fact<"step.finished">): string {
  const via = fact.via !== "call" && `via ${fact.via}`;
  switch (fact.status) {
    case "ok":
      return join("ok", via, jsonText(fact.output));
    case "error":
      return join(`${fact.error.code}: ${fact.error.message}`, `applied: ${fact.applied}`, via);
    case "cancelled":
      return "cancelled";
    default:
      return fact satisfies never;
  }
}

function inputText(input: InputRef): string {
  if ("value" in input) return jsonText(input.value);
  if ("call" in input) return `call ${input.call.index} of model step ${input.call.model}`;
  return `history up to entry ${input.history.upTo}`;
}

function refText(ref: FrameRef): string {
  switch (ref.of) {
    case "RUN_STARTED":
    case "RUN_FINISHED":
    case "RUN_ERROR":
      return `leg ${ref.leg}`;
    case "TOOL_CALL_RESULT":
      return `of step ${ref.path}`;
    case "MESSAGES_SNAPSHOT":
      return join(
        ref.without && `without attempt ${ref.without.n} of step ${ref.without.path}`,
        ref.withdrawn && `${ref.withdrawn.length} withdrawn`,
      );
    case "STATE_SNAPSHOT":
      return "";
    case "CHILD":
      return `entries ${ref.from} to ${ref.to} of run ${ref.uid}`;
    default:
      return ref satisfies never;
  }
}

/** What of an event a reader wants to see at once; all of it is in `--json`. */
function eventText(event: AGUIEvent): string {
  if ("delta" in event) return typeof event.delta === "string" ? quoted(event.delta) : jsonText(event.delta as Json);
  if ("toolCallName" in event && event.toolCallName !== undefined) return short(event.toolCallName, 64);
  if ("stepName" in event) return short(event.stepName, 64);
  if ("name" in event && "value" in event) return `${short(event.name, 64)} ${jsonText(event.value as Json)}`;
  if ("snapshot" in event) return jsonText(event.snapshot as Json);
  if ("content" in event) return textOf(event.content);
  return "";
}

function textOf(content: unknown): string {
  return typeof content === "string" ? quoted(content) : jsonText(content as Json);
}

function count(items: readonly unknown[], noun: string): string {
  return items.length === 0 ? "" : `${items.length} ${noun}${items.length === 1 ? "" : "s"}`;
}

function join(...parts: readonly (string | false | null | undefined)[]): string {
  return parts.flatMap((part) => (part ? [short(part, 300)] : [])).join(", ");
}
