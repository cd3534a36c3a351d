import { spawnSync } from "node:child_process";
import { join } from "node:path";
import type { McpServer as HotelDesk } from "@modelcontextprotocol/server";
import { agent, createRuntime, memory } from "perdure";
import { mcp } from "perdure/mcp";
import { sqlite } from "perdure/sqlite";
import { scriptedModel, toolContext } from "perdure/testing";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { asking } from "../runtime/asking.ts";
import { everything as everythingCommand } from "./commands.ts";
import { Hotel } from "./hotel.ts";
import { connected, everythingOverHttp, folder, known, never } from "./servers.ts";

const keyed = () => toolContext({ idempotencyKey: "k" });

describe("a connection", () => {
  it("is made at first need, once for all who need it, and again when it has ended", async () => {
    const hotel = new Hotel();
    const server = connected({ transport: hotel.transport });
    expect(hotel.desks).toHaveLength(0);
    await Promise.all([server.ready(never), server.ready(never)]);
    expect(hotel.desks).toHaveLength(1);
    await hotel.desks[0]?.close();
    await known(server, "look").callJson({ room: "1" }, toolContext());
    expect(hotel.desks).toHaveLength(2);
  });

  it("that drops in a call leaves a write unknown, and lets what may be repeated be tried again", async () => {
    const hotel = new Hotel();
    const server = connected({ transport: hotel.transport });
    await server.ready(never);
    hotel.delay = () => hotel.desks.at(-1)?.close();
    const dropped = (name: string) => known(server, name).callJson({ room: "1" }, keyed());
    await expect(dropped("book")).rejects.toMatchObject({ code: "MCP_CUT", applied: "unknown" });
    await expect(dropped("reserve")).rejects.toMatchObject({ code: "MCP_CUT", applied: "unknown", retryable: true });
    await expect(dropped("look")).rejects.toMatchObject({ code: "MCP_CUT", applied: "no", retryable: true });
  });

  it("that cannot be made has applied nothing, and says what the process wrote", async () => {
    const server = mcp({
      ...{ command: process.execPath, args: ["-e", "console.error('no database'); process.exit(1)"] },
      onWarning: () => {},
    });
    onTestFinished(() => server.close());
    await expect(server.ready(never)).rejects.toMatchObject({
      code: "MCP_UNAVAILABLE",
      message: expect.stringContaining("no database"),
    });
  });

  it("whose session the server has forgotten is made anew, and the call is sent again: it was not looked at", async () => {
    const first = await everythingOverHttp();
    const server = connected({ url: first.url, onWarning: () => {} });
    await server.ready(never);
    first.child.kill("SIGKILL");
    await new Promise((resolve) => first.child.once("exit", resolve));
    await everythingOverHttp(first.port);
    expect(await known(server, "echo").callJson({ message: "again" }, keyed())).toMatchObject({
      output: "Echo: again",
    });
  });
});

describe("a process", () => {
  it.runIf(process.platform !== "win32")(
    "goes with all that it has started, also what does not leave when asked",
    async () => {
      // A shell that starts the server and stays, as npx does; and a stubborn child of it.
      const line = `trap '' TERM; sleep 1000 & echo $! >&2; "$0" "$1"; wait`;
      const [entry = ""] = everythingCommand.args;
      const server = connected({ command: "sh", args: ["-c", line, process.execPath, entry] });
      await server.ready(never);
      const pids = stubborn();
      expect(pids.length).toBeGreaterThan(0);
      await server.close();
      await vi.waitFor(() => expect(pids.filter(lives)).toEqual([]), { timeout: 20_000 });
    },
  );
});

/** Our `sleep 1000`, among the processes of this machine. */
function stubborn(): number[] {
  const { stdout } = spawnSync("ps", ["-eo", "pid,ppid,args"], { encoding: "utf8" });
  const rows = stdout.split("\n").map((row) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row) ?? []);
  const ours = rows.filter(([, , ppid]) => Number(ppid) === process.pid).map(([, pid]) => pid);
  return rows.filter(([, , ppid, args]) => args === "sleep 1000" && ours.includes(ppid)).map(([, pid]) => Number(pid));
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe("a call", () => {
  it("that is stopped is told to the server", async () => {
    const hotel = new Hotel();
    const server = connected({ transport: hotel.transport });
    await server.ready(never);
    const stop = new AbortController();
    hotel.delay = async () => {
      stop.abort(new Error("enough"));
      await vi.waitFor(() => expect(hotel.stopped).toEqual(["look"]), { timeout: 20_000 });
    };
    const call = known(server, "look").callJson({ room: "1" }, toolContext({ signal: stop.signal }));
    await expect(call).rejects.toMatchObject({ applied: "no" });
    await vi.waitFor(() => expect(hotel.stopped).toEqual(["look"]), { timeout: 20_000 });
  });

  it("whose server is silent for too long has failed; its progress is a sign of life", async () => {
    const hotel = new Hotel();
    const server = connected({ transport: hotel.transport, defaults: { idleTimeout: "2s" } });
    await server.ready(never);
    hotel.delay = () => new Promise(() => {});
    await expect(known(server, "book").callJson({ room: "1" }, keyed())).rejects.toMatchObject({
      code: "MCP_TIMEOUT",
      applied: "unknown",
    });
    hotel.delay = async (_, alive) => {
      // Longer in all than it may be silent.
      for (let i = 0; i < 8; i++) {
        await new Promise((resolve) => setTimeout(resolve, 300));
        await alive(i);
      }
    };
    const ctx = keyed();
    expect(await known(server, "book").callJson({ room: "2" }, ctx)).toMatchObject({ output: "booked 2" });
    expect(ctx.events).toHaveLength(8);
  });
});

