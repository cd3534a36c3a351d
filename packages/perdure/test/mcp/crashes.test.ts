import { agent } from "perdure";
import { type McpServer, mcp } from "perdure/mcp";
import { crashMatrix, scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { quietClient } from "../protocol/published-client.ts";
import { Hotel } from "./hotel.ts";

quietClient();

const wishes = [
  {
    calls: [
      { name: "hotel_look", input: { room: "12" } },
      { name: "hotel_reserve", input: { room: "12" } },
    ],
  },
  { calls: [{ name: "hotel_book", input: { room: "13" } }] },
  { text: "Done." },
];

describe("an agent with the tools of an MCP server, killed at every commit and inside every call", () => {
  it("does each thing once: the key tells the server what it has done, and of what has none a human says what became of it", async () => {
    let server: McpServer | undefined;
    const report = await crashMatrix<Hotel>(
      async (hotel) => {
        // With its process, a connection goes.
        await server?.close();
        server = mcp({ name: "hotel", transport: hotel.transport, tools: { book: { settle: 0 } } });
        return agent({ name: "traveller", model: scriptedModel(wishes), tools: [server] });
      },
      {
        world: () => new Hotel(),
        effects: (hotel) => hotel.ledger,
        dispose: () => server?.close(),
        script: {
          answers: [
            {
              kind: "unknown-write",
              reply: (_, { happened }) => ({
                status: "resolved",
                payload: happened("book 13") ? { did: "yes", output: "booked 13" } : { did: "no" },
              }),
            },
          ],
        },
      },
    );
    expect(report.findings, report.table()).toEqual([]);
    expect(report.cuts).toBeGreaterThan(40);
    expect(report.effects).toEqual(["reserve 12", "book 13"]);
  }, 300_000);
});
