/** The published providers against the APIs that they speak: what reaches us whatever the network does, and what each gets back. */
import fc from "fast-check";
import { agent, tool } from "perdure";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { callModel } from "../../src/agent/model-call.ts";
import type { ModelAnswer } from "../../src/agent/model-output.ts";
import { type Turn, toPrompt } from "../../src/agent/prompt.ts";
import { jsonEqual } from "../../src/protocol/json.ts";
import { ModelError } from "../../src/runtime/model-error.ts";
import { matrixOf } from "../../src/testing/crash-matrix.ts";
import { quietClient } from "../protocol/published-client.ts";
import { played, type Story, staged } from "../runtime/world.ts";
import { type Api, anthropic, apis, body, type Delivery, openaiResponses, type Saying, service } from "./fake-apis.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

quietClient();

const tools = [{ name: "look", description: "Looks.", inputSchema: { type: "object" } }];
const hello: Turn = { kind: "message", message: { id: "u", role: "user", content: "Hello" } };

const saying: Saying = {
  reasoning: 'Hm, "ünï\u{1F50D}" needs a look.',
  text: "Look\u{1F50D}ing – at “it”.\n",
  calls: [
    { id: "call_1", name: "look", args: '{"at":"\\u00e9\\n\\"\u{1F50D}\\\\"}' },
    { id: "call_2", name: "look", args: "{}" },
  ],
};

async function ask(api: Api, delivery: Delivery = {}, what = saying, turns: readonly Turn[] = [hello]) {
  const emitter = new RecordingEmitter();
  const { model } = service(api, () => body(api.frames(what).join(""), delivery));
  const request = { model, prompt: toPrompt({ turns }), tools, settings: api.settings };
  const answer = await callModel({ ...request, signal: new AbortController().signal }, emitter);
  return { answer, emitter };
}

describe.each(apis)("$name", (api) => {
  const bytes = Buffer.byteLength(api.frames(saying).join(""));

  test("gives reasoning, text, calls and usage", async () => {
    const { answer, emitter } = await ask(api);
    expect(answer).toMatchObject({
      text: saying.text,
      reasoning: api.reasoningIn === apis[1]?.reasoningIn ? [] : [{ text: saying.reasoning }],
      calls: [
        { providerId: "call_1", name: "look", input: { at: 'é\n"\u{1F50D}\\' } },
        { providerId: "call_2", name: "look", input: {} },
      ],
      finishReason: "tool-calls",
      usage: [{ inputTokens: 20, outputTokens: 7, cachedInputTokens: 16 }],
    });
    expect(emitter.open.size).toBe(0);
  });

  test("gives the same wherever its bytes are cut into chunks, with LF or CRLF", async () => {
    const { answer: whole } = await ask(api);
    const chunks = fc.array(fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 400 })), {
      minLength: 1,
      maxLength: 40,
    });
    await fc.assert(
      fc.asyncProperty(chunks, fc.constantFrom("\n" as const, "\r\n" as const), async (chunks, newline) => {
        const { answer } = await ask(api, { chunks, newline });
        expect(known(answer)).toEqual(known(whole));
      }),
      { numRuns: 60 },
    );
  });

  test("that is cut anywhere gives the whole answer or an error that is worth another try, never half an answer", async () => {
    const { answer: whole } = await ask(api);
    let cuts = 0;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: bytes }), fc.boolean(), async (cutAfter, breaks) => {
        const outcome = await ask(api, { cutAfter, breaks, chunks: [97] }).then(
          ({ answer }) => answer,
          (error: unknown) => error,
        );
        if (outcome instanceof ModelError) {
          expect(outcome).toMatchObject({ retryable: true });
          cuts += 1;
        } else if (!jsonEqual(known(outcome as ModelAnswer) as never, known(whole) as never)) {
          // A stream that just ended is an answer that does not say how: the loop asks again.
          expect(outcome).toMatchObject({ finishReason: "other" });
          expect(outcome).not.toHaveProperty("rawFinishReason");
          cuts += 1;
        }
      }),
      { numRuns: 150 },
    );
    expect(cuts).toBeGreaterThan(50);
  });
});