describe("the protocol of 2026 over HTTP", () => {
  it("is spoken with whoever speaks it", async () => {
    const hotel = new Hotel();
    const server = connected(hotel.overHttp());
    await server.ready(never);
    expect(await known(server, "reserve").callJson({ room: "7" }, keyed())).toEqual({
      type: "output",
      output: { reserved: "7" },
    });
    expect([...hotel.keys.keys()]).toEqual(["k"]);
  });
});

describe("tools that change", () => {
  it("are offered from the next model step on; those of the calls between stay as the model was offered them", async () => {
    const hotel = new Hotel();
    const server = connected({ transport: hotel.transport });
    const offered: string[][] = [];
    hotel.delay = async () => {
      const desk = hotel.desks.at(-1) as HotelDesk;
      desk.registerTool("spa", { description: "Books the spa.", inputSchema: z.object({}) }, () => ({ content: [] }));
      // The list is asked for anew while the call goes on.
      await vi.waitFor(() => expect(server.tools.map(({ name }) => name)).toContain("spa"), { timeout: 20_000 });
    };
    const model = scriptedModel(({ tools, turn }) => {
      offered.push([...tools]);
      return turn === 0 ? { calls: [{ name: "look", input: { room: "1" } }] } : { text: "Done." };
    });
    const runtime = createRuntime({ agents: [agent({ name: "traveller", model, tools: [server] })], store: memory() });
    onTestFinished(() => runtime.close());
    const body = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] };
    expect((await asking(runtime)("/agents/traveller", body)).text).toContain("RUN_FINISHED");
    expect(offered).toHaveLength(2);
    expect(offered[0]).not.toContain("spa");
    expect(offered[1]).toEqual([...(offered[0] ?? []), "spa"]);
  });

  it("that no model can call are left out, with a warning; an override that fits none is warned of, too", async () => {
    const hotel = new Hotel();
    const warnings: string[] = [];
    const server = connected({
      transport: hotel.transport,
      exclude: ["upgrade", "host"],
      tools: { reserve: { name: "book" }, burn: { approval: true } },
      onWarning: (warning) => warnings.push(warning),
    });
    await server.ready(never);
    expect(server.tools.map(({ name }) => name)).toEqual(["look", "book"]);
    expect(warnings).toEqual([
      expect.stringContaining('no tool "burn"'),
      expect.stringContaining('"reserve" is left out: another of its tools is called book here'),
    ]);
  });
});

describe("an agent whose server cannot be reached", () => {
  it("ends its run with TOOLS_UNAVAILABLE: a model that lacks some of its tools would make do without them", async () => {
    const reported: unknown[] = [];
    const runtime = createRuntime({
      agents: [
        agent({
          name: "traveller",
          model: scriptedModel([{ text: "Done." }]),
          tools: [mcp({ command: "/no/such/server" })],
        }),
      ],
      onError: (error) => reported.push(error),
    });
    onTestFinished(() => runtime.close());
    const body = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] };
    const said = (await asking(runtime)("/agents/traveller", body)).text;
    expect(said).toContain('"code":"TOOLS_UNAVAILABLE"');
    expect(said).not.toContain("/no/such/server");
    expect(reported).toMatchObject([{ message: expect.stringContaining("/no/such/server") }]);
  });

  it("keeps a run that has unfinished calls until the server is back, and then goes on with them", async () => {
    const hotel = new Hotel();
    const file = join(folder(), "runs.db");
    const reported: unknown[] = [];
    let isUp = true;
    const deployed = () => {
      const transport = () => {
        if (!isUp) throw new Error("the hotel is closed");
        return hotel.transport();
      };
      const model = scriptedModel([{ calls: [{ name: "book", input: { room: "12" } }] }, { text: "Done." }]);
      const tools = [mcp({ transport, tools: { book: { approval: true } } })];
      const runtime = createRuntime({
        agents: [agent({ name: "traveller", model, tools })],
        store: sqlite(file),
        onError: (error) => reported.push(error),
      });
      onTestFinished(() => runtime.close());
      return runtime;
    };
    const first = deployed();
    const body = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] };
    expect((await asking(first)("/agents/traveller", body)).text).toContain("Run book?");
    await first.close();
    isUp = false;
    const ask = asking(deployed());
    const [question] = (JSON.parse((await ask("/inbox")).text) as { interrupts: { id: string }[] }).interrupts;
    const resume = [{ interruptId: question?.id, status: "resolved", payload: { approved: true } }];
    const answering = ask("/agents/traveller", { threadId: "t", runId: "r2", messages: [], resume });
    await vi.waitFor(() => expect(reported[0]).toMatchObject({ code: "TOOLS_UNAVAILABLE" }), { timeout: 30_000 });
    expect(hotel.ledger).toEqual([]);
    isUp = true;
    expect((await answering).text).toContain("booked 12");
    expect(hotel.ledger).toEqual(["book 12"]);
  });
});
