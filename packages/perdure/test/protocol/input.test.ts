import { RunAgentInputSchema } from "@ag-ui/core/schemas";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { InputError, normaliseInput } from "../../src/protocol/input.ts";
import { type Json, MAX_JSON_DEPTH } from "../../src/protocol/json.ts";

type Members = Record<string, unknown>;
const base = { threadId: "t", runId: "r", messages: [], tools: [], context: [] };
const read = (body: unknown) => normaliseInput(body);
const withParts = (...content: unknown[]) => ({ ...base, messages: [{ id: "u1", role: "user", content }] });
const partsOf = (body: unknown) => (read(body).input.messages[0] as unknown as { content: unknown }).content;

function issuesOf(body: unknown): InputError["issues"] {
  try {
    read(body);
  } catch (error) {
    if (error instanceof InputError) return error.issues;
    throw error;
  }
  return [];
}

describe("older peers", () => {
  test("leave out tools and context, and send null for what they do not have", () => {
    const nulls = { tools: null, context: null, state: null, forwardedProps: null, parentRunId: null, resume: null };
    for (const body of [
      { threadId: "t", runId: "r", messages: [] },
      { ...base, ...nulls, protocolVersion: null },
    ]) {
      expect(read(body)).toEqual({ input: base, warnings: [] });
    }
  });

  test("send null in messages, tools, parts and answers", () => {
    const { input, warnings } = read({
      ...base,
      messages: [
        {
          id: "a",
          role: "assistant",
          content: null,
          name: null,
          toolCalls: null,
          metadata: null,
          encryptedValue: null,
        },
        { id: "b", role: "user", content: [{ type: "text", text: "x", metadata: null, id: null }] },
        { id: "c", role: "tool", toolCallId: "1", content: "x", error: null, subagentRunId: null },
      ],
      tools: [{ name: "f", description: "", parameters: null }],
      resume: [{ interruptId: "i", status: "resolved", payload: null }],
    });
    expect(input).toEqual({
      ...base,
      messages: [
        { id: "a", role: "assistant" },
        { id: "b", role: "user", content: [{ type: "text", text: "x" }] },
        { id: "c", role: "tool", toolCallId: "1", content: "x" },
      ],
      tools: [{ name: "f", description: "" }],
      resume: [{ interruptId: "i", status: "resolved" }],
    });
    expect(warnings).toEqual([]);
  });

  test("send one-piece text content as ever (era-0-0-39-flattens-content)", () => {
    const messages = [{ id: "era39-u1", role: "user", content: "What is in this picture?" }];
    expect(read({ ...base, messages })).toEqual({ input: { ...base, messages }, warnings: [] });
  });

  test("send binary parts, which become the part of their medium (era-0-0-47-upgrades-binary-content)", () => {
    const binary = { type: "binary", mimeType: "image/png", url: "https://example.com/legacy.png" };
    const image = {
      type: "image",
      source: { type: "url", value: "https://example.com/legacy.png", mimeType: "image/png" },
    };
    const text = { type: "text", text: "Describe it." };
    expect(partsOf(withParts(text, binary))).toEqual([text, image]);
    expect(read(withParts(text, binary)).warnings).toEqual([]);
  });

  test("send today's parts and attribution beside them (era-current-peer-keeps-modern-content)", () => {
    const image = {
      type: "image",
      source: { type: "url", value: "https://example.com/cat.png", mimeType: "image/png" },
    };
    const messages = [
      { id: "eracur-u1", role: "user", content: [{ type: "text", text: "What is in this picture?" }, image] },
      { id: "eracur-a1", role: "assistant", content: "Delegated.", subagentRunId: "eracur-s0" },
    ];
    expect(read({ ...base, messages })).toEqual({ input: { ...base, messages }, warnings: [] });
  });

  test.each([
    ["image/png", "image"],
    ["audio/mpeg", "audio"],
    ["video/mp4", "video"],
    ["application/pdf", "document"],
    ["images/x", "document"],
  ])("send %s, which is of the medium %s, by data, by url or by a file's id", (mimeType, type) => {
    const binary = { type: "binary", mimeType };
    const part = (source: Members) => ({ type, source: { ...source, mimeType } });
    expect(
      partsOf(
        withParts(
          { ...binary, data: "QQ==" },
          { ...binary, url: "https://x" },
          { ...binary, id: "file-1" },
          { ...binary, id: "file-2", url: "", data: null },
          { ...binary, data: "QUI=", url: "https://y", filename: "a.bin" },
        ),
      ),
    ).toEqual([
      part({ type: "data", value: "QQ==" }),
      part({ type: "url", value: "https://x" }),
      part({ type: "file", value: "file-1" }),
      part({ type: "file", value: "file-2" }),
      { ...part({ type: "data", value: "QUI=" }), metadata: { filename: "a.bin" } },
    ]);
  });

  test("send a part in both forms, which is one part", () => {
    const image = { type: "image", source: { type: "data", value: "QQ==", mimeType: "image/png" } };
    const binary = { type: "binary", mimeType: "image/png", data: "QQ==" };
    expect(partsOf(withParts(image, binary))).toEqual([image]);
    expect(partsOf(withParts(binary, image))).toEqual([image]);
    expect(partsOf(withParts(binary, binary))).toEqual([image, image]);
  });

  test("send binary parts that carry nothing, which are skipped, or that are malformed, which is an error", () => {
    const { input, warnings } = read(withParts({ type: "binary", mimeType: "image/png", data: "" }));
    expect(input.messages[0]).toMatchObject({ content: [] });
    expect(warnings).toEqual(["/messages/0/content/0: a binary content part without data, url or id is skipped"]);
    const malformed = withParts({ type: "binary", data: 7 }, { type: "binary", mime_type: 7, url: "https://x" });
    expect(issuesOf(malformed).map(({ path }) => path)).toEqual([
      "/messages/0/content/0/mimeType",
      "/messages/0/content/0/data",
      "/messages/0/content/1/mime_type",
    ]);
  });
});

