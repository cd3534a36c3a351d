import { isJsonObject, type Json } from "../protocol/json.ts";

/**
 * Checks that a JSON Schema can be evaluated from what it holds itself. A validator meets a reference only when a value leads there, and then
 * refuses every value, fetches something, or never ends; here it is one error, when the schema is registered.
 *
 * 1. Every `$ref`, `$dynamicRef` and `$recursiveRef` leads to a schema in the same document. Nothing is fetched.
 * 2. No schema leads back to itself without going a level deeper into the value.
 *
 * Not a rule: that a reference leads to `$defs`. A pointer to any place of the document is legal, and what stands there is checked too.
 */
export function findReferenceProblem(root: Json): string | undefined {
  const graph = new SchemaGraph(root);
  return graph.problem ?? findLoop(graph);
}

const ONE = new Set(
  `additionalItems additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems
   unevaluatedProperties`.split(/\s+/),
);
const LIST = new Set(["allOf", "anyOf", "items", "oneOf", "prefixItems"]);
const MAP = new Set(["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]);
/** Keywords whose schemas look at the same value as the one that holds them. */
const SAME_VALUE = new Set([
  "allOf",
  "anyOf",
  "oneOf",
  "not",
  "if",
  "then",
  "else",
  "dependentSchemas",
  "dependencies",
]);
const REFERENCES = ["$ref", "$dynamicRef", "$recursiveRef"];

type Node = { readonly [key: string]: Json };
interface Resource {
  readonly uri: string;
  readonly root: Json;
}

class SchemaGraph {
  problem: string | undefined;
  /** Schemas that a schema applies to the same value, with where they stand or how they are named. */
  readonly sameValue = new Map<Node, Node[]>();
  private readonly resources = new Map<string, Resource>();
  private readonly anchors = new Map<string, Json>();
  private readonly references: { from: Node; keyword: string; ref: string; base: Resource }[] = [];

  constructor(root: Json) {
    const document: Resource = { uri: "schema:///", root };
    this.resources.set(document.uri, document);
    this.visit(root, document);
    // Resolving may lead to places that no keyword led to, and those bring references of their own.
    for (const { from, keyword, ref, base } of this.references) {
      const target = this.resolve(ref, base);
      if (!target) {
        this.problem = `${keyword} "${ref}" leads to nothing in the schema; put what it means under $defs (nothing is fetched)`;
        return;
      }
      this.visit(target.schema, target.resource);
      if (isJsonObject(target.schema)) this.sameValue.get(from)?.push(target.schema);
    }
  }

  private visit(schema: Json | undefined, outer: Resource): void {
    if (!isJsonObject(schema) || this.sameValue.has(schema)) return;
    const same: Node[] = [];
    this.sameValue.set(schema, same);
    const resource = this.enter(schema, outer);
    for (const keyword of REFERENCES) {
      const ref = schema[keyword];
      if (typeof ref === "string") this.references.push({ from: schema, keyword, ref, base: resource });
    }
    for (const [keyword, value] of Object.entries(schema)) {
      for (const child of subschemas(keyword, value)) {
        this.visit(child, resource);
        if (SAME_VALUE.has(keyword) && isJsonObject(child)) same.push(child);
      }
    }
  }

  /** Notes what a schema may be called by, and returns the resource that it begins or lies in. */
  private enter(schema: Node, outer: Resource): Resource {
    let resource = outer;
    const id = schema.$id;
    if (typeof id === "string" && !id.startsWith("#")) {
      const uri = toUri(id, outer.uri);
      if (uri) {
        resource = { uri: uri.split("#", 1)[0] ?? uri, root: schema };
        this.resources.set(resource.uri, resource);
      }
    }
    // Up to draft 7 an anchor was an id that is a fragment.
    for (const anchor of [schema.$anchor, schema.$dynamicAnchor, fragmentId(id)]) {
      if (typeof anchor === "string") this.anchors.set(`${resource.uri}#${anchor}`, schema);
    }
    return resource;
  }

  private resolve(ref: string, base: Resource): { schema: Json; resource: Resource } | undefined {
    const uri = toUri(ref, base.uri);
    const [address = "", fragment = ""] = uri?.split("#", 2) ?? [];
    const resource = this.resources.get(address);
    if (!resource) return undefined;
    const token = decode(fragment);
    if (token === undefined) return undefined;
    const schema =
      token === "" || token.startsWith("/") ? follow(resource.root, token) : this.anchors.get(`${address}#${token}`);
    return isJsonObject(schema) || typeof schema === "boolean" ? { schema, resource } : undefined;
  }
}

/** A depth-first walk over what looks at the same value: meeting a schema that is still being walked is a loop. */
function findLoop({ sameValue }: SchemaGraph): string | undefined {
  const done = new Set<Node>();
  const walking = new Set<Node>();
  const loops = (node: Node): boolean => {
    if (done.has(node)) return false;
    if (walking.has(node)) return true;
    walking.add(node);
    const found = (sameValue.get(node) ?? []).some(loops);
    walking.delete(node);
    done.add(node);
    return found;
  };
  for (const node of sameValue.keys()) {
    if (loops(node)) return `a reference leads back to itself (${describe(node)}), so checking a value would never end`;
  }
  return undefined;
}

function subschemas(keyword: string, value: Json): readonly Json[] {
  if (Array.isArray(value)) return LIST.has(keyword) ? value : [];
  if (ONE.has(keyword)) return [value];
  return MAP.has(keyword) && isJsonObject(value) ? Object.values(value) : [];
}

function fragmentId(id: Json | undefined): string | undefined {
  return typeof id === "string" && id.startsWith("#") ? id.slice(1) : undefined;
}

function toUri(reference: string, base: string): string | undefined {
  return URL.canParse(reference, base) ? new URL(reference, base).href : undefined;
}

function decode(fragment: string): string | undefined {
  try {
    return decodeURIComponent(fragment);
  } catch {
    return undefined; // Not percent-encoded as it should be: it names nothing.
  }
}

function follow(root: Json, pointer: string): Json | undefined {
  let at: Json | undefined = root;
  for (const token of pointer.split("/").slice(1)) {
    const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Node)[key];
  }
  return at;
}

function describe(node: Node): string {
  const ref = REFERENCES.map((keyword) => node[keyword]).find((value) => typeof value === "string");
  return ref === undefined ? "through a combination of schemas" : `"${String(ref)}"`;
}
