/**
 * What a log holds: the one definition of every kind of entry. The types are inferred from the schemas, so what the compiler believes, what
 * is written and what is read cannot part.
 *
 * An entry is a *fact* (what happened) or a *frame* (an AG-UI event that a user interface was, or may be, shown). Only the store assigns `seq`
 * and `at`; they are columns, not part of the stored text. What an entry means is the fold's business, not this file's.
 *
 * 1. Text that was written is JSON and fits its schema; text that is read is checked again, because disks and hands change files.
 * 2. Schemas are strict: an unknown member is a fault, never dropped in silence. A newer version that adds one raises the store's schema version.
 * 3. Nothing is revived: what a reader gets is exactly what JSON gave back.
 */
import {
  AssistantMessageSchema,
  ContextSchema,
  DeveloperMessageSchema,
  InterruptSchema,
  JsonPatchOperationSchema,
  MessageSchema,
  ResumeEntrySchema,
  SystemMessageSchema,
  TokenUsageSchema,
  ToolMessageSchema,
  ToolSchema,
  UserMessageSchema,
} from "@ag-ui/core/schemas";
import { z } from "zod";
import { PerdureError } from "../protocol/errors.ts";
import type {
  AGUIEvent,
  Context,
  JsonPatchOperation,
  Message,
  ResumeEntry,
  TokenUsage,
  Tool,
  ToolMessage,
  Interrupt as WireInterrupt,
} from "../protocol/events.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { bytesOver, checkPayload, MAX_PAYLOAD_BYTES } from "../protocol/payload.ts";
import { ProtocolError } from "../protocol/rules.ts";
import { checkShape } from "../protocol/shape.ts";
import type { Hash, Path, Uid } from "../protocol/words.ts";
import { json, list, object, optional } from "./schema-parts.ts";

const word = <T extends string>() =>
  z.custom<T>((v) => typeof v === "string" && v !== "", "expected a non-empty string");
const count = z.int().nonnegative();
const time = z.number();
const price = z.number().nonnegative();

/** A part of the AG-UI wire, by the protocol's own schema, under the protocol's own type. */
function wire<T>(schema: z.ZodType) {
  return z.custom<T>().superRefine((value, context) => {
    for (const { message, path } of schema.safeParse(value).error?.issues ?? []) {
      context.addIssue({ code: "custom", message, path: [...path] });
    }
  });
}

/** By the one check of shapes that there is. Order is the verifier's, before the append. */
const event = z.custom<AGUIEvent>().superRefine((value, context) => {
  try {
    checkShape(value);
  } catch (fault) {
    if (!(fault instanceof ProtocolError)) throw fault;
    context.addIssue({ code: "custom", message: fault.message });
  }
});

const uid = word<Uid>();
const hash = word<Hash>();
/** The root lane is "". */
const path = z.custom<Path>((v) => typeof v === "string", "expected a path");
const patch = list(wire<JsonPatchOperation>(JsonPatchOperationSchema));
const usage = list(wire<TokenUsage>(TokenUsageSchema));
const error = object({ code: z.string(), message: z.string(), data: optional(json) });
const principal = object({ tenant: z.string(), subject: z.string(), scopes: list(z.string()) });

/** A message that a client may bring: its user's; where the agent takes them, system messages and the history of elsewhere. */
export type Heard = Exclude<Message, { readonly role: "reasoning" | "activity" }>;
const heard = wire<Heard>(
  z.discriminatedUnion("role", [
    ...[UserMessageSchema, SystemMessageSchema, DeveloperMessageSchema, AssistantMessageSchema, ToolMessageSchema],
  ] as const),
);

/** What a request added to its thread. */
const added = {
  messages: list(heard),
  results: list(wire<ToolMessage>(ToolMessageSchema)),
  resume: list(wire<ResumeEntry>(ResumeEntrySchema)),
};

const addedSchema = object(added);

const legRequest = object({
  runId: z.string(),
  ...added,
  tools: list(wire<Tool>(ToolSchema)),
  context: list(wire<Context>(ContextSchema)),
  state: json,
  forwardedProps: json,
  principal,
  protocolVersion: z.string().nullable(),
  parentRunId: optional(z.string()),
  /** Its messages were not the transcript that the thread shows: the leg begins with a MESSAGES_SNAPSHOT. */
  isBehind: z.literal(true).optional(),
});

const stepKind = z.enum([
  ...([
    "model",
    "tool",
    "client-tool",
    "custom",
    "ask",
    "sleep",
    "signal",
    "child",
    "race",
    "clock",
    "random",
  ] as const),
]);

