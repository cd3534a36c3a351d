/**
 * Whether a value is an AG-UI 1.0 event, as strictly as a producer has to be: nothing missing, mistyped or undescribed leaves. The
 * schemas of `@ag-ui/core` are the one description of shapes. They let unknown members pass, so this reads from them what is
 * described where, and looks for the rest itself. It says nothing about order; that is `verify`'s.
 *
 * S1. What is accepted is returned as it came, not a copy: `JSON.stringify` of it is the event.
 * S2. The three delta events, nearly all of a stream, are recognised by hand. Anything unusual about one goes through the schema, so
 *     the short way can only accept what the long one would.
 */
import { EventSchema } from "@ag-ui/core/schemas";
import type { AGUIEvent } from "./events.ts";
import { escapePointer, MAX_JSON_DEPTH } from "./json.ts";
import { ProtocolError } from "./rules.ts";

/** Ids are opaque, but they end up in frames, headers, keys and logs. */
export const MAX_ID_LENGTH = 1024;

/** Control characters would break frames and logs; a lone surrogate becomes another id on its way through UTF-8. */
const BAD_ID = /[\p{Cc}\p{Cs}]/u;

/** What is wrong with a shape: a member that readers strip, one that should be absent, or what they refuse. */
export type ShapeFault = "undescribed" | "null" | "malformed";

/** An event of no AG-UI 1.0 shape. */
export class ShapeError extends ProtocolError {
  constructor(
    type: string | undefined,
    /** JSON Pointer of the part at fault; "" is the event itself, as where its type is not known. */
    readonly path: string,
    readonly fault: ShapeFault,
    why: string,
  ) {
    super("shape", type === undefined ? undefined : { type }, undefined, why);
  }
}

/**
 * Checks the shape of an event.
 *
 * @param event - anything
 * @returns the same object, typed
 * @throws {@link ShapeError}: no such event type; a member that is missing, mistyped, undescribed, or `null` where it
 * should be absent; an id that is empty, over {@link MAX_ID_LENGTH} UTF-16 units, or has control characters or lone surrogates; a
 * payload that is not JSON. The message says where
 */
export function checkShape(event: unknown): AGUIEvent {
  return isPlainDelta(event) ? event : checkBySchema(event);
}

type DeltaEvent = Extract<AGUIEvent, { type: "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" | "REASONING_MESSAGE_CONTENT" }>;

function isPlainDelta(event: unknown): event is DeltaEvent {
  if (typeof event !== "object" || event === null || Object.getPrototypeOf(event) !== Object.prototype) return false;
  const { type, messageId, toolCallId, delta, subagentRunId } = event as Partial<Record<string, unknown>>;
  let id: unknown;
  if (type === "TEXT_MESSAGE_CONTENT" || type === "REASONING_MESSAGE_CONTENT") id = messageId;
  else if (type === "TOOL_CALL_ARGS") id = toolCallId;
  else return false;
  if (typeof delta !== "string" || typeof id !== "string" || !isGoodId(id)) return false;
  const isOwned = typeof subagentRunId === "string" && isGoodId(subagentRunId);
  // Exactly these three, and whose they are, as JSON will see them.
  const idName = type === "TOOL_CALL_ARGS" ? "toolCallId" : "messageId";
  let members = isOwned ? -1 : 0;
  for (const name in event) {
    const isKnown = name === "type" || name === idName || name === "delta" || (isOwned && name === "subagentRunId");
    members += isKnown ? 1 : 5;
  }
  return members === 3;
}

/** Deltas come in long rows for one block, of one subagent. */
let [lastGoodId, oneBefore] = ["", ""];

function isGoodId(id: string): boolean {
  if (id === "") return false;
  if (id === lastGoodId || id === oneBefore) return true;
  if (id.length > MAX_ID_LENGTH || BAD_ID.test(id)) return false;
  oneBefore = lastGoodId;
  lastGoodId = id;
  return true;
}

function checkBySchema(value: unknown): AGUIEvent {
  const type = typeof value === "object" && value !== null && "type" in value ? value.type : undefined;
  const plan = typeof type === "string" ? events().get(type) : undefined;
  if (typeof type !== "string" || plan === undefined) {
    const found = type === undefined ? "no type" : `type ${describe(type)}`;
    const fault = typeof type === "string" ? "undescribed" : "malformed";
    const why = `${found} is not that of an AG-UI 1.0 event`;
    throw new ShapeError(typeof type === "string" ? type : undefined, "", fault, why);
  }
  const fault = findFault(value, plan, 0) ?? schemaFault(value);
  if (fault === undefined) return asEvent(value);
  const where = fault.path.length > 200 ? `${fault.path.slice(0, 200)}…` : fault.path;
  throw new ShapeError(type, fault.path, fault.is ?? "malformed", `${where === "" ? "the event" : where} ${fault.why}`);
}