/** An answer without what differs between two of the same: usage that came after the cut, and times. */
function known({ usage: _, metadata: __, ...answer }: ModelAnswer): unknown {
  return JSON.parse(JSON.stringify(answer));
}

const look = tool({
  name: "look",
  description: "Looks.",
  effect: "read",
  input: z.object({ at: z.string() }),
  call: async ({ at }) => ({ seen: at }),
});

/** What each answer says: with readable reasoning, with reasoning that nobody can read, and to the end. */
const answers: readonly Saying[] = [
  { reasoning: "First this.", text: "Let me see.", calls: [{ id: "a1", name: "look", args: '{"at":"here"}' }] },
  {
    reasoning: "",
    calls: [
      { id: "b1", name: "look", args: '{"at":"there"}' },
      { id: "b2", name: "look", args: '{"at":"x"}' },
    ],
  },
  { reasoning: "Now I know.", text: "Seen." },
];

/** How many answers are in a request, whatever its API. */
function answersIn(request: object): number {
  return JSON.stringify(request).match(/"(?:tool_call_id|tool_use_id)":|"type":"function_call_output"/g)?.length ?? 0;
}
const dueIn = (request: object): Saying => answers[[0, 1, 1, 2][answersIn(request)] ?? 2] ?? {};

describe.each(apis)("an agent of $name", (api) => {
  const asked = (): { story: Story; served: ReturnType<typeof service>[] } => {
    const served: ReturnType<typeof service>[] = [];
    const story: Story = {
      name: api.name,
      agent: () => {
        const one = service(api, dueIn);
        served.push(one);
        return agent<unknown>({ name: "desk", model: one.model, settings: api.settings, tools: [look], maxRetries: 0 });
      },
    };
    return { story, served };
  };

  test("gives back all reasoning as it came", async () => {
    const { story, served } = asked();
    const { runs } = await played(story);
    expect(served.flatMap(({ refused }) => refused)).toEqual([]);
    expect(runs).toMatchObject([{ outcome: "success" }]);
    const last = served[0]?.requests.at(-1) ?? {};
    const expected = { [anthropic.name]: 2, [openaiResponses.name]: 2 }[api.name];
    if (expected !== undefined) expect(api.reasoningIn(last)).toHaveLength(expected);
  });

  test("sends a request that is taken, with all reasoning in it, wherever its process has died", async () => {
    const { story, served } = asked();
    const report = await matrixOf(staged(story));
    expect(served.flatMap(({ refused }) => refused)).toEqual([]);
    expect(report.findings, report.table()).toEqual([]);
    expect(report.cuts).toBeGreaterThan(20);
    const lasts = served.flatMap(({ requests }) => requests.filter((request) => answersIn(request) === 3));
    expect(lasts.length).toBeGreaterThan(10);
    for (const request of lasts) expect(api.reasoningIn(request)).toEqual(api.reasoningIn(lasts[0] ?? {}));
  });

  test.each(apis.filter((other) => other !== api))("goes on with $name, whose seals are others", async (other) => {
    const first = service(api, (request) => {
      const due = dueIn(request);
      // It answers the first request, and no other.
      return due === answers[0] ? due : Response.json({ error: { message: "no", type: "x" } }, { status: 401 });
    });
    const second = service(other, dueIn);
    const story: Story = {
      name: "two",
      fails: true,
      agent: () =>
        agent<unknown>({
          ...{ name: "desk", model: first.model, fallbacks: [second.model], tools: [look] },
          settings: {
            maxOutputTokens: 4_000,
            providerOptions: { ...api.settings.providerOptions, ...other.settings.providerOptions },
          },
        }),
    };
    const { runs, client } = await played(story);
    expect([...first.refused, ...second.refused]).toEqual([]);
    expect(runs).toMatchObject([{ outcome: "success" }]);
    expect(client.messages.filter(({ role }) => role === "assistant").at(-1)).toMatchObject({ content: "Seen." });
    expect(second.requests).toHaveLength(2);
  });
});