/** Where a step's input stands. What a model wrote and what it read are stored once, elsewhere in the log. */
const inputRef = z.union([
  object({ value: json }),
  object({ call: object({ model: path, index: count }) }),
  object({ history: object({ upTo: z.int(), instructions: hash, tools: hash, settings: json }) }),
]);

/** A frame that the fold at its place gives back, byte for byte. */
const frameRef = z.discriminatedUnion("of", [
  object({ of: z.enum(["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"]), leg: count }),
  object({ of: z.literal("TOOL_CALL_RESULT"), path }),
  object({ of: z.literal("STATE_SNAPSHOT") }),
  object({
    of: z.literal("MESSAGES_SNAPSHOT"),
    without: optional(object({ path, n: count })),
    withdrawn: optional(list(z.string())),
  }),
  /** One frame of a child; or several deltas of one block, as one. */
  object({ of: z.literal("CHILD"), uid, from: count, to: count }),
]);

const interrupt = object({
  id: word<string>(),
  path,
  kind: z.enum([
    "approval",
    "question",
    "suspension",
    "unknown-write",
    "budget",
    "client-tool",
    "poisoned",
    "contract-changed",
    "diverged",
  ]),
  reason: z.string(),
  message: z.string(),
  toolCallId: optional(z.string()),
  /** The subagent that asks. */
  subagentRunId: optional(z.string()),
  schema: json,
  argsHash: hash.nullable(),
  audience: z.string().nullable(),
  expiresAt: time.nullable(),
  metadata: optional(json),
  /** What the tool that asks needs to go on, in whatever process. Nobody is shown it. */
  memo: optional(json),
});

const legOutcome = z.discriminatedUnion("type", [
  /** `resultOf`: the step whose output is the result, so that it is not stored twice. */
  object({
    type: z.literal("success"),
    result: optional(json),
    resultOf: optional(path),
    pendingToolCallIds: list(z.string()),
  }),
  object({ type: z.literal("cancelled") }),
  object({ type: z.literal("interrupt"), interrupts: list(wire<WireInterrupt>(InterruptSchema)) }),
  object({ type: z.literal("error"), error }),
]);

/** Where something stands in a value: member names and indices. */
const keys = list(z.union([z.string(), count]));

/** Where a text of a transcript stands once more. What is no text there stands for its JSON. */
const ownTextRef = z.union([
  object({ brought: count, in: keys }),
  object({ output: path, in: keys }),
  object({ result: path }),
]);

/** Or in the log of a child. `shown`: what stands there; not stored, whoever loads the entry puts it in. */
const textRef = z.union([ownTextRef, object({ child: uid, of: ownTextRef, shown: optional(z.string()) })]);

/** A visible message: one of the thread before the run, one that a request has brought, or one whose long texts stand elsewhere in the log. */
const transcriptItem = z.union([
  object({ kept: z.union([z.literal("all"), object({ from: count, to: count })]) }),
  object({ brought: count }),
  object({ message: wire<Message>(MessageSchema), texts: list(object({ at: keys, of: textRef })) }),
]);

/** Limits of a budget: `usd` in nano-dollars, `time` in milliseconds. One that is left out is none. */
const amounts = object({
  ...{ steps: optional(price), calls: optional(price), tokens: optional(price) },
  ...{ usd: optional(price), time: optional(price) },
  perTool: optional(z.record(z.string(), price).readonly()),
});

const fact = <K extends string, S extends z.core.$ZodShape>(kind: K, shape: S) =>
  object({ kind: z.literal(kind), ...shape });

const stepFinished = {
  kind: z.literal("step.finished"),
  path,
  via: z.enum(["call", "resume", "reconcile", "answer", "dedup", "client"]),
  usage: optional(usage),
  /** What a child that had an allotment has used, all below it included, and what was added to its limits. */
  spent: optional(
    object({
      ...{ steps: price, calls: price, tokens: price, usd: price, time: price },
      ...{ perTool: z.record(z.string(), price).readonly(), raised: amounts, isOverrun: optional(z.literal(true)) },
    }),
  ),
};