/** The one cast: the schemas have just accepted the value. */
function asEvent(value: unknown): AGUIEvent {
  return value as AGUIEvent;
}

interface Fault {
  /** JSON Pointer of the member. */
  readonly path: string;
  readonly why: string;
  /** Malformed when left out. */
  readonly is?: ShapeFault;
}

function schemaFault(value: unknown): Fault | undefined {
  const result = EventSchema.safeParse(value);
  if (result.success) return undefined;
  let issue: Issue | undefined = result.error.issues[0];
  const path: PropertyKey[] = [];
  // Of a union's branches, the one that got furthest is the one that was meant.
  while (issue !== undefined) {
    path.push(...issue.path);
    const branches: readonly (readonly Issue[])[] = issue.code === "invalid_union" ? (issue.errors ?? []) : [];
    const next: Issue | undefined = branches.flat().sort((a, b) => b.path.length - a.path.length)[0];
    if (next === undefined) break;
    issue = next;
  }
  return { path: path.map((key) => `/${escapePointer(String(key))}`).join(""), why: `is wrong: ${issue?.message}` };
}
interface Issue {
  readonly code?: string | undefined;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly errors?: readonly (readonly Issue[])[];
}

// ── What the schemas do not check

type Plan =
  | { readonly kind: "id" | "leaf" | "json" }
  | { readonly kind: "list"; readonly item: Plan }
  | { readonly kind: "tagged"; readonly tag: string; readonly variants: ReadonlyMap<unknown, Plan> }
  | { readonly kind: "object"; readonly open: boolean; readonly members: ReadonlyMap<string, Member> };
interface Member {
  readonly plan: Plan;
  readonly optional: boolean;
}

/** Paths are put together on the way back, so what is right costs no strings. */
function findFault(value: unknown, plan: Plan, depth: number): Fault | undefined {
  switch (plan.kind) {
    case "leaf":
      return undefined;
    case "id":
      return typeof value === "string" && !isGoodId(value) ? { path: "", why: describeBadId(value) } : undefined;
    case "json":
      return value === undefined ? undefined : findNotJson(value, depth);
    case "list":
      return Array.isArray(value) ? findItemFault(value, (item) => findFault(item, plan.item, depth + 1)) : undefined;
    case "tagged": {
      const variant = isObject(value) ? plan.variants.get(value[plan.tag]) : undefined;
      return variant === undefined ? undefined : findFault(value, variant, depth);
    }
    case "object":
      return isObject(value) ? findMemberFault(value, plan, depth) : undefined;
    default:
      return plan satisfies never;
  }
}

function findMemberFault(
  value: Readonly<Record<string, unknown>>,
  plan: Extract<Plan, { kind: "object" }>,
  depth: number,
): Fault | undefined {
  if (!isPlain(value)) return { path: "", why: `is ${describe(value)}, not a plain object` };
  for (const [name, found] of Object.entries(value)) {
    const member = plan.members.get(name);
    let fault: Fault | undefined;
    if (member === undefined) {
      const why = "is not described by AG-UI 1.0; use `metadata`, CUSTOM or RAW";
      fault = plan.open ? findNotJson(found, depth + 1) : { path: "", why, is: "undescribed" };
    } else if (found === null && member.optional) {
      fault = { path: "", why: "is null; leave an optional member out", is: "null" };
    } else if (found !== undefined) {
      fault = findFault(found, member.plan, depth + 1);
    }
    if (fault !== undefined) return within(name, fault);
  }
  return undefined;
}

/** The application's own payload: whatever JSON holds without loss, and nothing that `JSON.stringify` would change or drop. */
function findNotJson(value: unknown, depth: number): Fault | undefined {
  switch (typeof value) {
    case "string":
    case "boolean":
      return undefined;
    case "number":
      return Number.isFinite(value) ? undefined : { path: "", why: `is ${value}, which JSON cannot hold` };
    case "object":
      break;
    default:
      return { path: "", why: `is ${describe(value)}, which JSON cannot hold` };
  }
  if (value === null) return undefined;
  if (depth > MAX_JSON_DEPTH)
    return { path: "", why: `nests deeper than ${MAX_JSON_DEPTH} levels, or contains itself` };
  if (Array.isArray(value)) return findItemFault(value, (item) => findNotJson(item, depth + 1));
  if (!isPlain(value) || "toJSON" in value) return { path: "", why: `is ${describe(value)}, which JSON would change` };
  for (const [key, member] of Object.entries(value)) {
    const fault =
      key === "__proto__"
        ? { path: "", why: "is a key that changes prototypes; rename it" }
        : findNotJson(member, depth + 1);
    if (fault !== undefined) return within(key, fault);
  }
  return undefined;
}

