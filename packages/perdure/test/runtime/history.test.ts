/** What a client says of its thread's history, and what is made of it: beside a record of our own, in every prompt, and on its screen. */

import fc from "fast-check";
import { agent, createRuntime, tool } from "perdure";
import { type Script, scriptedModel } from "perdure/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { Prompt } from "../../src/agent/model-port.ts";
import type { Message } from "../../src/protocol/events.ts";
import { memory } from "../../src/store/memory.ts";
import { offence } from "../agent/strict-prompt.ts";
import { cases } from "../random-cases.ts";
import { asking } from "./asking.ts";
import { modelConversation, Talk } from "./conversations.ts";

/** What a client makes of its list of messages before it sends its next request. */
type Mangling =
  | { readonly how: "stale"; readonly keep: number }
  | { readonly how: "gaps"; readonly of: readonly number[] }
  | { readonly how: "reordered"; readonly by: readonly number[] }
  | { readonly how: "half"; readonly at: number }
  | { readonly how: "other ids" }
  | { readonly how: "foreign"; readonly at: number; readonly what: "greeting" | "calls" | "orphan" | "thought" }
  | { readonly how: "reworded"; readonly at: number };

const mangling: fc.Arbitrary<Mangling> = fc.oneof(
  fc.record({ how: fc.constant("stale" as const), keep: fc.nat(6) }),
  fc.record({ how: fc.constant("gaps" as const), of: fc.array(fc.nat(9), { maxLength: 4 }) }),
  fc.record({ how: fc.constant("reordered" as const), by: fc.array(fc.nat(9), { maxLength: 6 }) }),
  fc.record({ how: fc.constant("half" as const), at: fc.nat(9) }),
  fc.record({ how: fc.constant("other ids" as const) }),
  fc.record({
    how: fc.constant("foreign" as const),
    at: fc.nat(9),
    what: fc.constantFrom("greeting", "calls", "orphan", "thought"),
  }),
  fc.record({ how: fc.constant("reworded" as const), at: fc.nat(9) }),
);

let made = 0;

function mangled(messages: readonly Message[], { how, ...rest }: Mangling): readonly Message[] {
  const place = "at" in rest ? rest.at % (messages.length + 1) : 0;
  switch (how) {
    case "stale":
      return messages.slice(0, "keep" in rest ? rest.keep : 0);
    case "gaps":
      return messages.filter((_, i) => !("of" in rest && rest.of.includes(i)));
    case "reordered": {
      const list = [...messages];
      for (const [i, by] of ("by" in rest ? rest.by : []).entries()) {
        const [moved] = list.splice(i % Math.max(1, list.length), 1);
        if (moved !== undefined) list.splice(by % (list.length + 1), 0, moved);
      }
      return list;
    }
    case "half":
      return messages.map((message, i) => (i === place ? half(message) : message));
    case "other ids":
      return withOtherIds(messages);
    case "foreign":
      return messages.toSpliced(place, 0, ...foreign("what" in rest ? rest.what : "greeting"));
    case "reworded":
      return messages.map((message, i) =>
        // Under an id that nobody knows it would be another message.
        i === place && message.role === "user" && message.id.startsWith("u")
          ? { ...message, content: `reworded ${message.id}` }
          : message,
      );
    default:
      return how satisfies never;
  }
}

function half(message: Message): Message {
  if (message.role !== "assistant") return message;
  const { content, toolCalls } = message;
  return {
    ...message,
    ...(content !== undefined && { content: content.slice(0, content.length / 2) }),
    ...(toolCalls !== undefined && {
      toolCalls: toolCalls.map((call) => ({ ...call, function: { ...call.function, arguments: '{"no' } })),
    }),
  };
}

/** As a client that keeps no ids makes them anew. */
function withOtherIds(messages: readonly Message[]): readonly Message[] {
  const calls = new Map<string, string>();
  const anew = (id: string): string => {
    calls.set(id, calls.get(id) ?? `anew-${made++}`);
    return calls.get(id) ?? id;
  };
  return messages.map((message): Message => {
    // Under an id that nobody knows it would be another message.
    if (typeof message.content === "string" && message.content.startsWith("reworded")) return message;
    const own = { ...message, id: `anew-${made++}` };
    if (own.role === "tool") return { ...own, toolCallId: anew(own.toolCallId) };
    if (own.role !== "assistant" || own.toolCalls === undefined) return own;
    return { ...own, toolCalls: own.toolCalls.map((call) => ({ ...call, id: anew(call.id) })) };
  });
}

