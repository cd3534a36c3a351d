import type { RunAgentInput } from "@ag-ui/core";
import { PerdureError } from "./errors.ts";
import { idProblem } from "./ids.ts";
import { INPUT_SHAPE, type Member, type Shape } from "./input-shape.ts";
import { escapePointer, isJsonObject, type Json, jsonEqual, NotJsonError, toJson } from "./json.ts";
import { isBinaryPart, upgradeBinaryPart } from "./legacy-parts.ts";
import { describeIssues, type Issue } from "./validate.ts";

/**
 * From a request's body to a RunAgentInput of AG-UI 1.0. The protocol has no such function; its shims work on what comes in to a client.
 *
 * 1. What an older or Python peer means is read as such: null for an absent optional member, missing `tools` and `context`, `thread_id` for
 *    `threadId`, `binary` parts. That costs nothing and says nothing.
 * 2. What is not known is dropped, with a warning that says where: members, content parts and sources of a later protocol.
 * 3. What is known and malformed is an error. Every issue is listed, by its place in the body as it was sent.
 * 4. Open JSON (state, forwardedProps, payloads, metadata, parameters, activity content) is the application's: it is never entered.
 *
 * Not a rule: that a legal request comes back as the same object. It is a copy, so nobody else can change it.
 */
export function normaliseInput(body: unknown): { readonly input: RunAgentInput; readonly warnings: readonly string[] } {
  const notes = new Notes();
  const input = new Reader(notes).read(INPUT_SHAPE, readBody(body), "");
  if (isJsonObject(input) && Array.isArray(input.messages)) {
    const read = { ...input, messages: refuseSharedIds(input.messages, notes) };
    // Each part of it was checked by the schema of that part; the tests check that the whole passes the whole schema.
    if (notes.issues.length === 0) return { input: read as unknown as RunAgentInput, warnings: notes.warnings };
  }
  throw new InputError(notes.issues);
}

/** A request's body that is not a RunAgentInput. */
export class InputError extends PerdureError {
  override readonly name = "InputError";
  constructor(
    /** All that is wrong, up to 100 of it; each `path` is a JSON Pointer into the body as it was sent. */
    readonly issues: readonly Issue[],
    options?: ErrorOptions,
  ) {
    super("INPUT_INVALID", `the request is not a RunAgentInput of AG-UI: ${describeIssues(issues)}`, options);
  }
}

function readBody(body: unknown): Json {
  try {
    return toJson(body, "the request");
  } catch (cause) {
    if (!(cause instanceof NotJsonError)) throw cause;
    throw new InputError([{ path: cause.path, message: `must not hold ${cause.found}` }], { cause });
  }
}

/** A hostile body can be wrong in a million places: that many notes would be an attack of their own. */
const MAX_NOTES = 100;

class Notes {
  readonly issues: Issue[] = [];
  readonly warnings: string[] = [];

  issue(path: string, message: string): void {
    if (this.issues.length < MAX_NOTES) this.issues.push({ path, message });
  }

  warn(path: string, what: string): void {
    if (this.warnings.length < MAX_NOTES) this.warnings.push(`${path}: ${what}`);
  }
}

/** A content part that nobody here can use. */
const SKIPPED = Symbol("skipped");
type Read = Json | typeof SKIPPED;

class Reader {
  constructor(private readonly notes: Notes) {}

  /** The value as the shape wants it; a malformed one is noted, and what is returned then is of no use. */
  read(shape: Shape, value: Json, path: string): Read {
    switch (shape.kind) {
      case "leaf": {
        const problem = shape.problem(value);
        if (problem !== undefined) this.notes.issue(path, problem);
        return value;
      }
      case "object":
        return isJsonObject(value)
          ? this.readObject(shape.members, value, path)
          : this.refuse(path, "an object", value);
      case "list":
        return Array.isArray(value) ? this.readList(shape.element, value, path) : this.refuse(path, "an array", value);
      case "textOrList":
        if (typeof value === "string") return value;
        return Array.isArray(value)
          ? this.read(shape.list, value, path)
          : this.refuse(path, "a string or an array", value);
      case "choice":
        return isJsonObject(value) ? this.readChoice(shape, value, path) : this.refuse(path, "an object", value);
    }
  }

