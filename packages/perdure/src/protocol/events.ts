import { type Event, type EventType, omitOptionalNulls } from "@ag-ui/core";

export type {
  ActivityMessage,
  AssistantMessage,
  ContentPart,
  Context,
  Interrupt,
  JsonPatchOperation,
  Message,
  Metadata,
  ResumeEntry,
  RunAgentInput,
  TokenUsage,
  Tool,
  ToolCall,
  ToolMessage,
  UserMessage,
} from "@ag-ui/core";
/** The AG-UI version that we write and declare. */
export { PROTOCOL_VERSION } from "@ag-ui/core";

type Literal<E> = E extends { type: infer T extends EventType } ? Omit<E, "type"> & { type: `${T}` } : never;

/** Any AG-UI 1.0 event, with its `type` as a plain string literal. */
export type AGUIEvent = Literal<Event>;

/** Name of an AG-UI event type. */
export type AGUIEventType = AGUIEvent["type"];

/** The event of one type. */
export type AGUIEventOf<T extends AGUIEventType> = Extract<AGUIEvent, { type: T }>;

type IsAny<T> = 0 extends 1 & T ? true : false;
type OptionalKey<T> = { [K in keyof T]-?: object extends Pick<T, K> ? K : never }[keyof T];
type Lenient<T> =
  IsAny<T> extends true
    ? unknown
    : T extends readonly (infer Item)[]
      ? readonly Lenient<Item>[]
      : T extends object
        ? { readonly [K in Exclude<keyof T, OptionalKey<T>>]: Lenient<T[K]> } & {
            readonly [K in OptionalKey<T>]?: Lenient<T[K]> | null | undefined;
          }
        : T;

/** What {@link event} takes: the event's members, each optional one also as `undefined` or `null`, nested ones too. */
export type EventFields<T extends AGUIEventType> = Lenient<Omit<AGUIEventOf<T>, "type">>;

/** Members whose content is the application's own JSON: nothing in them is ours to leave out. */
const OPEN_MEMBERS: ReadonlySet<string> = new Set([
  ...["state", "snapshot", "delta", "patch", "metadata", "rawEvent", "event", "value", "result", "payload"],
  ...["forwardedProps", "parameters", "responseSchema"],
]);

/**
 * An event, ready for the wire: optional members without a value are absent, however they were given. The rule follows optionality, not
 * the value: a required member may be `null` (`STATE_SNAPSHOT.snapshot`), and a `null` inside state, metadata or a patch is data.
 *
 * @param type - the event's type
 * @param fields - its members
 */
export function event<T extends AGUIEventType>(type: T, fields: EventFields<T>): AGUIEventOf<T> {
  return asEvent<T>(omitOptionalNulls(withoutUndefined(Object.assign({ type }, fields)), "Event"));
}

/** The same value without members that are `undefined`; what has none is returned as it is. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(withoutUndefined);
    return items.some((item, i) => item !== value[i]) ? items : value;
  }
  if (typeof value !== "object" || value === null) return value;
  let changed = false;
  const kept: [string, unknown][] = [];
  const isActivity = "activityType" in value;
  for (const [key, member] of Object.entries(value)) {
    if (member === undefined) {
      changed = true;
      continue;
    }
    const open = OPEN_MEMBERS.has(key) || (isActivity && key === "content");
    const next = open ? member : withoutUndefined(member);
    if (next !== member) changed = true;
    kept.push([key, next]);
  }
  return changed ? Object.fromEntries(kept) : value;
}

/** The one cast: `fields` was typed by `EventFields<T>`, and what that adds to the event's type has just been left out. */
function asEvent<T extends AGUIEventType>(value: unknown): AGUIEventOf<T> {
  return value as AGUIEventOf<T>;
}