function foreign(what: "greeting" | "calls" | "orphan" | "thought"): readonly Message[] {
  const id = `foreign-${made++}`;
  const call = { id: `${id}-call`, type: "function" as const, function: { name: "theirs", arguments: "{}" } };
  switch (what) {
    case "greeting":
      return [{ id, role: "assistant", content: `said by ${id}` }];
    case "calls":
      return [
        { id, role: "assistant", content: `said by ${id}`, toolCalls: [call, { ...call, id: `${id}-open` }] },
        { id: `${id}-result`, role: "tool", toolCallId: call.id, content: "" },
      ];
    case "orphan":
      return [{ id, role: "tool", toolCallId: "nobody's", content: `said by ${id}` }];
    case "thought":
      return [{ id, role: "reasoning", content: `said by ${id}` }];
    default:
      return what satisfies never;
  }
}

/** The body with every message of the server's twice, the second time half-written. */
function doubled(body: string): string {
  const input = JSON.parse(body) as { messages: Message[] };
  return JSON.stringify({
    ...input,
    messages: input.messages.flatMap((message) =>
      message.role === "user" ? [message, message] : [message, half(message)],
    ),
  });
}

test("whatever a client says of its history: each prompt is one that the strictest provider takes, no message is doubled, no id changes", async () => {
  let behind = 0;
  let imported = 0;
  await fc.assert(
    fc.asyncProperty(
      modelConversation,
      fc.array(fc.record({ by: fc.array(mangling, { maxLength: 3 }), isDoubled: fc.boolean() }), {
        minLength: 4,
        maxLength: 4,
      }),
      fc.boolean(),
      async (story, manglings, importHistory) => {
        let isDoubled = false;
        const talk = new Talk(memory(), story, { importHistory, sent: (body) => (isDoubled ? doubled(body) : body) });
        let before: readonly string[] = [];
        const forgotten = new Set<string>();
        for (const [turn] of story.entries()) {
          const how = manglings[turn] ?? { by: [], isDoubled: false };
          const held = how.by.reduce((list, one) => mangled(list, one), talk.client.held.messages);
          // Not every client sends reasoning and activities back, so one that has lost them is not taken to be behind.
          for (const { id, role } of talk.client.held.messages)
            if ((role === "reasoning" || role === "activity") && !held.some((one) => one.id === id)) forgotten.add(id);
          talk.client = talk.newClient(held);
          isDoubled = how.isDoubled;
          const ended = await talk.next();
          const ids = talk.client.held.messages.map(({ id }) => id);
          expect(new Set(ids).size, "nothing is on the screen twice").toBe(ids.length);
          const shown = (await talk.threadMessages()).map(({ id }) => id);
          const missing = shown.filter((id) => !ids.includes(id) && !forgotten.has(id));
          if (ended === "seen") expect(missing, "the client holds all that its thread shows").toEqual([]);
          expect(
            shown.filter((id) => before.includes(id)),
            "ids and order stay",
          ).toEqual(before);
          before = shown;
          if (how.by.length > 0) behind += 1;
        }
        await talk.end();
        const messages = await talk.threadMessages();
        const users = messages.filter(({ role }) => role === "user").map(({ id }) => id);
        expect(users, "each user message once, under the id that it came with").toEqual(
          story.map((_, turn) => `u${turn}`),
        );
        for (const prompt of talk.prompts) {
          expect(offence(JSON.parse(prompt) as Prompt)).toBe(null);
          expect(prompt).not.toContain("reworded");
          const said = prompt.match(/said by foreign-\d+/g) ?? [];
          if (!importHistory) expect(said).toEqual([]);
          expect(new Set(said).size).toBe(said.length);
          imported += said.length;
          expect(prompt.match(/turn \d+\\n/g)?.length).toBe(new Set(prompt.match(/turn \d+\\n/g)).size);
        }
        await talk.runtime.close();
      },
    ),
    { numRuns: cases(75, 150), interruptAfterTimeLimit: 100_000 },
  );
  expect(behind).toBeGreaterThan(cases(50, 100));
  expect(imported).toBeGreaterThan(cases(10, 20));
}, 150_000);