describe("Python peers", () => {
  test("write known members in snake_case", () => {
    const { input, warnings } = read({
      thread_id: "t",
      run_id: "r",
      parent_run_id: "p",
      protocol_version: "1.0",
      forwarded_props: { keep_me: 1 },
      state: { also_me: { tool_calls: 1 } },
      messages: [
        {
          id: "a",
          role: "assistant",
          encrypted_value: "e",
          subagent_run_id: "s",
          tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" }, encrypted_value: "x" }],
        },
        {
          id: "b",
          role: "tool",
          tool_call_id: "c",
          content: [{ type: "image", source: { type: "data", value: "QQ==", mime_type: "image/png" } }],
        },
        { id: "d", role: "activity", activity_type: "PLAN", content: { mime_type: 1 }, metadata: { run_id: 1 } },
        { id: "e", role: "user", content: [{ type: "binary", mime_type: "image/png", data: "QQ==" }] },
      ],
      tools: [{ name: "f", description: "", parameters: { tool_call_id: 1 } }],
      resume: [{ interrupt_id: "i", status: "resolved", payload: { interrupt_id: 1 } }],
    });
    const image = { type: "image", source: { type: "data", value: "QQ==", mimeType: "image/png" } };
    expect(input).toEqual({
      threadId: "t",
      runId: "r",
      parentRunId: "p",
      protocolVersion: "1.0",
      forwardedProps: { keep_me: 1 },
      state: { also_me: { tool_calls: 1 } },
      messages: [
        {
          id: "a",
          role: "assistant",
          encryptedValue: "e",
          subagentRunId: "s",
          toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" }, encryptedValue: "x" }],
        },
        { id: "b", role: "tool", toolCallId: "c", content: [image] },
        { id: "d", role: "activity", activityType: "PLAN", content: { mime_type: 1 }, metadata: { run_id: 1 } },
        { id: "e", role: "user", content: [image] },
      ],
      tools: [{ name: "f", description: "", parameters: { tool_call_id: 1 } }],
      context: [],
      resume: [{ interruptId: "i", status: "resolved", payload: { interrupt_id: 1 } }],
    });
    expect(warnings).toEqual([]);
  });

  test("are heard only where the camelCase name is absent", () => {
    const { input, warnings } = read({ ...base, thread_id: "other" });
    expect(input.threadId).toBe("t");
    expect(warnings).toEqual(["/thread_id: unknown member, dropped"]);
  });

  test("are told of an error under the name that they sent", () => {
    expect(issuesOf({ ...base, parent_run_id: 7 })).toMatchObject([{ path: "/parent_run_id" }]);
  });
});

