/** `perdure why`, on runs in each state: a sentence with the cause, and lines that do what they say when they are pasted. */
import { agent } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, vi } from "vitest";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { command, pasted } from "./rig.ts";
import { bothSay, desk, fetcher, onFile, payer, refused, type Serving, shirt, slow } from "./runs.ts";

/** Resolves when `why` says so, over HTTP. */
async function until(serving: Serving, uid: string, wanted: string | RegExp): Promise<string> {
  const say = async () => (await command(["why", uid, "--url", serving.url])).out;
  await expect.poll(say).toMatch(wanted);
  return await say();
}

describe("a run that has ended", () => {
  it("well: says how long it took, and what it said in the end", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "500");
    const said = await bothSay(serving, ["why", uid]);
    expect(said.code).toBe(0);
    expect(said.out).toMatch(/^Run \S+ of agent desk, thread t\d+, turn 1: success\.$/m);
    expect(said.out).toMatch(
      /^It ended well .* ago, after .* and one leg\. It said in the end: "Done with 500 cents\."$/m,
    );
    expect(pasted(said)).toEqual([["log", uid, "--url", serving.url]]);
  });

  it("failed: names the step, how often and with which error", async () => {
    const serving = await onFile(() => [refused()]);
    const uid = await serving.say("refused", "hello");
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toMatch(
      /^It failed .* ago, after .*: \w+: .+ The model call \S+ \(step 0\) ended with \w+, after its only attempt: /m,
    );
  });

  it("cancelled: says by whom", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    await command(["cancel", uid, "--url", serving.url]);
    expect(await until(serving, uid, "cancelled it;")).toMatch(/^local cancelled it; it ended .* ago, after/m);
  });

  it("cancelled with a write of which nobody knows: says so, and the question stays to be answered", async () => {
    const serving = await onFile(() => [payer().agent]);
    const uid = await serving.say("payer", "go");
    await command(["cancel", uid, "--url", serving.url]);
    await until(serving, uid, "cancelled it;");
    const said = await bothSay(serving, ["why", uid]);
    expect(said.out).toContain('Whether pay {"to":"bob"} (step 1.0) has happened, nobody knew when it ended.');
    expect((await command(pasted(said).find((line) => line.includes("no")) ?? [])).code).toBe(0);
    await expect
      .poll(async () => (await command(["why", uid, "--url", serving.url])).out)
      .not.toContain("perdure answer");
  });
});

describe("a run that waits for a human", () => {
  it("to approve: says what, since when, who may, and the lines that do it", async () => {
    const { agent, ledger } = desk();
    const serving = await onFile(() => [agent]);
    const uid = await serving.say("desk", "20000");
    const said = await bothSay(serving, ["why", uid]);
    expect(said.out).toMatch(
      /^It waits for a human to approve refund \{"cents":20000\} \(step 3\.0\): "Refund 20000 cents\?" Asked .* ago, without an expiry\. To answer takes the scope "answer" and the scope "refund:approve"\.$/m,
    );
    const [approve, reject] = pasted(said);
    expect(approve?.slice(2)).toEqual(["--approve", "--url", serving.url]);
    expect(reject?.slice(2, 4)).toEqual(["--reject", "reason"]);
    const taken = await command(approve ?? []);
    expect(taken).toMatchObject({ code: 0, err: "" });
    await until(serving, uid, "It ended well");
    expect(ledger).toEqual([20000]);
  });

  it("with a schema of its own: the line is an answer that fits", async () => {
    const serving = await onFile(() => [shirt()]);
    const uid = await serving.say("shirt", "one");
    const said = await bothSay(serving, ["why", uid]);
    expect(said.out).toContain('It waits for a human: "Which size?" Asked');
    const [line] = pasted(said);
    expect(line?.slice(2, 4)).toEqual(["--value", '{"size":"S"}']);
    expect((await command(line ?? [])).code).toBe(0);
    expect(await until(serving, uid, "It ended well")).toContain('Its output: {"size":"S"}.');
  });

  it("about a write of which nobody knows: what is known of it, its key, and the three answers", async () => {
    const { agent, heal, paid } = payer();
    const serving = await onFile(() => [agent]);
    const uid = await serving.say("payer", "go");
    const said = await bothSay(serving, ["why", uid]);
    expect(said.out).toMatch(
      /^Nobody knows whether pay \{"to":"bob"\} \(step 1\.0\) has happened\. It failed once .* ago with \w+: .* It is not run again before a human has said so\. Look it up where it acts; its key there is [0-9a-f]{64}\. /m,
    );
    const [yes, no, unknown] = pasted(said);
    expect(yes?.slice(2, 6)).toEqual(["--did", "yes", "--output", '{"receipt":"…"}']);
    expect(no?.slice(2, 4)).toEqual(["--did", "no"]);
    expect(unknown?.slice(2, 4)).toEqual(["--did", "unknown"]);
    heal();
    expect((await command(no ?? [])).code).toBe(0);
    await until(serving, uid, "It ended well");
    expect(paid).toEqual(["bob"]);
  });

  it("who has answered while no server was there: the answer waits, and the question is not asked again", async () => {
    const { agent, ledger } = desk();
    const serving = await onFile(() => [agent]);
    const uid = await serving.say("desk", "9000");
    await serving.stop();
    const [approve] = pasted(await command(["why", uid, "--store", serving.file]));
    expect((await command(approve ?? [])).code).toBe(0);
    const { out } = await command(["why", uid, "--store", serving.file]);
    expect(out).toMatch(
      /^An answer to \S+ by \S+ came in .* ago and waits to be taken: .* when a server opens the store again\.$/m,
    );
    expect(out).not.toContain("perdure answer");
    await serving.start();
    await until(serving, uid, "It ended well");
    expect(ledger).toEqual([9000]);
  });
});

