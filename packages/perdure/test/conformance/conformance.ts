/**
 * Holds the verifier, the encoding, the reducer and the reading of requests against the official AG-UI 1.1 streams. A finding is a
 * sentence; none means conformant. Reading files and reporting are the caller's.
 */
import { type AGUIEvent, type AGUIEventType, event, type Message } from "../../src/protocol/events.ts";
import { normaliseInput } from "../../src/protocol/input.ts";
import { type Json, jsonEqual } from "../../src/protocol/json.ts";
import { apply, PatchError } from "../../src/protocol/patch.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { encodeSse } from "../../src/protocol/sse.ts";
import { newWire, ProtocolError, verify, verifyEnd, type Wire } from "../../src/protocol/verify.ts";
import { CLIENT_ONLY, type Class, FATAL, LEGAL, type Refusal } from "./classes.ts";

/** One file of `streams/`; its README says what the members mean. */
export interface Fixture {
  readonly name: string;
  readonly stream: readonly unknown[];
  readonly input?: { readonly messages?: readonly Message[] };
  readonly expect: {
    readonly messageCount?: number;
    readonly messages?: Json;
    readonly state?: Json;
    readonly runError?: true | string;
    readonly eventTypes?: readonly string[];
    readonly eventPaths?: { readonly [path: string]: Json };
    readonly request?: { readonly [member: string]: Json };
    readonly requestAbsentPaths?: readonly string[];
  };
}

/** One case of `null-omission.json`. */
export interface NullCase {
  readonly name: string;
  readonly input: { readonly type: AGUIEventType };
  readonly expected: Json;
}

/** How the named stream is sorted; undefined for one that nobody has sorted yet. */
export function classOf(name: string): Class | undefined {
  const found = [LEGAL, FATAL, CLIENT_ONLY].flatMap((classes) => (Object.hasOwn(classes, name) ? [classes[name]] : []));
  if (found.length > 1) throw new Error(`stream "${name}" is sorted twice`);
  return found[0];
}

/** Streams that are in no class, classes that name no stream. */
export function findUnsorted(names: readonly string[]): string[] {
  const sorted = [LEGAL, FATAL, CLIENT_ONLY].flatMap((classes) => Object.keys(classes));
  return [
    ...names.filter((name) => classOf(name) === undefined).map((name) => `stream "${name}" is in no class`),
    ...sorted.filter((name) => !names.includes(name)).map((name) => `class "${name}" names no stream`),
  ];
}

/** What is wrong with our handling of a stream. */
export function checkStream(fixture: Fixture, kind: Class): string[] {
  const findings = checkVerdict(fixture, kind.refused, false);
  if (kind.refusedStrictly !== undefined) findings.push(...checkVerdict(fixture, kind.refusedStrictly, true));
  if (kind.unappliable !== undefined) findings.push(...checkUnappliable(fixture, kind.unappliable));
  const read = kind.refused === undefined ? fixture.stream : kind.read?.(fixture.stream);
  if (read !== undefined) findings.push(...checkResult(fixture, read.map(overTheWire), kind.refused === undefined));
  return [...findings, ...checkRequest(fixture, kind)];
}

/** What is wrong with how we leave members out. */
export function checkNullCase({ input, expected }: NullCase): string[] {
  const { type, ...fields } = input;
  // The file's events are as loose as our constructor's own input; what comes out is checked.
  const made = overTheWire(event(type, fields as never));
  const findings = jsonEqual(made as unknown as Json, expected) ? [] : [`written as ${JSON.stringify(made)}`];
  const refused = refusalOf(() => checkShape(made));
  return refused === undefined ? findings : [...findings, `refused by checkShape: ${refused.message}`];
}

function checkVerdict({ stream, input }: Fixture, expected: Refusal | undefined, strict: boolean): string[] {
  let wire: Wire = newWire({ strict, messages: input?.messages ?? [] });
  const mode = strict ? " in strict mode" : "";
  for (const [at, one] of stream.entries()) {
    const refused = refusalOf(() => {
      wire = verify(wire, checkShape(one));
    });
    if (refused === undefined && at === expected?.at)
      return [`event ${at} is accepted${mode}, not refused as "${expected.rule}"`];
    if (refused === undefined) continue;
    if (at !== expected?.at || refused.rule !== expected.rule)
      return [`event ${at} is refused${mode}: ${refused.message}`];
    const type = (one as { type?: unknown }).type;
    return refused.event?.type === type
      ? []
      : [`the error about event ${at} names ${refused.event?.type}, not that event`];
  }
  if (expected !== undefined) return [`the stream has no event ${expected.at}`];
  const unended = refusalOf(() => verifyEnd(wire));
  return unended === undefined ? [] : [`its end is refused: ${unended.message}`];
}