describe("what a later protocol sends", () => {
  test("as members is dropped with a warning that says where", () => {
    const { input, warnings } = read({
      ...base,
      "x/y": 1,
      messages: [{ id: "a", role: "user", content: [{ type: "text", text: "x", style: "bold" }], mood: "good" }],
      tools: [{ name: "f", description: "", strict: true }],
    });
    expect(input).toEqual({
      ...base,
      messages: [{ id: "a", role: "user", content: [{ type: "text", text: "x" }] }],
      tools: [{ name: "f", description: "" }],
    });
    expect(warnings).toEqual([
      "/messages/0/content/0/style: unknown member, dropped",
      "/messages/0/mood: unknown member, dropped",
      "/tools/0/strict: unknown member, dropped",
      "/x~1y: unknown member, dropped",
    ]);
  });

  test("as content parts and sources is skipped with a warning, and what is left keeps its places in errors", () => {
    const text = { type: "text", text: "x" };
    const body = withParts({ type: "hologram", cube: 1 }, text, {
      type: "image",
      source: { type: "ipfs", value: "Qm" },
    });
    expect(partsOf(body)).toEqual([text]);
    expect(read(body).warnings).toEqual([
      '/messages/0/content/0/type: "hologram" is not known here, so the content part is skipped',
      '/messages/0/content/2/source/type: "ipfs" is not known here, so the content part is skipped',
    ]);
    expect(issuesOf(withParts({ type: "hologram" }, { type: "text" }))).toEqual([
      { path: "/messages/0/content/1/text", message: "is missing" },
    ]);
  });

  test("as a role is an error: a conversation with a hole is another one", () => {
    const body = { ...base, messages: [{ id: "a", role: "critic", content: "x" }] };
    expect(issuesOf(body)).toEqual([
      {
        path: "/messages/0/role",
        message: "must be one of developer, system, assistant, user, tool, activity, reasoning",
      },
    ]);
  });

  test("in hostile amounts makes no hostile amount of notes", () => {
    const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`x${i}`, i]));
    expect(read({ ...base, ...many }).warnings).toHaveLength(100);
    expect(issuesOf({ ...base, messages: Array.from({ length: 1_000 }, () => 7) })).toHaveLength(100);
  });
});