const factSchema = z.discriminatedUnion("kind", [
  fact("run.started", {
    uid,
    agent: z.string(),
    definition: hash,
    owner: object({ tenant: z.string(), subject: z.string() }),
    thread: z.string().nullable(),
    turn: count,
    labels: z.record(z.string(), z.string()).readonly(),
    parent: optional(object({ uid, path })),
    /** What its parent's budget has left to it, and the scope that whoever raises that needs. */
    allotted: optional(object({ limits: amounts, audience: z.string().nullable() })),
    /** `history`: the last entry of what it has from there. */
    forkedFrom: optional(object({ uid, seq: count, history: optional(count) })),
    /** In place of the agent's own; the model by its name among the agent's `models`. */
    ...{ instructions: optional(z.string()), model: optional(z.string()) },
  }),
  /** In one batch with its RUN_STARTED. `request` is `null` for a headless leg. */
  fact("leg.started", { leg: count, runId: z.string(), request: legRequest.nullable() }),
  /** In one batch with its terminal frame. */
  fact("leg.finished", { leg: count, outcome: legOutcome, usage }),
  /** In one batch with what comes first: attempt, interrupt, key wait or end. */
  fact("step.started", {
    path,
    step: stepKind,
    name: z.string(),
    effect: z.enum(["read", "idempotent", "write"]),
    input: inputRef,
    contract: hash.nullable(),
    toolCallId: optional(z.string()),
  }),
  /** Durable before its body runs. */
  fact("step.attempt", {
    path,
    n: count,
    epoch: count,
    phase: z.enum(["call", "resume"]),
    key: z.string().nullable(),
    edited: optional(json),
    deadline: time.nullable(),
    /** Which model is asked. */
    model: optional(object({ provider: z.string(), modelId: z.string() })),
    /** The most that a model call under a budget may use. Tokens; `rates` in USD per million. `isRest`: its output is all that was left. */
    reserved: optional(
      object({
        input: count,
        output: count,
        rates: optional(
          object({
            ...{ input: price, output: price },
            ...{ cacheRead: optional(price), cacheWrite: optional(price) },
          }),
        ),
        isRest: optional(z.literal(true)),
      }),
    ),
    /** Of a child: what it may use of this run's budget. */
    allotted: optional(amounts),
  }),
  /** It waits for a business key that another step holds, and gives up at `until`. Once per step, for the holder that it found. */
  fact("step.waiting", { path, holder: object({ uid, path }), until: time }),
  /** `retryAt` of an unknown one is when "not applied" may be believed. */
  fact("step.failed", { path, n: count, error, applied: z.enum(["no", "unknown"]), retryAt: time.nullable() }),
  z.discriminatedUnion("status", [
    /** `patch` is relative to the committed state at this entry; `dropped` is what found its target gone. */
    object({ ...stepFinished, status: z.literal("ok"), output: json, patch, dropped: optional(patch) }),
    /** `applied: "yes"`: done, but its output could not be recorded. */
    object({
      ...stepFinished,
      status: z.literal("error"),
      error,
      applied: z.enum(["no", "yes", "unknown"]),
      output: optional(json),
    }),
    object({ ...stepFinished, status: z.literal("cancelled") }),
  ]),
  /** Published by loop code. */
  fact("state", { path, patch }),
  fact("memo", { transformer: z.string(), value: json }),
  /** `patch` is what a suspended attempt did to the state; `dropped` is what found its target gone. */
  fact("interrupt.opened", { interrupt, patch: optional(patch), dropped: optional(patch) }),
  fact("interrupt.answered", {
    id: z.string(),
    status: z.enum(["resolved", "cancelled", "expired", "withdrawn"]),
    payload: optional(json),
    by: z.string(),
  }),
  fact("inbox.taken", {
    item: z.enum(["request", "answer", "cancel", "abandon", "message", "signal", "raise", "accept"]),
    payload: json,
    by: z.string(),
  }),
  fact("run.parked", { why: z.string() }),
  fact("run.resumed", { why: z.string(), epoch: count }),
  /** Stands for the frames of a finished run, which are gone; `transcript.ts` says how. `shown`: where clients hold another state than the committed one. */
  fact("transcript", { messages: list(transcriptItem), shown: optional(json) }),
  /** `outputOf`: the step whose output (of a model step, its text) is that of the run, so that it is not stored twice. */
  fact("run.finished", {
    outcome: z.enum(["success", "cancelled", "failed", "abandoned"]),
    output: optional(json),
    outputOf: optional(path),
    error: optional(error),
    unresolved: list(path),
  }),
]);

/**
 * `bridge`: it is none of those that the code of a loop has emitted. It closes what is open when a leg ends, or opens it again when the code goes on.
 * `past`: the code has emitted it in the run that this one was forked from. It is held against that here, and nobody is shown it.
 */
const eventFrame = object({
  ...{ kind: z.literal("frame"), path, event },
  ...{ bridge: optional(z.literal(true)), past: optional(z.literal(true)) },
});
/** `shown`: what a child has shown at a `CHILD` reference. It is kept in the child's log alone; whoever loads this one puts it in. */
const refFrame = object({ kind: z.literal("frame"), path, ref: frameRef, shown: optional(event) });

