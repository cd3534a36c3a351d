import { describe, expect, it } from "vitest";
import type { RunFixture } from "../../src/log/fixture.ts";
import { desk } from "../http/desk.ts";
import { ended } from "../http/rig.ts";
import { command, pasted } from "./rig.ts";
import { onFile } from "./runs.ts";

describe("perdure fork", () => {
  it("begins a run of its own on a server, says where, and ends with the lines to look at it", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "500");
    const where = ["--url", serving.url];
    const refused = await command(["fork", uid, "--at", "3", ...where]);
    expect(refused.code).toBe(1);
    expect(refused.err).toContain("WRITES_NOT_ACKNOWLEDGED");
    expect(refused.err).toMatch(/^ {2}writes: .*"name":"refund"/m);
    const words = ["--at", "3", "--thread", "f", "--instructions", "Be brief.", "--acknowledge", "refund"];
    const said = await command(["fork", uid, ...words, ...where]);
    expect(said.code, said.err).toBe(0);
    const { uid: fork } = await ended(serving.url, "f");
    expect(said.out).toMatch(/^Forked behind entry \d+: run [0-9a-f-]{36} of agent desk goes on from there\.$/m);
    expect(pasted(said)).toEqual([
      ["log", fork, "--follow", ...where],
      ["why", fork, ...where],
    ]);
    const nonsense = await command(["fork", uid, "--state", "{", ...where]);
    expect([nonsense.code, nonsense.err]).toEqual([2, expect.stringContaining("--state is not JSON")]);
    const file = await command(["fork", uid, "--store", serving.file]);
    expect([file.code, file.err]).toEqual([2, expect.stringContaining("only a server has")]);
  });
});

describe("perdure export", () => {
  it("prints a fixture, of a server and of a file, with what is secret hidden", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "500");
    const served = JSON.parse((await command(["export", uid, "--url", serving.url])).out) as RunFixture;
    expect(served).toMatchObject({ perdure: "run", version: 1, run: uid, agent: "desk" });
    expect(Object.keys(served.asked)).toEqual(["0", "2", "4"]);
    const filed = JSON.parse((await command(["export", uid, "--store", serving.file])).out) as RunFixture;
    expect(filed).toEqual({ ...served, asked: {} });
    const hidden = await command(["export", uid, "--url", serving.url, "--redact", "\\d+"]);
    expect((JSON.parse(hidden.out) as RunFixture).logs[0]?.[1]).toMatchObject({
      request: { messages: [{ content: "[redacted]" }] },
    });
    expect((await command(["export", uid, "--url", serving.url, "--redact", "("])).code).toBe(2);
    await command(["prune", uid, "--url", serving.url]);
    expect((await command(["export", uid, "--url", serving.url])).err).toContain("RUN_PRUNED");
  });
});