describe("a run that waits for something else", () => {
  it("for its client: says for which call, and that nobody can answer it here", async () => {
    const asking = agent({
      name: "asking",
      model: scriptedModel([{ calls: [{ name: "confirm", input: { what: "it" } }] }, { text: "Fine." }]),
    });
    const serving = await onFile(() => [asking]);
    const tools = [{ name: "confirm", description: "Confirms.", parameters: { type: "object" } }];
    const uid = await serving.say("asking", "go", { tools });
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toMatch(/: waits for its client\.$/m);
    expect(out).toContain('It waits for the client to run confirm {"what":"it"} (step 1.0): the result comes with');
  });

  it("for a signal that its code receives: says which, and how it is sent", async () => {
    const waiting = agent({
      name: "waiting",
      run: async (ctx) => {
        await ctx.ask({ message: "Ready?" });
        await ctx.receive("paid");
      },
    });
    const serving = await onFile(() => [waiting]);
    const uid = await serving.begin("waiting", "go");
    const asked = await until(serving, uid, "Ready?");
    expect(asked).not.toContain("no attempt yet");
    const [answer] = pasted(await command(["why", uid, "--url", serving.url]));
    expect((await command(answer ?? [])).code).toBe(0);
    await until(serving, uid, /: waits for a signal\.$/m);
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toContain(`It waits for the signal paid (step 1): POST /runs/${uid}/signals/paid`);
  });

  it("for a timer of its code: says when it is due", async () => {
    const sleeping = agent({ name: "sleeping", run: async (ctx) => await ctx.sleep("10m") });
    const serving = await onFile(() => [sleeping]);
    const uid = await serving.begin("sleeping", "go");
    await until(serving, uid, /: waits for a timer, due in \d+ min\.$/m);
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toMatch(/^It rests until its timer is due, in \d+ min\.$/m);
    expect(out).not.toContain("no attempt yet");
  });

  it("for the time of its next try: how often it has failed, with what, and when it is tried again", async () => {
    const serving = await onFile(() => [fetcher()]);
    const uid = await serving.begin("fetcher", "go");
    await until(serving, uid, /: waits for a timer, due in 9 min\.$/m);
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toMatch(
      /^The read look \{"url":"http:\/\/a"\} \(step 1\.0\) failed once .* ago with UPSTREAM: the upstream is down\. It is tried again in 9 min\.$/m,
    );
  });

  it("for nothing: which attempt has no outcome yet, until when it has, and what follows if it died", async () => {
    const { agent, go } = slow();
    const serving = await onFile(() => [agent]);
    const uid = await serving.begin("slow", "go");
    await until(serving, uid, "Attempt 1 of the write");
    const { out } = await bothSay(serving, ["why", uid]);
    expect(out).toMatch(/: running\.$/m);
    expect(out).toMatch(
      /^Attempt 1 of the write move \{"to":"there"\} \(step 1\.0\) began .* ago and has no outcome yet, and has until in 59 min\. It runs, or its process has died: .* finds out whether it happened, and never guesses\.$/m,
    );
    go();
    await until(serving, uid, "It ended well");
  });
});

describe("a run whose log cannot be read", () => {
  it("is said to be set aside, with the cause and how much of it can be read", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    await serving.stop();
    const db = new SqliteDatabase(await loadDriver(), serving.file);
    db.exec("UPDATE log SET entry = substr(entry, 1, 20) WHERE seq = 5");
    db.close();
    const found = await command(["why", uid, "--store", serving.file]);
    expect(found.out).toMatch(/^Its log cannot be read, and nobody has set it aside yet: entry 5 of run/m);
    await serving.start();
    // Where a stream breaks off, the HTTP adapter says so there.
    const said = vi.spyOn(console, "error").mockImplementation(() => {});
    const { code, out } = await command(["why", uid, "--url", serving.url]);
    expect(code).toBe(0);
    expect((await bothSay(serving, ["why", uid])).code).toBe(0);
    said.mockRestore();
    expect(out).toMatch(/: set aside\.$/m);
    expect(out).toMatch(
      /because its log cannot be read: entry 5 of run .* restore it from a backup\. No driver gets it/,
    );
    for (const kind of ["cancel", "abandon"]) {
      const refusal = await command([kind, uid, "--url", serving.url]);
      expect(refusal).toMatchObject({ code: 1, out: "", err: expect.stringContaining("(RUN_SET_ASIDE)") });
    }
  });
});