/** What a request added: its new messages, results of client tools, answers. */
export type Added = z.output<typeof addedSchema>;
/** What a request asks of the leg that it begins. */
export type LegRequest = z.output<typeof legRequest>;
export type StepKind = z.output<typeof stepKind>;
export type InputRef = z.output<typeof inputRef>;
export type FrameRef = z.output<typeof frameRef>;
/** Where a text of a transcript stands in the log of its own run. */
export type OwnTextRef = z.output<typeof ownTextRef>;
/** A durable question. Rows of kind `client-tool` are calls that the client runs; they are never listed as interrupts. */
export type Interrupt = z.output<typeof interrupt>;
export type InterruptKind = Interrupt["kind"];
export type LegOutcome = z.output<typeof legOutcome>;
type AnyFact = z.output<typeof factSchema>;
export type FactKind = AnyFact["kind"];
/** What happened: any fact, or the one of kind `K`. */
export type Fact<K extends FactKind = FactKind> = Extract<AnyFact, { kind: K }>;
/** How a step ended. */
export type StepEnd =
  Fact<"step.finished"> extends infer F
    ? F extends { status: string }
      ? Omit<F, "kind" | "path" | "via" | "usage" | "spent">
      : never
    : never;
/** What a user interface was, or may be, shown: an event, or what it is derived from. */
export type Frame = z.output<typeof eventFrame> | z.output<typeof refFrame>;
/** What a driver may say. */
export type NewEntry = Fact | Frame;
/** What the log knows: `seq` counts from 0 without a gap, `at` is the store's clock in ms. */
export type Entry = NewEntry & { readonly seq: number; readonly at: number };

/** Written out for frames: one is made for each that a model streams, twice, and spreading takes three times the room. */
export function entryAt(entry: NewEntry, seq: number, at: number): Entry {
  if (entry.kind !== "frame") return { ...entry, seq, at };
  const { kind, path } = entry;
  if ("event" in entry) {
    const { event } = entry;
    if (entry.past !== undefined) return { ...entry, seq, at };
    return entry.bridge === undefined ? { kind, path, event, seq, at } : { kind, path, event, bridge: true, seq, at };
  }
  const { ref, shown } = entry;
  return shown === undefined ? { kind, path, ref, seq, at } : { kind, path, ref, shown, seq, at };
}

/** Where an entry stands. */
export interface Place {
  /** The run, where it is known. */
  readonly run: Uid | null;
  readonly seq: number | null;
}

/** An entry that cannot be written, or read back. */
export class EntryError extends PerdureError {
  override readonly name = "EntryError";
  constructor(
    doing: "written" | "read",
    /** The run it belongs to, where it is known. */
    readonly run: Uid | null,
    /** Its place in the run's log, where it is known. */
    readonly seq: number | null,
    /** JSON Pointer to the part that is wrong; "" is the entry itself. */
    readonly where: string,
    readonly why: string,
  ) {
    const place = `${seq === null ? "entry" : `entry ${seq}`}${run === null ? "" : ` of run ${run}`}`;
    const next =
      doing === "read"
        ? "the file was damaged or changed by hand: restore it from a backup"
        : "this is a bug in the code that appends it";
    super(
      doing === "read" ? "ENTRY_UNREADABLE" : "ENTRY_INVALID",
      `${place} cannot be ${doing}: ${why}${where === "" ? "" : ` at "${where}"`}; ${next}`,
    );
  }
}

/** An entry as whoever reads the log gets it, and the text under which the store keeps it. */
export interface Encoded {
  readonly entry: NewEntry;
  readonly text: string;
}

/**
 * Makes what the store keeps of an entry.
 *
 * @throws {@link EntryError} when it does not fit its schema
 * @throws `NotJsonError` when a payload cannot be written as JSON
 * @throws {@link PayloadTooLargeError} when one is over 4 MiB
 */
export function encodeEntry(entry: NewEntry): Encoded {
  if (entry.kind === "frame" && "shown" in entry) {
    const { shown: _, ...kept } = entry;
    return { entry, text: encodeEntry(kept).text };
  }
  // What the shape check lets through is JSON as it stands.
  if (isPlainFrame(entry)) return encoded(entry, entry);
  const plain = toJson(entry, `entry ${entry.kind}`);
  const checked = check(plain, (where, why) => new EntryError("written", null, null, where, why));
  if (checked.kind !== "transcript" || !checked.messages.some(hasShown)) return encoded(checked, plain);
  return encoded(checked, { ...checked, messages: checked.messages.map(withoutShown) });
}

type TranscriptItem = z.output<typeof transcriptItem>;