describe("an error", () => {
  test("lists every issue with its place, and says them in its message", () => {
    const body = {
      runId: 7,
      messages: [{ id: "a", role: "user" }, "x", { role: "tool", toolCallId: null, content: { a: 1 }, id: "b" }],
      tools: {},
      context: [{ description: "d", value: 1 }],
      resume: [{ interruptId: "i", status: "maybe", metadata: [] }],
    };
    const issues = issuesOf(body);
    expect(issues.map(({ path }) => path)).toEqual([
      "/threadId",
      "/runId",
      "/messages/0/content",
      "/messages/1",
      "/messages/2/content",
      "/messages/2/toolCallId",
      "/tools",
      "/context/0/value",
      "/resume/0/status",
      "/resume/0/metadata",
    ]);
    expect(() => read(body)).toThrow(
      /^the request is not a RunAgentInput of AG-UI: \/threadId: is missing; .* and 2 more$/,
    );
    expect(() => read(body)).toThrow(expect.objectContaining({ code: "INPUT_INVALID" }));
  });

  test.each([null, undefined, 7, "text", [], [base], true])("is what the body %j is", (body) => {
    expect(issuesOf(body)).toEqual([{ path: "", message: expect.stringMatching(/^must be an object, not/) }]);
  });

  const deep = (depth: number): Json => (depth === 0 ? 1 : { a: deep(depth - 1) });
  test.each<[string, unknown, string]>([
    ["deeper than JSON may be", { ...base, state: deep(MAX_JSON_DEPTH) }, `/state${"/a".repeat(MAX_JSON_DEPTH - 1)}`],
    ["with a key __proto__ in open JSON", JSON.parse('{"state":{"a":[{"__proto__":{}}]}}'), "/state/a/0/__proto__"],
    ["with a key __proto__ of its own", JSON.parse('{"__proto__":{"threadId":"t"}}'), "/__proto__"],
    ["with a BigInt", { ...base, state: 1n }, "/state"],
  ])("is a body %s", (_, body, path) => {
    expect(issuesOf(body)).toEqual([{ path, message: expect.stringMatching(/^must not hold /) }]);
  });

  test("is an id that no id may be, in every place where there is one", () => {
    const bad = "a\nb";
    const body = {
      ...base,
      threadId: bad,
      runId: "x".repeat(1_025),
      parent_run_id: "\ud800",
      messages: [
        {
          id: "",
          role: "tool",
          toolCallId: bad,
          content: [{ type: "text", text: "ok\n", id: bad }],
          subagentRunId: bad,
        },
        {
          id: "a",
          role: "assistant",
          toolCalls: [{ id: bad, type: "function", function: { name: "f", arguments: "" } }],
        },
      ],
      resume: [{ interruptId: bad, status: "cancelled" }],
    };
    expect(issuesOf(body)).toEqual([
      { path: "/threadId", message: expect.stringMatching(/control characters/) },
      { path: "/runId", message: expect.stringMatching(/longer than 1024/) },
      { path: "/parent_run_id", message: expect.stringMatching(/lone surrogate/) },
      { path: "/messages/0/subagentRunId", message: expect.stringMatching(/control/) },
      { path: "/messages/0/id", message: expect.stringMatching(/empty/) },
      { path: "/messages/0/content/0/id", message: expect.stringMatching(/control/) },
      { path: "/messages/0/toolCallId", message: expect.stringMatching(/control/) },
      { path: "/messages/1/toolCalls/0/id", message: expect.stringMatching(/control/) },
      { path: "/resume/0/interruptId", message: expect.stringMatching(/control/) },
    ]);
  });

  test("is one message id on two messages; the same message twice is one", () => {
    const one = { id: "a", role: "user", content: "x" };
    const other = { id: "a", role: "user", content: "y" };
    expect(issuesOf({ ...base, messages: [one, other] })).toEqual([
      { path: "/messages/1/id", message: "is the id of another message already, of /messages/0" },
    ]);
    expect(read({ ...base, messages: [one, { ...one, name: null }] })).toEqual({
      input: { ...base, messages: [one] },
      warnings: ["/messages/1: the same message as /messages/0, dropped"],
    });
    const said = [
      { id: "a", role: "assistant", content: "Hel" },
      { id: "a", role: "assistant", content: "Hello." },
    ];
    expect(read({ ...base, messages: said })).toEqual({
      input: { ...base, messages: [said[0]] },
      warnings: ["/messages/1: another version of /messages/0, dropped"],
    });
    const results = ["c1", "c2"].map((toolCallId) => ({ id: "t", role: "tool", toolCallId, content: "" }));
    expect(issuesOf({ ...base, messages: results })).toMatchObject([{ path: "/messages/1/id" }]);
  });
});

