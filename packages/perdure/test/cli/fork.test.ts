import { type Agent, agent } from "perdure";
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
    const model = await command(["fork", uid, "--model", "terse", ...where]);
    expect([model.code, model.err]).toEqual([1, expect.stringContaining('no model named "terse"')]);
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

describe("a run whose code does something else than it did", () => {
  const effects: string[] = [];
  const shopOf = (name: string, ask: string): Agent =>
    agent({
      name: "shop",
      async run(ctx) {
        await ctx.once("load", { effect: "read" }, () => 1);
        await ctx.once(name, () => void effects.push(name));
        await ctx.ask({ message: ask });
        return name;
      },
    }) as Agent;

  it("is explained with the command that forks it where they part, and with what that would do once more", async () => {
    let now = shopOf("pay", "Go on?");
    const serving = await onFile(() => [now]);
    const uid = await serving.say("shop", "go");
    await serving.stop();
    now = shopOf("book", "Go on?");
    await serving.start();
    const where = ["--url", serving.url];
    const [answer] = pasted(await command(["why", uid, ...where]));
    await command([...(answer ?? []).slice(0, 2), "--value", "1", ...where]);
    await expect.poll(async () => (await command(["why", uid, ...where])).out).toContain("waits for an operator");
    const said = await command(["why", uid, ...where]);
    expect(said.out).toMatch(
      /Both agree up to entry \d+: a fork from there goes on under the new code; it would do once more pay \(step 1\), which was applied\.$/m,
    );
    const lines = pasted(said);
    expect(lines.map((words) => words[0])).toEqual(["answer", "answer", "fork"]);
    const forked = await command(lines[2] ?? []);
    expect(forked.code, forked.err).toBe(0);
    expect(forked.out).toMatch(/^Forked behind entry \d+: run \S+ of agent shop goes on from there\.$/m);
    await expect.poll(() => effects).toEqual(["pay", "book"]);

    // The same as an answer: it is none, and the question stays.
    const id = lines[0]?.[1] ?? "";
    const value = (more: object) => ["--value", JSON.stringify({ action: "fork", ...more })];
    const refused = await command(["answer", id, ...value({}), ...where]);
    expect([refused.code, refused.err]).toEqual([1, expect.stringContaining("WRITES_NOT_ACKNOWLEDGED")]);
    const done = await command(["answer", id, ...value({ acknowledge: ["pay"] }), ...where]);
    expect(done.out).toMatch(new RegExp(`^Run ${uid} stays where it is, and so does its question ${id}`, "m"));
    expect(pasted(done).at(-1)?.slice(0, 2)).toEqual(["abandon", uid]);
    await expect.poll(() => effects).toEqual(["pay", "book", "book"]);
    await serving.stop();
    const file = await command(["answer", id, ...value({ acknowledge: ["pay"] }), "--store", serving.file]);
    expect([file.code, file.err]).toEqual([1, expect.stringContaining("only a server has")]);
    const still = await command(["why", uid, "--store", serving.file]);
    expect(pasted(still).map((words) => words[0])).toEqual(["answer", "answer", "fork"]);
  });
});