function hasShown(item: TranscriptItem): boolean {
  return "texts" in item && item.texts.some(({ of }) => "child" in of && of.shown !== undefined);
}

function withoutShown(item: TranscriptItem): TranscriptItem {
  if (!("texts" in item)) return item;
  const texts = item.texts.map(({ at, of }) => ({ at, of: "child" in of ? { child: of.child, of: of.of } : of }));
  return { ...item, texts };
}

function encoded(entry: NewEntry, plain: unknown): Encoded {
  const text = JSON.stringify(plain);
  if (bytesOver(text, MAX_PAYLOAD_BYTES) !== null) checkEntry(entry);
  return { entry, text };
}

/** The members whose own members are payloads. */
const ENVELOPES: ReadonlySet<string> = new Set(["request", "interrupt", "event"]);

/** Costs little where an entry is small. @throws {@link PayloadTooLargeError} for a payload that the log does not take */
export function checkEntry(entry: NewEntry): void {
  checkMembers(entry, `a ${entry.kind}`);
}

/** @throws {@link PayloadTooLargeError} for what the log would not take of the leg that it begins */
export function checkRequest(request: LegRequest): void {
  checkMembers(request, "the request");
}

function checkMembers(of: object, what: string): void {
  // As a JSON value: what is none is told by the schema.
  for (const [member, value] of Object.entries(of as { readonly [member: string]: Json | undefined })) {
    if (ENVELOPES.has(member) && isJsonObject(value)) checkMembers(value, `the ${member}`);
    else checkPayload(value, `${member} of ${what}`);
  }
}

/**
 * The entry that a stored text holds.
 *
 * @param place - where it stood, for the entry and for the error
 * @throws {@link EntryError} when it is not JSON, or does not fit its schema
 */
export function parseEntry(text: string, place: { run: Uid; seq: number; at: number }): Entry {
  let plain: unknown;
  try {
    plain = JSON.parse(text);
  } catch {
    throw new EntryError("read", place.run, place.seq, "", `its text is not JSON (${text.length} characters)`);
  }
  return entryOf(plain, place);
}

/** The entry that a value is which was read. @throws {@link EntryError} when it does not fit its schema */
export function entryOf(plain: unknown, place: { run: Uid; seq: number; at: number }): Entry {
  const fault = (where: string, why: string) => new EntryError("read", place.run, place.seq, where, why);
  return { ...check(plain, fault), seq: place.seq, at: place.at };
}

function check(plain: unknown, fault: (where: string, why: string) => EntryError): NewEntry {
  if (isPlainFrame(plain)) return plain;
  const { data, error: failed } = schemaOf(plain).safeParse(plain);
  if (failed === undefined) return data;
  throw fault(...firstIssue(failed));
}

/** A frame that holds a well-formed event, nearly all of a log, by hand: through the schema it takes five times as long. */
function isPlainFrame(plain: unknown): plain is Frame {
  if (!isJsonObject(plain) || plain.kind !== "frame" || typeof plain.path !== "string" || !("event" in plain))
    return false;
  let members = 0;
  for (const _ in plain) members++;
  if (members !== 3) return false;
  try {
    checkShape(plain.event);
    return true;
  } catch {
    return false; // the schema says what is wrong
  }
}

/** The kind decides, so that an error speaks of the kind that was meant. */
function schemaOf(plain: unknown): z.ZodType<NewEntry> {
  if (!isJsonObject(plain) || plain.kind !== "frame") return factSchema;
  return "ref" in plain ? refFrame : eventFrame;
}

/** Pointer and reason of the first thing that is wrong. */
function firstIssue(failed: z.ZodError): [where: string, why: string] {
  const [issue] = failed.issues;
  if (issue === undefined) return ["", failed.message];
  return [issue.path.map((key) => `/${String(key)}`).join(""), issue.message];
}

/** What `text` says a request is. @throws {@link EntryError} */
export function parseRequest(plain: unknown, place: Place): LegRequest {
  return parsePart(legRequest, plain, place);
}

/** What `text` says a request added. @throws {@link EntryError} */
export function parseAdded(plain: unknown, place: Place): Added {
  return parsePart(addedSchema, plain, place);
}

/** The question that a stored row holds. @throws {@link EntryError} */
export function parseInterrupt(plain: unknown, place: Place): Interrupt {
  return parsePart(interrupt, plain, place);
}

function parsePart<T>(schema: z.ZodType<T>, plain: unknown, place: Place): T {
  const { data, error: failed } = schema.safeParse(plain);
  if (failed === undefined) return data;
  throw new EntryError("read", place.run, place.seq, ...firstIssue(failed));
}