// ── Properties ──────────────────────────────────────────────────────────────────────────────────────────────────────

const text = fc.string({ maxLength: 6 });
const id = fc.string({ unit: fc.constantFrom("a", "1", "-", "é", "😀"), minLength: 1, maxLength: 6 });
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    fc.constantFrom(null, true, 0, 1.5, "", "x"),
    fc.array(tie("json"), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom("thread_id", "runId", "a", "type"), tie("json"), {
      maxKeys: 2,
      noNullPrototype: true,
    }),
  ),
}));
const some = json.filter((value) => value !== null);
const open = fc.dictionary(fc.constantFrom("tool_calls", "b"), json, { maxKeys: 2, noNullPrototype: true });

/** An object with these members, of which the optional ones may be absent. */
function record(required: Record<string, fc.Arbitrary<unknown>>, optional: Record<string, fc.Arbitrary<unknown>> = {}) {
  return fc.record({ ...required, ...optional }, { requiredKeys: Object.keys(required), noNullPrototype: true });
}
const literal = fc.constant;
const source = fc.oneof(
  record({ type: literal("data"), value: text, mimeType: text }),
  record({ type: literal("url"), value: text }, { mimeType: text }),
  record({ type: literal("file"), value: text }, { provider: text, mimeType: text }),
);
const part = fc.oneof(
  record({ type: literal("text"), text }, { id, metadata: some }),
  record({ type: fc.constantFrom("image", "audio", "video", "document"), source }, { id, metadata: some }),
);
const call = record(
  { id, type: literal("function"), function: record({ name: text, arguments: text }) },
  { encryptedValue: text, metadata: open },
);
const content = fc.oneof(text, fc.array(part, { maxLength: 3 }));
const common = { subagentRunId: id, metadata: open };
const named = { ...common, name: text, encryptedValue: text };
const message = fc.oneof(
  record({ id, role: fc.constantFrom("developer", "system"), content: text }, named),
  record({ id, role: literal("assistant") }, { ...named, content: text, toolCalls: fc.array(call, { maxLength: 2 }) }),
  record({ id, role: literal("user"), content }, named),
  record({ id, role: literal("tool"), content, toolCallId: id }, { ...common, error: text, encryptedValue: text }),
  record({ id, role: literal("activity"), activityType: text, content: open }, common),
  record({ id, role: literal("reasoning"), content: text }, { ...common, encryptedValue: text }),
);
const input = record(
  {
    threadId: id,
    runId: id,
    messages: fc.uniqueArray(message, { maxLength: 4, selector: (m) => (m as Members).id }),
    tools: fc.array(record({ name: text, description: text }, { parameters: some, metadata: open }), { maxLength: 2 }),
    context: fc.array(record({ description: text, value: text }), { maxLength: 2 }),
  },
  {
    protocolVersion: text,
    parentRunId: id,
    state: some,
    forwardedProps: some,
    resume: fc.array(
      record({ interruptId: id, status: fc.constantFrom("resolved", "cancelled") }, { payload: some, metadata: open }),
      { maxLength: 2 },
    ),
  },
);

const OPEN = new Set(["state", "forwardedProps", "payload", "metadata", "parameters"]);
const OPTIONAL: Record<string, readonly string[]> = {
  input: ["protocolVersion", "parentRunId", "state", "forwardedProps", "resume"],
  message: ["subagentRunId", "metadata"],
  call: ["encryptedValue", "metadata"],
  part: ["id", "metadata"],
  tool: ["parameters", "metadata"],
  resume: ["payload", "metadata"],
};

interface Known {
  readonly kind: string;
  readonly path: string;
  readonly value: Members;
}

