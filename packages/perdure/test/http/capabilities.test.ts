/** What an agent can do, as a client that has yet to run it is told. */
import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import { AgentDefinitionError, agent, suspend, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { as, ask, byHeader, get, json, serving } from "./rig.ts";

const look = tool({
  name: "look",
  description: "Looks an order up.",
  effect: "read",
  input: z.object({ id: z.string() }),
  call: () => suspend({ message: "?" }),
});
const write = (name: string, approval?: boolean) =>
  tool({
    ...{ name, description: `Does ${name}.`, effect: "write", input: z.object({}) },
    ...(approval !== undefined && { approval }),
    call: () => null,
  });
const model = scriptedModel([]);
const plain = { model, tools: [look] };

const agents = [
  agent({ name: "talker", description: "Talks.", model }),
  agent({ name: "reader", ...plain }),
  agent({ name: "payer", model, tools: [look, write("pay", true), write("label")] }),
  agent({ name: "careful", model, approve: "write", tools: [look, write("pay")] }),
  agent({ name: "free", model, tools: [write("pay", false)] }),
  agent({ name: "body", disconnect: "cancel", run: async () => {} }),
  agent({
    ...{ name: "told", ...plain },
    capabilities: {
      identity: { version: "2.1.0", provider: "ACME" },
      reasoning: { supported: false },
      tools: { parallelCalls: false },
      multimodal: { input: { image: true } },
      custom: { theme: "dark" },
    },
  }),
];
const capabilities = async (name: string) => {
  const { url } = await serving(agents);
  return await get<z.infer<typeof AgentCapabilitiesSchema>>(`${url}/agents/${name}`);
};

describe("GET /agents/:agent", () => {
  it.each(agents.map(({ name }) => name))(
    "is AG-UI's AgentCapabilities, with nothing unknown in it: %s",
    async (name) => {
      const strict = (schema: z.ZodType): z.ZodType => {
        if (schema instanceof z.ZodOptional) return strict(schema.unwrap() as z.ZodType);
        if (!(schema instanceof z.ZodObject)) return schema;
        const members = Object.entries(schema.shape as Record<string, z.ZodType>);
        return z.strictObject(Object.fromEntries(members.map(([key, member]) => [key, strict(member).optional()])));
      };
      const said = await capabilities(name);
      expect(AgentCapabilitiesSchema.parse(said)).toEqual(said);
      expect(strict(AgentCapabilitiesSchema).safeParse(said)).toMatchObject({ success: true });
    },
  );

  it("says of a model with tools what they are, what they do to the world, and which of them ask", async () => {
    expect(await capabilities("payer")).toEqual({
      identity: { name: "payer", type: "perdure" },
      transport: { streaming: true, resumable: true, httpBinary: true, websocket: false, pushNotifications: false },
      state: { snapshots: true, deltas: true, persistentState: true },
      tools: {
        supported: true,
        items: [
          {
            ...{ name: "look", description: "Looks an order up.", metadata: { effect: "read", approval: false } },
            parameters: expect.objectContaining({ properties: { id: { type: "string" } }, required: ["id"] }),
          },
          {
            ...{ name: "pay", description: "Does pay.", metadata: { effect: "write", approval: true } },
            parameters: expect.objectContaining({ type: "object" }),
          },
          {
            ...{ name: "label", description: "Does label.", metadata: { effect: "write", approval: false } },
            parameters: expect.objectContaining({ type: "object" }),
          },
        ],
        parallelCalls: true,
        clientProvided: true,
      },
      reasoning: { supported: true, streaming: true },
      humanInTheLoop: { supported: true, interrupts: true, approvals: true, approveWithEdits: true },
      custom: { perdure: { disconnect: "detach", emptyRequest: "hydrate" } },
    });
  });

  it.each([
    ["talker", { supported: false, interrupts: false, approvals: false, approveWithEdits: false }],
    ["reader", { supported: true, interrupts: true, approvals: false, approveWithEdits: false }],
    ["careful", { supported: true, interrupts: true, approvals: true, approveWithEdits: true }],
    ["free", { supported: true, interrupts: true, approvals: false, approveWithEdits: false }],
  ])("says whether a human may be asked: %s", async (name, humanInTheLoop) => {
    expect(await capabilities(name)).toMatchObject({ humanInTheLoop });
  });

  it("says of protobuf what a client that asks for it gets", async () => {
    const { url } = await serving(agents);
    const headers = { ...json, accept: "application/vnd.ag-ui.event+proto" };
    const { status } = await ask(`${url}/agents/body`, { headers });
    expect((await capabilities("body")).transport?.httpBinary).toBe(status === 200);
  });

  it("says nothing of a body but what holds whatever it does", async () => {
    expect(await capabilities("body")).toEqual({
      identity: { name: "body", type: "perdure" },
      transport: expect.any(Object),
      state: { snapshots: true, deltas: true, persistentState: true },
      custom: { perdure: { disconnect: "cancel", emptyRequest: "hydrate" } },
    });
  });

  it("lets the definition say more, and otherwise, member by member", async () => {
    const [told, derived] = [await capabilities("told"), await capabilities("reader")];
    expect(told).toEqual({
      ...derived,
      identity: { name: "told", type: "perdure", version: "2.1.0", provider: "ACME" },
      reasoning: { supported: false, streaming: true },
      tools: { ...derived.tools, parallelCalls: false },
      multimodal: { input: { image: true } },
      custom: { ...derived.custom, theme: "dark" },
    });
  });

  it("is for those whom authorize knows, and 404 for an agent that is not there", async () => {
    const { url } = await serving(agents, { authorize: byHeader });
    expect((await ask(`${url}/agents/reader`, { method: "GET", headers: {} })).status).toBe(401);
    expect((await ask(`${url}/agents/nobody`, { method: "GET", headers: {} })).status).toBe(401);
    expect((await ask(`${url}/agents/reader`, { method: "GET", headers: as("ada") })).status).toBe(200);
    const missing = await ask(`${url}/agents/nobody`, { method: "GET", headers: as("ada") });
    expect(missing.status).toBe(404);
    expect(JSON.parse(missing.text)).toMatchObject({ error: { code: "AGENT_NOT_FOUND" } });
  });
});

it("capabilities that are none are refused where they are written", () => {
  const wrong = { transport: { streaming: "yes" as unknown as boolean } };
  const define = () => agent({ name: "wrong", model, capabilities: wrong });
  expect(define).toThrow(AgentDefinitionError);
  expect(define).toThrow(/agent "wrong".*\/transport\/streaming/);
  expect(() => agent({ name: "wrong", run: async () => {}, capabilities: wrong })).toThrow(AgentDefinitionError);
  expect(() => agent({ name: "wrong", model, capabilities: { custom: { n: 1n } } })).toThrow(/BigInt/);
});
