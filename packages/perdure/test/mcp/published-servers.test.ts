import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { toolContext } from "perdure/testing";
import { describe, expect, it } from "vitest";
import {
  connected,
  everything,
  everythingOverHttp,
  filesystem,
  folder,
  known,
  memoryServer,
  never,
} from "./servers.ts";

describe("server-filesystem", () => {
  it("is what it hints: reads are read, what it may repeat is idempotent, and the rest is a write", async () => {
    const server = filesystem(realpathSync(folder()));
    await server.ready(never);
    const effects = Object.fromEntries(server.tools.map(({ name, effect }) => [name, effect]));
    expect(effects).toMatchObject({
      read_text_file: "read",
      list_directory: "read",
      write_file: "idempotent",
      create_directory: "idempotent",
      edit_file: "write",
      move_file: "write",
    });
  });

  it("writes and reads, under a prefix, and its structured content is the output", async () => {
    const dir = realpathSync(folder());
    const server = filesystem(dir, { name: "files" });
    await server.ready(never);
    const path = join(dir, "a.txt");
    const ctx = toolContext({ idempotencyKey: "k" });
    const written = await known(server, "files_write_file").callJson({ path, content: "hello" }, ctx);
    expect(written).toMatchObject({
      type: "output",
      output: { content: expect.stringContaining("Successfully wrote") },
    });
    expect(readFileSync(path, "utf8")).toBe("hello");
    const read = await known(server, "files_read_text_file").callJson({ path }, toolContext());
    expect(read).toEqual({ type: "output", output: { content: "hello" } });
  });

  it("answers an error that says nothing of the world: unknown for a write, unless the operator knows better", async () => {
    const dir = realpathSync(folder());
    const path = join(dir, "a.txt");
    writeFileSync(path, "hello");
    const edit = { path, edits: [{ oldText: "not there", newText: "x" }] };
    const ctx = toolContext({ idempotencyKey: "k" });
    const careful = filesystem(dir);
    await careful.ready(never);
    await expect(known(careful, "edit_file").callJson(edit, ctx)).rejects.toMatchObject({
      code: "MCP_TOOL_ERROR",
      applied: "unknown",
      message: expect.stringContaining("Could not find exact match"),
    });
    const informed = filesystem(dir, { tools: { edit_file: { errorsMean: "notApplied" } } });
    await informed.ready(never);
    await expect(known(informed, "edit_file").callJson(edit, ctx)).rejects.toMatchObject({ applied: "no" });
  });

  it("has only the tools that are wanted, with the effects that the operator gives them", async () => {
    const server = filesystem(realpathSync(folder()), {
      include: ["write_file", "read_text_file", "move_file"],
      exclude: ["move_file"],
      tools: { write_file: { effect: "write", name: "save", approval: true, timeout: "1m" } },
    });
    await server.ready(never);
    expect(server.tools.map(({ name, effect, mayNeedApproval }) => [name, effect, mayNeedApproval])).toEqual([
      ["read_text_file", "read", false],
      ["save", "write", true],
    ]);
    expect(known(server, "save").policy.timeout).toBe(60_000);
  });
});

describe("server-everything", () => {
  it.each(["stdio", "streamable HTTP"])("gives text, structure, images and links over %s", async (way) => {
    const server =
      way === "stdio" ? everything() : connected({ url: (await everythingOverHttp()).url, onWarning: () => {} });
    await server.ready(never);
    const call = (name: string, input: object) =>
      known(server, name).callJson(input as never, toolContext({ idempotencyKey: "k" }));
    expect(await call("echo", { message: "hi" })).toEqual({ type: "output", output: "Echo: hi" });
    expect(await call("get-structured-content", { location: "New York" })).toEqual({
      type: "output",
      output: { temperature: 33, conditions: "Cloudy", humidity: 82 },
    });
    expect(await call("get-tiny-image", {})).toMatchObject({
      output: { content: [{ type: "text" }, { type: "image", mimeType: "image/png" }, { type: "text" }] },
    });
    expect(await call("get-resource-links", { count: 1 })).toMatchObject({
      output: { content: [{ type: "text" }, { type: "resource_link" }] },
    });
  });

  it("tells of its progress", async () => {
    const server = everything();
    await server.ready(never);
    const ctx = toolContext({ idempotencyKey: "k" });
    await known(server, "trigger-long-running-operation").callJson({ duration: 0.2, steps: 2 }, ctx);
    expect(ctx.events).toMatchObject([
      { name: "perdure.progress", value: { value: { progress: 1, total: 2 } } },
      { name: "perdure.progress", value: { value: { progress: 2, total: 2 } } },
    ]);
  });
});

describe("server-memory", () => {
  it("keeps what it is told, for whoever starts it next", async () => {
    const file = join(folder(), "memory.jsonl");
    const first = connected(memoryServer(file));
    await first.ready(never);
    const entities = [{ name: "Ada", entityType: "person", observations: ["wrote the first program"] }];
    await known(first, "create_entities").callJson({ entities }, toolContext({ idempotencyKey: "k" }));
    await first.close();
    await first.ready(never);
    const read = await known(first, "read_graph").callJson({}, toolContext());
    expect(read).toMatchObject({ output: { entities, relations: [] } });
  });
});
