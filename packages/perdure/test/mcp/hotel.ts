/** A hotel that books by MCP. What it does stands in a ledger outside of it, which tells how often it has happened. */
import {
  createMcpHandler,
  InMemoryTransport,
  inputRequired,
  inputResponse,
  McpServer,
  type ServerContext,
  type Transport,
} from "@modelcontextprotocol/server";
import type { McpOptions } from "perdure/mcp";
import { z } from "zod";

const BREAKFAST = {
  type: "object" as const,
  properties: { breakfast: { type: "boolean" as const } },
  required: ["breakfast"],
};

export class Hotel {
  /** In order, each as often as it has happened. */
  readonly ledger: string[] = [];
  readonly keys = new Map<string, string>();
  /** All that were made, the newest last. */
  readonly desks: McpServer[] = [];
  /** What a call does before it answers. */
  delay: (what: string, alive: (progress: number) => Promise<void>) => Promise<void> | void = () => {};
  /** Calls that the server was told to stop. */
  readonly stopped: string[] = [];

  /** A new connection, as each process makes its own. */
  get transport(): () => Transport {
    return () => {
      const [ours, theirs] = InMemoryTransport.createLinkedPair();
      void this.desk().connect(theirs);
      return ours;
    };
  }

  /** The same hotel by HTTP, as the protocol of 2026 has it: no sessions, and questions are answers. */
  overHttp(): Pick<Extract<McpOptions, { url: string | URL }>, "url" | "fetch"> {
    const handler = createMcpHandler(() => this.desk(true));
    return { url: "http://hotel.test/mcp", fetch: (url, init) => handler.fetch(new Request(url, init)) };
  }

  /** @param asksByResult - as servers of 2026 do; earlier ones ask in the middle of a call */
  desk(asksByResult = false): McpServer {
    const desk = new McpServer({ name: "hotel", version: "1.0.0" });
    this.desks.push(desk);
    const text = (said: string) => ({ content: [{ type: "text" as const, text: said }] });
    const room = z.object({ room: z.string() });
    desk.registerTool(
      "look",
      { description: "Looks at a room.", inputSchema: room, annotations: { readOnlyHint: true } },
      async ({ room: wanted }, { mcpReq }) => {
        await this.#work("look", mcpReq);
        return text(`room ${wanted} is nice`);
      },
    );
    desk.registerTool(
      "book",
      { description: "Books a room; twice, if asked twice.", inputSchema: room },
      async ({ room: wanted }, { mcpReq }) => {
        this.ledger.push(`book ${wanted}`);
        await this.#work("book", mcpReq);
        return text(`booked ${wanted}`);
      },
    );
    desk.registerTool(
      "reserve",
      {
        description: "Reserves a room, once for each key.",
        inputSchema: room,
        outputSchema: z.object({ reserved: z.string() }),
        annotations: { idempotentHint: true },
      },
      async ({ room: wanted }, { mcpReq }) => {
        const key = keyOf(mcpReq);
        if (!this.keys.has(key)) this.ledger.push(`reserve ${wanted}`);
        this.keys.set(key, wanted);
        await this.#work("reserve", mcpReq);
        return { ...text(JSON.stringify({ reserved: wanted })), structuredContent: { reserved: wanted } };
      },
    );
    for (const [name, annotations] of [
      ["upgrade", { idempotentHint: true }],
      ["host", {}],
    ] as const) {
      desk.registerTool(
        name,
        { description: "Asks about the breakfast first.", inputSchema: room, annotations },
        async ({ room: wanted }, { mcpReq }) => {
          const params = { message: `Breakfast in ${wanted}?`, requestedSchema: BREAKFAST };
          let reply = inputResponse(mcpReq.inputResponses, "breakfast");
          if (asksByResult && reply.kind === "missing") {
            const inputRequests = { breakfast: inputRequired.elicit(params) };
            return inputRequired({ inputRequests, requestState: `for ${wanted}` });
          }
          if (!asksByResult) {
            const { action, content = {} } = await mcpReq.elicitInput(params);
            reply = { kind: "elicit", action, content };
          }
          if (reply.kind !== "elicit" || reply.action !== "accept") return text(`${wanted} stays as it is`);
          const key = keyOf(mcpReq);
          const did = `${name} ${wanted} ${reply.content?.breakfast === true ? "with" : "without"} breakfast`;
          if (name === "host" || !this.keys.has(key)) this.ledger.push(did);
          this.keys.set(key, wanted);
          return text(did);
        },
      );
    }
    return desk;
  }

  async #work(what: string, { _meta, signal, notify }: ServerContext["mcpReq"]): Promise<void> {
    signal.addEventListener("abort", () => this.stopped.push(what), { once: true });
    await this.delay(what, async (progress) => {
      const progressToken = _meta?.progressToken;
      if (progressToken === undefined) return;
      await notify({ method: "notifications/progress", params: { progressToken, progress } });
    });
  }
}

/** A guest without a key cannot be told from another one, so none is taken in. */
function keyOf({ _meta }: ServerContext["mcpReq"]): string {
  const key = _meta?.["perdure/idempotencyKey"];
  if (typeof key !== "string" || key === "") throw new Error("a call without its idempotency key");
  return key;
}
