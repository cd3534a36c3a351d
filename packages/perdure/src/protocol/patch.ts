/**
 * JSON Patch (RFC 6902) for state and activities: `diff` finds a patch, `apply` runs one. Shadow copies, the log's fold, the reducer and the
 * verifier all go through here, so a patch that leaves this process has already been applied once, by the code below.
 *
 * 1. Nothing that is handed in is ever changed. A result shares with its input every part that the patch does not name.
 * 2. All or nothing: a patch that fails at its last operation has had no effect.
 * 3. Where the stock client's applier (fast-json-patch 3.1.1, validating) accepts a patch and the RFC agrees, the result is the same. Where it
 *    is laxer than the RFC (an index `01`, a `move` or `copy` to beyond the end), the patch is refused here: a server that takes its own
 *    mistake for a patch lets the next client find it.
 * 4. `__proto__`, and `prototype` under `constructor`, are refused in every pointer, as the client does.
 *
 * Removing the root leaves `null`: the RFC does not say, the client does that, and state that both ends agree on is the point.
 */
import { PerdureError } from "./errors.ts";
import type { JsonPatchOperation } from "./events.ts";
import { isJsonObject, type Json, jsonEqual } from "./json.ts";

export { diff } from "./diff.ts";
export { ownJson } from "./own-json.ts";
export { type Rebased, rebase } from "./rebase.ts";
export { estimateBytes, longerThan } from "./size.ts";

/** Operations in the order in which they are applied. */
export type Patch = readonly JsonPatchOperation[];

/** A patch that cannot be applied to the document it was given. */
export class PatchError extends PerdureError {
  override readonly name = "PatchError";
  constructor(
    /** Position in the patch of the operation that failed. */
    readonly index: number,
    readonly operation: JsonPatchOperation,
    /** Why, for example `there is no member "b"`. */
    readonly reason: string,
  ) {
    super(
      "PATCH_FAILED",
      `operation ${index} of the patch ${describe(operation)} cannot be applied: ${reason}; the document is as it was, send it whole`,
    );
  }
}

/** Without the value, which may be large and may be private. */
function describe(operation: unknown): string {
  return String(JSON.stringify(operation, ["op", "from", "path"])).slice(0, 200);
}

/**
 * The document after `patch`. Only containers on the way to a change are copied, each once however many operations pass through it.
 *
 * @throws {@link PatchError} when an operation is malformed or does not fit the document
 */
export function apply(doc: Json, patch: Patch): Json {
  if (patch.length === 0) return doc;
  const workpiece = new Workpiece(doc);
  for (const [index, operation] of patch.entries()) {
    try {
      workpiece.run(operation);
    } catch (error) {
      throw error instanceof Misfit ? new PatchError(index, operation, error.message) : error;
    }
  }
  return workpiece.root;
}

/** Why one operation does not fit; `apply` says which it was. */
class Misfit extends Error {}

type Container = Json[] | { [key: string]: Json };

class Workpiece {
  /** Containers made by this very patch and reachable by one way only: these may be changed in place. */
  #own = new Set<Json>();

  constructor(public root: Json) {}

  run(operation: JsonPatchOperation): void {
    if (!isJsonObject(operation as unknown)) misfit("it is no object");
    const path = parsePointer(operation.path, "path");
    switch (operation.op) {
      case "add":
        this.#add(path, givenValue(operation));
        return;
      case "replace":
        this.#replace(path, givenValue(operation));
        return;
      case "remove":
        this.#remove(path);
        return;
      case "test":
        if (!jsonEqual(this.#get(path), givenValue(operation))) misfit("the value there is another one");
        return;
      case "copy": {
        const value = this.#get(parsePointer(operation.from, "from"));
        // From here on it hangs in two places: to change one in place would change the other.
        this.#own.clear();
        this.#add(path, value);
        return;
      }
      case "move": {
        const from = parsePointer(operation.from, "from");
        if (from.length <= path.length && from.every((token, i) => token === path[i])) {
          this.#get(from);
          if (from.length === path.length) return;
          misfit("a value cannot be moved into itself");
        }
        this.#add(path, this.#remove(from));
        return;
      }
      default:
        misfit("there is no such operation");
    }
  }

  #get(tokens: readonly string[]): Json {
    let here = this.root;
    for (const token of tokens) here = childOf(here, token);
    return here;
  }

  #add(tokens: readonly string[], value: Json): void {
    const [parent, key] = this.#open(tokens);
    if (parent === undefined) this.root = value;
    else if (!Array.isArray(parent)) parent[key] = value;
    else parent.splice(key === "-" ? parent.length : indexIn(parent, key, parent.length), 0, value);
  }

