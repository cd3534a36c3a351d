/** What a server asks while its tool is at work. */
import { agent, createRuntime } from "perdure";
import { type McpServer, mcp } from "perdure/mcp";
import { crashMatrix, type MatrixScript, scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { quietClient } from "../protocol/published-client.ts";
import { asking, saying } from "../runtime/asking.ts";
import { Hotel } from "./hotel.ts";
import { everything } from "./servers.ts";

quietClient();

/** Of which nobody knows: a human looks it up. */
const lookedUp: NonNullable<MatrixScript<Hotel>["answers"]> = [
  { kind: "suspension", message: "Breakfast in 12?", reply: { status: "resolved", payload: { breakfast: true } } },
  {
    kind: "unknown-write",
    reply: (_, { happened }) => ({
      status: "resolved",
      payload: happened("host 12 with breakfast") ? { did: "yes", output: "host 12 with breakfast" } : { did: "no" },
    }),
  },
];

describe.each([
  ["in the middle of a call, as before 2026", (hotel: Hotel) => ({ transport: hotel.transport })],
  ["by its answer, as in 2026", (hotel: Hotel) => hotel.overHttp()],
])("a server that asks %s", (_, target) => {
  it.each(["upgrade", "host"])(
    "is answered once by a human, wherever the process dies: %s",
    async (name) => {
      let server: McpServer | undefined;
      const report = await crashMatrix<Hotel>(
        async (hotel) => {
          await server?.close();
          server = mcp({ ...target(hotel), defaults: { settle: 0 } });
          const model = scriptedModel([{ calls: [{ name, input: { room: "12" } }] }, { text: "Done." }]);
          return agent({ name: "traveller", model, tools: [server] });
        },
        {
          world: () => new Hotel(),
          effects: (hotel) => hotel.ledger,
          dispose: () => server?.close(),
          script: { answers: lookedUp },
        },
      );
      expect(report.findings, report.table()).toEqual([]);
      expect(report.cuts).toBeGreaterThan(20);
      expect(report.effects).toEqual([`${name} 12 with breakfast`]);
    },
    300_000,
  );

  it("hears that a human has dismissed its question", async () => {
    const hotel = new Hotel();
    const server = mcp(target(hotel));
    const model = scriptedModel([{ calls: [{ name: "host", input: { room: "12" } }] }, { text: "Done." }]);
    const runtime = createRuntime({ agents: [agent({ name: "traveller", model, tools: [server] })] });
    onTestFinished(() => runtime.close());
    const ask = asking(runtime);
    const first = (await ask("/agents/traveller", saying("Go."))).text;
    expect(first).toContain('"outcome":{"type":"interrupt"');
    const [question] = (JSON.parse((await ask("/inbox")).text) as { interrupts: { id: string; schema: unknown }[] })
      .interrupts;
    expect(question?.schema).toMatchObject({ required: ["breakfast"] });
    const resume = [{ interruptId: question?.id, status: "cancelled" }];
    const second = (await ask("/agents/traveller", { threadId: "t", runId: "r2", messages: [], resume })).text;
    expect(second).toContain("12 stays as it is");
    expect(second).toContain('"outcome":{"type":"success"');
    expect(hotel.ledger).toEqual([]);
  });
});

it("server-everything gets what it asks for", async () => {
  const model = scriptedModel([{ calls: [{ name: "trigger-elicitation-request", input: {} }] }, { text: "Done." }]);
  const runtime = createRuntime({ agents: [agent({ name: "asker", model, tools: [everything()] })] });
  onTestFinished(() => runtime.close());
  const ask = asking(runtime);
  await ask("/agents/asker", saying("Go."));
  const [question] = (JSON.parse((await ask("/inbox")).text) as { interrupts: { id: string }[] }).interrupts;
  const answer = { interruptId: question?.id, status: "resolved", payload: { name: "Ada", integer: 7 } };
  const invalid = { ...answer, payload: { integer: 1000 } };
  const refused = await ask("/agents/asker", { threadId: "t", runId: "r2", messages: [], resume: [invalid] });
  expect(refused).toMatchObject({ status: 422, text: expect.stringContaining("ANSWER_INVALID") });
  const said = (await ask("/agents/asker", { threadId: "t", runId: "r3", messages: [], resume: [answer] })).text;
  expect(said).toContain("- Name: Ada");
  expect(said).toContain('"outcome":{"type":"success"');
});