/** Every object of a legal request whose members the protocol names, outermost first. */
function knownObjects(body: Members): Known[] {
  const found: Known[] = [{ kind: "input", path: "", value: body }];
  const add = (kind: string, path: string, value: unknown): void => {
    found.push({ kind, path, value: value as Members });
  };
  const each = (list: unknown, path: string, visit: (value: Members, path: string) => void): void => {
    if (!Array.isArray(list)) return;
    for (const [i, value] of list.entries()) visit(value as Members, `${path}/${i}`);
  };
  each(body.messages, "/messages", (m, path) => {
    add("message", path, m);
    each(m.toolCalls, `${path}/toolCalls`, (c, at) => {
      add("call", at, c);
      add("function", `${at}/function`, c.function);
    });
    each(m.content, `${path}/content`, (p, at) => {
      add("part", at, p);
      if (p.source) add("source", `${at}/source`, p.source);
    });
  });
  each(body.tools, "/tools", (t, path) => add("tool", path, t));
  each(body.context, "/context", (c, path) => add("context", path, c));
  each(body.resume, "/resume", (r, path) => add("resume", path, r));
  return found;
}

const snake = (name: string) => name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`);

describe("any legal request", () => {
  test("comes back as it is, as a copy, without a warning", () => {
    fc.assert(
      fc.property(input, (body) => {
        const result = read(body);
        expect(result).toEqual({ input: body, warnings: [] });
        expect(result.input).not.toBe(body);
        expect(RunAgentInputSchema.parse(result.input)).toEqual(body);
      }),
      { numRuns: 500 },
    );
  });

  test("with nulls, unknown members and snake_case is the same request, with a warning for each unknown member", () => {
    fc.assert(
      fc.property(input, fc.infiniteStream(fc.nat(3)), (body, choices) => {
        const disguised = structuredClone(body) as Members;
        const pick = () => choices.next().value as number;
        let unknowns = 0;
        for (const { kind, value } of knownObjects(disguised).reverse()) {
          for (const name of OPTIONAL[kind] ?? []) if (!(name in value) && pick() === 0) value[name] = null;
          for (const name of Object.keys(value)) {
            if (snake(name) === name || pick() > 1) continue;
            value[snake(name)] = value[name];
            delete value[name];
          }
          if (pick() === 0) {
            value.x_unknown = { thread_id: null };
            unknowns++;
          }
        }
        const result = read(disguised);
        expect(result.input).toEqual(body);
        expect(result.warnings).toHaveLength(unknowns);
        expect(result.warnings.every((warning) => /\/x_unknown: unknown member, dropped$/.test(warning))).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  test("with one known member of a wrong type is an error at that member", () => {
    const wrongFor = (name: string, value: unknown): readonly unknown[] => {
      if (name === "content") return [7, true];
      if (name === "metadata") return [];
      if (Array.isArray(value)) return ["text", {}, 7];
      return typeof value === "object" ? ["text", [], 7] : [7, {}, [], true];
    };
    fc.assert(
      fc.property(input, fc.nat(), fc.nat(), (body, where, which) => {
        const broken = structuredClone(body) as Members;
        const members = knownObjects(broken).flatMap(({ path, value }) =>
          Object.keys(value)
            .filter((name) => !OPEN.has(name))
            .map((name) => ({ path: `${path}/${name}`, name, value })),
        );
        const target = members[where % members.length];
        if (!target) return expect.fail("there are always threadId and runId");
        const wrong = wrongFor(target.name, target.value[target.name]);
        target.value[target.name] = wrong[which % wrong.length];
        expect(issuesOf(broken).map(({ path }) => path)).toEqual([target.path]);
      }),
      { numRuns: 1_000 },
    );
  });

  test("with metadata that is no object is an error at it", () => {
    fc.assert(
      fc.property(message, fc.constantFrom(7, "x", [], true), (m, metadata) => {
        const body = { ...base, messages: [{ ...(m as Members), metadata }] };
        expect(issuesOf(body).map(({ path }) => path)).toEqual(["/messages/0/metadata"]);
      }),
    );
  });
});