/** One thread of an agent with a model, asked in memory. */
function talking(script: Script, options: Partial<Parameters<typeof agent>[0]> & { readonly tools?: never[] } = {}) {
  const prompts: unknown[] = [];
  const warnings: string[] = [];
  const desk = agent({
    name: "desk",
    ...options,
    model: scriptedModel((request) => {
      prompts.push(request.messages);
      const turn = typeof script === "function" ? script(request) : script[request.turn];
      return turn ?? { text: "Yes." };
    }),
  } as Parameters<typeof agent>[0]);
  const runtime = createRuntime({ agents: [desk], onError: () => {}, onWarning: (what) => warnings.push(what) });
  onTestFinished(() => runtime.close());
  let runs = 0;
  const ask = async (messages: readonly object[], more: object = {}) =>
    await asking(runtime)("/agents/desk", {
      threadId: "t",
      runId: `r${++runs}`,
      messages,
      protocolVersion: "1.0",
      ...more,
    });
  const shown = async (): Promise<Message[]> => {
    const { text } = await asking(runtime)("/threads/t/stream");
    const snapshot = /^data: (\{"type":"MESSAGES_SNAPSHOT".*)$/m.exec(text)?.[1] ?? "{}";
    return (JSON.parse(snapshot) as { messages: Message[] }).messages;
  };
  return { runtime, prompts, warnings, ask, shown };
}

const user = (id: string, content: unknown = id) => ({ id, role: "user", content });
const assistant = (id: string, content: string, more: object = {}) => ({ id, role: "assistant", content, ...more });
const code = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;

describe("the history of elsewhere", () => {
  const theirs = [
    user("u0", "hello"),
    assistant("a0", "How can I help?", {
      toolCalls: ["c1", "c2"].map((id) => ({ id, type: "function", function: { name: "look", arguments: "{}" } })),
    }),
    { id: "t0", role: "tool", toolCallId: "c1", content: "", error: "no such order" },
    { id: "t1", role: "tool", toolCallId: "c9", content: "invented" },
    { id: "r0", role: "reasoning", content: "Hm." },
    user("u1", "go on"),
  ];

  test("is text for the model where the agent imports it: answered calls with their results, and nothing is run", async () => {
    const { prompts, ask, shown } = talking([], { importHistory: true });
    expect((await ask(theirs)).text).toContain("RUN_FINISHED");
    expect(prompts).toMatchObject([
      [
        { role: "user", content: [{ text: "hello" }] },
        { role: "assistant", content: [{ text: "How can I help?" }, { type: "tool-call", toolName: "look" }] },
        { role: "tool", content: [{ output: { type: "error-text", value: "no such order" } }] },
        { role: "user", content: [{ text: "go on" }] },
      ],
    ]);
    const held = await shown();
    expect(held.map(({ id }) => id).slice(0, 4)).toEqual(["u0", "a0", "t0", "u1"]);
    await ask([...held, assistant("later", "By the way."), user("u2")]);
    expect(JSON.stringify(prompts[1])).toContain("By the way.");
    expect(JSON.stringify(prompts[1]).split("How can I help?")).toHaveLength(2);
  });

  test("is the client's own affair where it does not: only what users said counts", async () => {
    const { prompts, ask, shown } = talking([]);
    await ask(theirs);
    expect(JSON.stringify(prompts)).not.toMatch(/How can I help|no such order|invented/);
    expect((await shown()).map(({ role }) => role)).toEqual(["user", "user", "assistant"]);
  });

  test("is not what we have said ourselves and taken back, nor a copy of it under another id", async () => {
    const { prompts, ask, shown } = talking([], { importHistory: true });
    await ask([user("u0")]);
    const [, said] = await shown();
    const uid = said?.id.split(":")[0];
    await ask([user("u0"), assistant("copy", "Yes."), assistant(`${uid}:9:m0`, "Taken back."), user("u1")]);
    expect(JSON.stringify(prompts[1])).not.toContain("Taken back.");
    expect(JSON.stringify(prompts[1]).split("Yes.")).toHaveLength(2);
  });

  test("alone starts nothing: it comes with the next user message", async () => {
    const { prompts, ask } = talking([], { importHistory: true });
    await ask([user("u0")]);
    await ask([user("u0"), assistant("a0", "Elsewhere.")]);
    expect(prompts).toHaveLength(1);
    await ask([user("u0"), assistant("a0", "Elsewhere."), user("u1")]);
    expect(JSON.stringify(prompts[1])).toContain("Elsewhere.");
  });
});

describe("system messages of a client", () => {
  const steering = [
    { id: "s", role: "system", content: "Obey." },
    { id: "d", role: "developer", content: "Now." },
    user("u0"),
  ];

  test("are refused with 422 before anything begins, unless the agent allows them", async () => {
    const { prompts, ask } = talking([]);
    const refused = await ask(steering);
    expect([refused.status, code(refused.text)]).toEqual([422, "SYSTEM_MESSAGE_REFUSED"]);
    expect(refused.text).toContain('"messages":["s","d"]');
    expect(prompts).toEqual([]);
    expect((await ask([user("u0")])).status).toBe(200);
  });

  test("stand in front of the prompt where it allows them, once, also when they come anew with each request", async () => {
    const { prompts, ask, shown } = talking([], { systemMessages: "allow", instructions: "Be kind." } as never);
    await ask(steering);
    await ask([{ ...steering[0], id: "s2" }, ...(await shown()).slice(1), user("u1")]);
    const fronts = (prompts as { role: string; content: unknown }[][]).map((prompt) =>
      prompt.flatMap(({ role, content }) => (role === "system" ? [content] : [])),
    );
    expect(fronts).toEqual([
      ["Be kind.", "Obey.", "Now."],
      ["Be kind.", "Obey.", "Now."],
    ]);
  });
});

describe("parts that cannot be used", () => {
  test("are left out with a warning, and the run goes on; the thread keeps them", async () => {
    const { prompts, warnings, ask, shown } = talking([]);
    const content = [
      { type: "text", text: "see" },
      { type: "image", source: { type: "file", value: "file-1", provider: "openai" } },
      { type: "hologram", source: { type: "url", value: "https://a.example/h" } },
      { type: "binary", mimeType: "image/png", data: "AQID" },
    ];
    expect((await ask([user("u0", content)])).text).toContain("RUN_FINISHED");
    expect(prompts).toMatchObject([[{ content: [{ text: "see" }, { type: "file", mediaType: "image/png" }] }]]);
    expect(warnings).toEqual([
      expect.stringContaining('"hologram" is not known here'),
      'part 1 of message "u0" is left out for the model: the image is a file handle of openai, which only its own provider can read',
    ]);
    expect((await shown())[0]).toMatchObject({
      content: [{ text: "see" }, { source: { type: "file" } }, { type: "image" }],
    });
  });

  test("and nothing else: the model is told so, instead of being asked by nobody", async () => {
    const { prompts, ask } = talking([]);
    const content = [{ type: "audio", source: { type: "file", value: "file-1" } }];
    expect((await ask([user("u0", content)])).text).toContain("RUN_FINISHED");
    expect(prompts).toMatchObject([[{ role: "user", content: [{ text: expect.stringContaining("cannot be read") }] }]]);
  });
});

describe("what the thread holds", () => {
  test("stays as it was first said: the same id with another text is no edit, is told, and is put right on the screen", async () => {
    const { prompts, warnings, ask, shown } = talking([]);
    await ask([user("u0", "red")]);
    const [, said] = await shown();
    const { text } = await ask([user("u0", "blue"), said ?? {}, user("u1")]);
    expect(JSON.stringify(prompts[1])).toContain("red");
    expect(JSON.stringify(prompts[1])).not.toContain("blue");
    expect(text).toMatch(/MESSAGES_SNAPSHOT.*"content":"red"/);
    expect(warnings).toEqual([expect.stringContaining('message "u0" was sent with another text')]);
  });

  test("counts once for a client that makes ids anew each time, and saying the same thing twice is two messages", async () => {
    const { prompts, warnings, ask, shown } = talking([]);
    await ask([user("u0", "again")]);
    await ask([user("x0", "again"), assistant("x1", "Yes."), user("u1", "again")]);
    expect((await shown()).map(({ id, role }) => (role === "user" ? id : role))).toEqual([
      "u0",
      "assistant",
      "u1",
      "assistant",
    ]);
    expect(prompts[1]).toHaveLength(3);
    expect(warnings).toEqual([expect.stringContaining('message "x0" is "u0" of its thread under another id')]);
    // And the same request again is the same request.
    const again = { runId: "r2" };
    expect((await ask([user("x0", "again"), assistant("x1", "Yes."), user("u1", "again")], again)).status).toBe(200);
    expect(prompts).toHaveLength(2);
  });
});

test("an answer that was cut stays on the screen, and the next prompt does not have it", async () => {
  const { prompts, ask, shown } = talking(({ lastUserText }) =>
    lastUserText === "u0" ? { text: "Half of it", error: { message: "no more", retryable: false } } : { text: "Yes." },
  );
  expect((await ask([user("u0")])).text).toContain("RUN_ERROR");
  expect((await shown()).at(-1)).toMatchObject({ role: "assistant", content: "Half of it" });
  await ask([...(await shown()), user("u1")]);
  expect(prompts).toHaveLength(2);
  expect(prompts[1]).toMatchObject([{ role: "user" }, { role: "user" }]);
});

describe("the result of a client's call", () => {
  const paint = { tools: [{ name: "paint", description: "Paints.", parameters: { type: "object" } }] };
  const script: Script = ({ messages }) =>
    messages.at(-1)?.role === "user" ? { calls: [{ name: "paint", input: {} }] } : { text: "Painted." };

  test.each([
    ["a text", { content: "red" }, { type: "text", value: "red" }],
    ["an empty text, which is one", { content: "" }, { type: "text", value: "" }],
    [
      "parts",
      {
        content: [
          { type: "text", text: "re" },
          { type: "text", text: "d" },
        ],
      },
      { type: "text", value: "red" },
    ],
    ["an error", { content: "", error: "no paint" }, { type: "error-text", value: "no paint" }],
    [
      "an error with more about it",
      { content: "dry", error: "no paint" },
      { type: "error-text", value: "no paint\ndry" },
    ],
  ])("reaches the model: %s", async (_, result, output) => {
    const { prompts, ask, shown } = talking(script);
    await ask([user("u0")], paint);
    const held = await shown();
    const call = held.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))[0];
    await ask([...held, { id: "mine", role: "tool", toolCallId: call?.id, ...result }], paint);
    expect(prompts[1]).toMatchObject([{}, {}, { role: "tool", content: [{ output }] }]);
    expect((await shown())[2]).toEqual({ id: "mine", role: "tool", toolCallId: call?.id, ...result });
  });

  test("that came while the leg was open is its own message too, with its id and its error", async () => {
    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const slow = tool({
      name: "slow",
      description: "Takes its time.",
      effect: "read",
      input: z.object({}),
      call: () => gate.then(() => "done"),
    });
    const { prompts, runtime, ask, shown } = talking(
      ({ messages }) =>
        messages.at(-1)?.role === "user"
          ? { calls: ["paint", "slow"].map((name) => ({ name, input: {} })) }
          : { text: "Painted." },
      { tools: [slow] as never },
    );
    const first = ask([user("u0")], paint);
    const logged = async (what: RegExp): Promise<string | undefined> => {
      for (;;) {
        const { text } = await asking(runtime)("/runs");
        const uid = (JSON.parse(text) as { runs: { uid: string }[] }).runs[0]?.uid;
        const found = what.exec((await asking(runtime)(`/runs/${uid}/log`)).text);
        if (found !== null) return found[1];
      }
    };
    const call = await logged(/"step":"client-tool".*"toolCallId":"([^"]+)"/);
    const result = { id: "mine", role: "tool", toolCallId: call, content: "dry", error: "no paint" };
    const second = ask([user("u0"), result], { ...paint, runId: "while it runs" });
    await logged(/"via":"client"/);
    go();
    await Promise.all([first, second]);
    expect((await shown()).find(({ id }) => id === "mine")).toEqual(result);
    expect(JSON.stringify(prompts[1])).toContain("no paint\\ndry");
  });
});