function findItemFault(items: readonly unknown[], find: (item: unknown) => Fault | undefined): Fault | undefined {
  for (let i = 0; i < items.length; i++) {
    const fault = find(items[i]);
    if (fault !== undefined) return within(String(i), fault);
  }
  return undefined;
}

function within(key: string, fault: Fault): Fault {
  return { ...fault, path: `/${escapePointer(key)}${fault.path}` };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Also of another realm: made from braces, so it inherits nothing but what every object does. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null;
}

function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 80));
  if (typeof value === "object" && value !== null) {
    const name: unknown = value.constructor?.name;
    return typeof name === "string" ? `an instance of ${name}` : "an object";
  }
  return typeof value === "bigint" ? "a BigInt" : `a value of type ${typeof value}`;
}

function describeBadId(id: string): string {
  if (id === "") return "is an empty id";
  if (id.length > MAX_ID_LENGTH) return `is an id of ${id.length} characters; ${MAX_ID_LENGTH} are allowed`;
  return "is an id with a control character or a lone surrogate";
}

// ── Plans, read from the schemas once

const ID_MEMBERS: ReadonlySet<string> = new Set([
  ...["id", "messageId", "toolCallId", "entityId", "threadId", "runId", "subagentRunId", "interruptId"],
  ...["parentMessageId", "parentRunId", "parentSubagentRunId", "parentToolCallId"],
  ...["interruptIds", "pendingToolCallIds"],
]);

let eventPlans: ReadonlyMap<unknown, Plan> | undefined;

function events(): ReadonlyMap<unknown, Plan> {
  if (eventPlans === undefined) {
    const plan = planOf(EventSchema, "");
    eventPlans = plan.kind === "tagged" ? plan.variants : new Map();
  }
  return eventPlans;
}

/** As much of a zod schema's definition as is read here. */
interface ZodLike {
  readonly def: {
    readonly type: string;
    readonly innerType?: unknown;
    readonly in?: unknown;
    readonly element?: unknown;
    readonly shape?: Readonly<Record<string, unknown>>;
    readonly options?: readonly unknown[];
    readonly discriminator?: string;
    readonly values?: readonly unknown[];
  };
  meta(): { readonly specOpen?: unknown } | undefined;
}

function isZod(schema: unknown): schema is ZodLike {
  return typeof schema === "object" && schema !== null && "def" in schema && "meta" in schema;
}

function planOf(schema: unknown, name: string): Plan {
  if (!isZod(schema)) throw new TypeError(`@ag-ui/core describes "${name}" in a way that is not known here`);
  const { def } = schema;
  switch (def.type) {
    case "optional":
    case "nullable":
    case "default":
      return planOf(def.innerType, name);
    case "pipe":
      return planOf(def.in, name);
    case "array":
      return { kind: "list", item: planOf(def.element, name) };
    case "string":
      return { kind: ID_MEMBERS.has(name) ? "id" : "leaf" };
    case "any":
    case "custom":
      return { kind: "json" };
    case "object": {
      const members = Object.entries(def.shape ?? {}).map(([key, member]): [string, Member] => [
        key,
        { plan: planOf(member, key), optional: isOptional(member) },
      ]);
      return { kind: "object", open: schema.meta()?.specOpen === true, members: new Map(members) };
    }
    case "union": {
      const plans = (def.options ?? []).map((option) => planOf(option, name));
      const tag = def.discriminator;
      // The only other union is text or a list of parts.
      if (tag === undefined) return plans.find((plan) => plan.kind === "list") ?? { kind: "leaf" };
      const tags = (def.options ?? []).map((option) => (isZod(option) ? option.def.shape?.[tag] : undefined));
      const variants = tags.flatMap((literal, i): [unknown, Plan][] => {
        const plan = plans[i];
        return isZod(literal) && plan !== undefined ? (literal.def.values ?? []).map((value) => [value, plan]) : [];
      });
      return { kind: "tagged", tag, variants: new Map(variants) };
    }
    default:
      return { kind: "leaf" };
  }
}

function isOptional(schema: unknown): boolean {
  return isZod(schema) && (schema.def.type === "optional" || schema.def.type === "default");
}
