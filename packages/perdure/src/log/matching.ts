/**
 * Code that is run again, held against what it did the first time. Pure: who reads the log and who stops the code is the driver's business.
 *
 * X1. A step is the same if its place, kind and name are. Another input of a finished one changes nothing any more, of one that only reads
 *     it counts, and of one that may be half done it is a difference.
 * X2. Frames are the same in a normal form: ids and times left out, names of steps without their numbers, the deltas of a block as one text. What
 *     was recorded of a text is a prefix of what the code says.
 */
import type { AGUIEvent } from "../protocol/events.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import type { Effect, Path } from "../protocol/words.ts";
import type { StepKind } from "./entries.ts";
import type { StepState } from "./run-state.ts";

/** Where code does something else than it did. */
export interface Difference {
  /** The step or lane. */
  readonly path: Path;
  /** The first entry that the code does not come to any more. */
  readonly seq: number;
  /** In a sentence that goes on with "was recorded" and "now". */
  readonly what: string;
  readonly recorded: Json;
  readonly wanted: Json;
  /** What to do about it. */
  readonly next: string;
}

export interface WantedStep {
  readonly path: Path;
  readonly kind: StepKind;
  readonly name: string;
  readonly effect: Effect;
  /** Undefined where the log does not hold it as a value. */
  readonly input: Json | undefined;
}

const KEEP_ORDER =
  "deploy the code whose steps had this order and these names, or let new code ask ctx.version before it differs";

/** @returns undefined when the recorded step is the one that is wanted; `input`: only what it was given differs, and that does no harm */
export function stepDifference(
  { started, finished }: StepState,
  { path, kind, name, effect, input }: WantedStep,
): Difference | "input" | undefined {
  const { seq } = started;
  if (started.step !== kind || started.name !== name) {
    return {
      ...{ path, seq, what: `step ${path}`, next: KEEP_ORDER },
      recorded: `${started.step} "${started.name}"`,
      wanted: `${kind} "${name}"`,
    };
  }
  const recorded = "value" in started.input ? started.input.value : undefined;
  if (recorded === undefined || input === undefined || jsonEqual(recorded, input)) return undefined;
  if (finished !== undefined || (started.effect === "read" && effect === "read")) return "input";
  const what = `the input of step ${path} (${kind} "${name}"), which may be half done`;
  return { path, seq, what, recorded, wanted: input, next: "give it the input with which it began" };
}

/** Members that name something, or say when: they may differ from try to try. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  ...["messageId", "toolCallId", "parentMessageId", "entityId", "subagentRunId", "parentToolCallId"],
  ...["timestamp", "rawEvent"],
]);

/** What is compared of an event. Of a list of messages only that it was sent: what others have said since is in it. */
export function normalForm(event: AGUIEvent): Json {
  if (event.type === "MESSAGES_SNAPSHOT") return { type: event.type };
  const members = Object.entries(event as unknown as { readonly [key: string]: Json | undefined });
  return Object.fromEntries(
    members.flatMap(([key, value]): [string, Json][] => {
      if (LEFT_OUT.has(key) || value === undefined) return [];
      return [[key, key === "stepName" && typeof value === "string" ? value.replace(/#\d+$/, "") : value]];
    }),
  );
}

/** The block or step that an event begins; undefined for others. */
export function beginning(event: AGUIEvent): string | undefined {
  switch (event.type) {
    case "TEXT_MESSAGE_START":
      return `text ${event.messageId}`;
    case "REASONING_START":
      return `reasoning ${event.messageId}`;
    case "REASONING_MESSAGE_START":
      return `reasoning-message ${event.messageId}`;
    case "TOOL_CALL_START":
      return `tool-call ${event.toolCallId}`;
    case "STEP_STARTED":
      return `step ${event.stepName}`;
    case "SUBAGENT_STARTED":
      return `subagent ${event.subagentRunId}`;
    default:
      return undefined;
  }
}

/** The block or step that an event ends. */
export function ending(event: AGUIEvent): string | undefined {
  switch (event.type) {
    case "TEXT_MESSAGE_END":
      return `text ${event.messageId}`;
    case "REASONING_END":
      return `reasoning ${event.messageId}`;
    case "REASONING_MESSAGE_END":
      return `reasoning-message ${event.messageId}`;
    case "TOOL_CALL_END":
      return `tool-call ${event.toolCallId}`;
    case "STEP_FINISHED":
      return `step ${event.stepName}`;
    case "SUBAGENT_FINISHED":
    case "SUBAGENT_ERROR":
      return `subagent ${event.subagentRunId}`;
    default:
      return undefined;
  }
}

/** Whether two events say the same to whoever reads them (X2). */
export function sameEvent(a: AGUIEvent, b: AGUIEvent): boolean {
  return jsonEqual(normalForm(a), normalForm(b));
}

/** The ids of `from`, each with the one that `to` has in its place. */
export function idsBetween(from: AGUIEvent, to: AGUIEvent): readonly (readonly [string, string])[] {
  const [one, other] = [from as unknown as Json, to as unknown as Json];
  if (!isJsonObject(one) || !isJsonObject(other)) return [];
  return [...LEFT_OUT, "stepName"].flatMap((key) => {
    const [id, as] = [one[key], other[key]];
    return typeof id === "string" && typeof as === "string" && id !== as ? [[id, as] as const] : [];
  });
}

/** The event under other ids. */
export function withIds(event: AGUIEvent, ids: ReadonlyMap<string, string>): AGUIEvent {
  const members = event as unknown as { readonly [key: string]: unknown };
  const changed = [...LEFT_OUT, "stepName"].flatMap((key) => {
    const id = members[key];
    const as = typeof id === "string" ? ids.get(id) : undefined;
    return as === undefined ? [] : [[key, as] as const];
  });
  // Only texts have taken the place of texts.
  return changed.length === 0 ? event : ({ ...members, ...Object.fromEntries(changed) } as unknown as AGUIEvent);
}