  private readObject(
    members: ReadonlyMap<string, Member>,
    value: { readonly [key: string]: Json },
    path: string,
  ): Read {
    const result: Record<string, Json> = {};
    const seen = new Set<string>();
    let skipped = false;
    for (const [name, member] of members) {
      const key = Object.hasOwn(value, name) ? name : member.snake;
      const raw = Object.hasOwn(value, key) ? value[key] : undefined;
      seen.add(key);
      if (raw === undefined || (raw === null && member.optional)) {
        if (member.fallback) result[name] = member.fallback();
        else if (!member.optional) this.notes.issue(`${path}/${escapePointer(name)}`, "is missing");
        continue;
      }
      const at = `${path}/${escapePointer(key)}`;
      const read = this.read(member.shape, raw, at);
      if (read === SKIPPED) {
        skipped = true;
        continue;
      }
      const problem = member.isId && typeof read === "string" ? idProblem(read) : undefined;
      if (problem !== undefined) this.notes.issue(at, problem);
      result[name] = read;
    }
    for (const key of Object.keys(value)) {
      if (!seen.has(key)) this.notes.warn(`${path}/${escapePointer(key)}`, "unknown member, dropped");
    }
    return skipped ? SKIPPED : result;
  }

  private readList(element: Shape, values: readonly Json[], path: string): Json[] {
    const read: { readonly value: Json; readonly upgraded: boolean }[] = [];
    for (const [i, raw] of values.entries()) {
      const value = this.read(element, raw, `${path}/${i}`);
      if (value !== SKIPPED)
        read.push({ value, upgraded: element.kind === "choice" && element.isPart && isBinaryPart(raw) });
    }
    // A peer that talks to old and new servers sends a part in both forms: shown twice, it would be two pictures.
    const modern = read.filter(({ upgraded }) => !upgraded);
    return read
      .filter(({ value, upgraded }) => !upgraded || !modern.some((other) => isSamePart(other.value, value)))
      .map(({ value }) => value);
  }

  private readChoice(shape: Shape & { kind: "choice" }, value: { readonly [key: string]: Json }, path: string): Read {
    if (shape.isPart && isBinaryPart(value)) {
      const upgraded = upgradeBinaryPart(value, this.notes, path);
      return upgraded ?? SKIPPED;
    }
    const which = value[shape.by];
    const at = `${path}/${escapePointer(shape.by)}`;
    const option = shape.options.get(which);
    if (option) return this.read(option, value, path);
    if (which === undefined) this.notes.issue(at, "is missing");
    else if (shape.unknown === "skip" && typeof which === "string") {
      this.notes.warn(at, `"${which}" is not known here, so the content part is skipped`);
      return SKIPPED;
    } else this.notes.issue(at, `must be one of ${[...shape.options.keys()].join(", ")}`);
    return value;
  }

  private refuse(path: string, wanted: string, found: Json): Json {
    const kind = found === null ? "null" : Array.isArray(found) ? "an array" : `a ${typeof found}`;
    this.notes.issue(path, `must be ${wanted}, not ${kind === "a object" ? "an object" : kind}`);
    return found;
  }
}

function isSamePart(a: Json, b: Json): boolean {
  return isJsonObject(a) && isJsonObject(b) && a.type === b.type && jsonEqual(a.source, b.source);
}

/**
 * Message ids are unique in a thread (AG-UI 1.0, messages): the same message twice is one, two of one id cannot be told apart. What the client
 * holds twice of what a server has said, half-written and whole, is its copy: the first one stands for both.
 */
function refuseSharedIds(messages: readonly Json[], notes: Notes): Json[] {
  const first = new Map<string, number>();
  return messages.filter((message, i) => {
    const id = isJsonObject(message) ? message.id : undefined;
    if (typeof id !== "string") return true;
    const earlier = first.get(id);
    if (earlier === undefined) {
      first.set(id, i);
      return true;
    }
    if (jsonEqual(messages[earlier], message)) {
      notes.warn(`/messages/${i}`, `the same message as /messages/${earlier}, dropped`);
      return false;
    }
    if (isCopyOf(messages[earlier], message)) {
      notes.warn(`/messages/${i}`, `another version of /messages/${earlier}, dropped`);
      return false;
    }
    notes.issue(`/messages/${i}/id`, `is the id of another message already, of /messages/${earlier}`);
    return true;
  });
}

function isCopyOf(earlier: Json | undefined, message: Json): boolean {
  if (!isJsonObject(earlier) || !isJsonObject(message) || earlier.role !== message.role) return false;
  switch (message.role) {
    case "assistant":
    case "reasoning":
    case "activity":
      return true;
    case "tool":
      return earlier.toolCallId === message.toolCallId;
    default:
      return false;
  }
}