function checkUnappliable({ stream }: Fixture, { at, operation }: { at: number; operation: number }): string[] {
  const events = stream.map(overTheWire);
  const before = events.slice(0, at).reduce(reduce, newTranscript());
  const delta = events[at];
  if (delta?.type !== "STATE_DELTA") return [`event ${at} is no STATE_DELTA`];
  try {
    apply(before.state, delta.delta);
    return [`the patch of event ${at} is applied`];
  } catch (error) {
    if (error instanceof PatchError && error.index === operation) return [];
    return [`the patch of event ${at} fails otherwise: ${String(error)}`];
  }
}

/** What is wrong with how we read the request that the client is expected to send, and the messages that it began with. */
function checkRequest({ input, expect }: Fixture, { upgrades }: Class): string[] {
  const read = (more: object) => normaliseInput({ threadId: "t", runId: "r", messages: [], ...more });
  const sent = read(expect.request ?? {});
  const findings = sent.warnings.map((warning) => `its request gives the warning: ${warning}`);
  if (!holds(sent.input, expect.request ?? {})) findings.push(`its request is read as ${JSON.stringify(sent.input)}`);
  for (const path of expect.requestAbsentPaths ?? []) {
    if (valueAt(sent.input, path) !== undefined) findings.push(`its request is read with ${path}`);
  }
  const began = read({ messages: input?.messages ?? [] }).input;
  if (upgrades && !holds(began, expect.request)) findings.push(`its input is read as ${JSON.stringify(began)}`);
  return findings;
}

/** What the application holds after the stream, as `expect` wants it. */
function checkResult({ input, expect, stream }: Fixture, events: readonly AGUIEvent[], whole: boolean): string[] {
  const findings: string[] = [];
  const { messages, state } = events.reduce(reduce, newTranscript({ messages: input?.messages ?? [] }));
  if (whole && !jsonEqual(events as unknown as Json, stream as Json)) findings.push("encoding it changes it");
  if (expect.messageCount !== undefined && messages.length !== expect.messageCount) {
    findings.push(`${messages.length} messages, not ${expect.messageCount}`);
  }
  if (expect.messages !== undefined && !holds(messages, expect.messages)) {
    findings.push(`messages are ${JSON.stringify(messages)}`);
  }
  // 0 and null are states too.
  if ("state" in expect && !holds(state, expect.state)) findings.push(`the state is ${JSON.stringify(state)}`);
  if (expect.runError !== undefined) {
    const errors = events.flatMap((one) => (one.type === "RUN_ERROR" ? [one.message] : []));
    const isThere = expect.runError === true ? errors.length > 0 : errors.includes(expect.runError);
    if (!isThere) findings.push(`RUN_ERRORs are ${JSON.stringify(errors)}`);
  }
  // Chunks reach an application spelled out; whatever else is sent reaches it as it was sent.
  const types = events.map((one) => one.type);
  const hasChunks = types.some((type) => type.endsWith("_CHUNK"));
  if (expect.eventTypes !== undefined && !hasChunks && types.join() !== expect.eventTypes.join()) {
    findings.push(`the events are ${types.join(", ")}`);
  }
  for (const [path, value] of Object.entries(expect.eventPaths ?? {})) {
    const found = valueAt(events, path);
    if (!holds(found, value)) findings.push(`${path} is ${JSON.stringify(found)}`);
  }
  return findings;
}

function valueAt(value: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((parent, key) => Reflect.get(Object(parent), key), value);
}

/** Objects may have more members than asked for; lists have the same length and order. */
function holds(found: unknown, asked: unknown): boolean {
  if (Array.isArray(asked)) {
    return Array.isArray(found) && found.length === asked.length && asked.every((item, i) => holds(found[i], item));
  }
  if (typeof asked !== "object" || asked === null) return found === asked;
  if (typeof found !== "object" || found === null || Array.isArray(found)) return false;
  return Object.entries(asked).every(([key, member]) => holds(Reflect.get(found, key), member));
}

/** The event that a reader gets of what we write. */
function overTheWire(one: unknown): AGUIEvent {
  const frame = encodeSse(one as AGUIEvent);
  const [, data] = /^data: (.*)\n\n$/.exec(frame) ?? [];
  if (data === undefined) throw new Error(`not one SSE frame: ${JSON.stringify(frame)}`);
  return JSON.parse(data) as AGUIEvent;
}

function refusalOf(body: () => void): ProtocolError | undefined {
  try {
    body();
    return undefined;
  } catch (error) {
    if (error instanceof ProtocolError) return error;
    throw error;
  }
}