  #replace(tokens: readonly string[], value: Json): void {
    if (this.#get(tokens) === value) return;
    const [parent, key] = this.#open(tokens);
    if (parent === undefined) this.root = value;
    else put(parent, key, value);
  }

  #remove(tokens: readonly string[]): Json {
    const removed = this.#get(tokens);
    const [parent, key] = this.#open(tokens);
    if (parent === undefined) this.root = null;
    else if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete parent[key];
    return removed;
  }

  /** The container that holds the last token, ready to be changed, and that token; no container for the root. */
  #open(tokens: readonly string[]): [parent: Container | undefined, key: string] {
    const key = tokens.at(-1);
    if (key === undefined) return [undefined, ""];
    let parent = this.#owned(this.root);
    this.root = parent;
    for (const token of tokens.slice(0, -1)) {
      const child = this.#owned(childOf(parent, token));
      put(parent, token, child);
      parent = child;
    }
    return [parent, key];
  }

  #owned(value: Json): Container {
    if (typeof value !== "object" || value === null) misfit(`${kindOf(value)} has no members`);
    if (this.#own.has(value)) return value as Container;
    const copy: Container = isJsonObject(value) ? { ...value } : value.slice();
    this.#own.add(copy);
    return copy;
  }
}

function childOf(parent: Json, token: string): Json {
  if (typeof parent !== "object" || parent === null) misfit(`${kindOf(parent)} has no member "${token}"`);
  const child = !isJsonObject(parent)
    ? parent[indexIn(parent, token, parent.length - 1)]
    : Object.hasOwn(parent, token)
      ? parent[token]
      : undefined;
  return child === undefined ? misfit(`there is no member "${token}"`) : child;
}

function put(parent: Container, token: string, value: Json): void {
  if (Array.isArray(parent)) parent[Number(token)] = value;
  else parent[token] = value;
}

function indexIn(parent: readonly Json[], token: string, last: number): number {
  if (!/^(0|[1-9][0-9]*)$/.test(token)) misfit(`"${token}" is no index of an array`);
  if (Number(token) > last) misfit(`index ${token} is beyond an array of ${parent.length}`);
  return Number(token);
}

function givenValue(operation: { readonly value?: Json }): Json {
  return operation.value === undefined ? misfit("it has no value") : operation.value;
}

function parsePointer(pointer: unknown, name: "path" | "from"): string[] {
  if (typeof pointer !== "string") misfit(`its "${name}" is no string`);
  if (pointer === "") return [];
  if (!/^(\/([^/~]|~[01])*)*$/.test(pointer)) misfit(`its "${name}" is no JSON Pointer (RFC 6901)`);
  const tokens = pointer.slice(1).split("/");
  for (const [i, escaped] of tokens.entries()) {
    const token = escaped.includes("~") ? escaped.replaceAll("~1", "/").replaceAll("~0", "~") : escaped;
    if (token === "__proto__" || (token === "prototype" && tokens[i - 1] === "constructor")) {
      misfit(`its "${name}" names a prototype`);
    }
    tokens[i] = token;
  }
  return tokens;
}

function misfit(reason: string): never {
  throw new Misfit(reason);
}

function kindOf(value: Json): string {
  return value === null ? "null" : `a ${typeof value}`;
}
