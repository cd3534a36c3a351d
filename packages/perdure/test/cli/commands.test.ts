/** The commands beside `why`: what they say to people and to programs, and how they end. */
import { describe, expect, it } from "vitest";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { BOSS } from "../http/desk.ts";
import { as, byHeader, deferred, served } from "../http/rig.ts";
import { command, commandProcess, pasted } from "./rig.ts";
import { bothSay, desk, onFile, payer, type Serving, shirt, slow } from "./runs.ts";

const parsed = <T>(text: string): T => JSON.parse(text) as T;

/** A question, answered on a command line. */
async function answered(serving: Serving, id: string, ...how: readonly string[]) {
  return await command(["answer", id, ...how, "--url", serving.url]);
}

async function questionOf(serving: Serving, run: string): Promise<string> {
  const { out } = await command(["inbox", "--json", "--url", serving.url]);
  const { interrupts } = parsed<{ interrupts: { id: string; run: string }[] }>(out);
  return interrupts.find((question) => question.run === run)?.id ?? "";
}

describe("perdure ls", () => {
  it("lists runs newest first with what each waits for, filters, pages, and ends with a line about one to look at", async () => {
    const moving = slow();
    const serving = await onFile(() => [desk().agent, moving.agent]);
    const done = await serving.say("desk", "500");
    const waiting = await serving.say("desk", "9000");
    const running = await serving.begin("slow", "go");
    const said = await bothSay(serving, ["ls"]);
    const lines = said.out.split("\n").map((line) => line.split(/ {2,}/));
    expect(lines[0]).toEqual(["RUN", "STATE", "AGENT", "THREAD", "BEGAN"]);
    expect(lines.slice(1, 4).map(([uid, state, agent]) => [uid, state, agent])).toEqual([
      [running, "running", "slow"],
      [waiting, "waits for a human", "desk"],
      [done, "success", "desk"],
    ]);
    expect(pasted(said)).toEqual([["why", running, "--url", serving.url]]);

    const uids = async (...filter: readonly string[]) =>
      parsed<{ runs: { uid: string }[] }>((await bothSay(serving, ["ls", "--json", ...filter])).out).runs.map(
        ({ uid }) => uid,
      );
    expect(await uids("--agent", "desk")).toEqual([waiting, done]);
    expect(await uids("--state", "human")).toEqual([waiting]);
    expect(await uids("--state", "parked")).toEqual([waiting]);
    expect(await uids("--state", "success", "--limit", "1")).toEqual([done]);
    expect(await uids("--state", "failed")).toEqual([]);

    const seen: string[] = [];
    for (let words: string[] | undefined = ["ls", "--limit", "1", "--store", serving.file]; words !== undefined; ) {
      const page = await command(words);
      seen.push(...page.out.split("\n").flatMap((line) => /^[0-9a-f-]{36}/.exec(line)?.[0] ?? []));
      words = pasted(page).find(([name]) => name === "ls");
    }
    expect(seen).toEqual([running, waiting, done]);
    moving.go();
  });
});

describe("perdure log", () => {
  it("says one entry a line, and with --json is the log itself", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "500");
    const { out } = await bothSay(serving, ["log", uid]);
    const lines = out.split("\n");
    expect(lines[0]).toMatch(/^ {4}0 {5}\+0\.000s {2}run\.started +- +desk, turn 1, of thread t\d+, local$/);
    expect(out).toMatch(/step\.started +3\.0 +tool refund, write, call 0 of model step 2$/m);
    const raw = (await bothSay(serving, ["log", uid, "--json"])).out.trim().split("\n");
    const response = await fetch(`${serving.url}/runs/${uid}/log`);
    expect(`${raw.join("\n")}\n`).toBe(await response.text());
    const facts = (await bothSay(serving, ["log", uid, "--json", "--facts", "--after", "3"])).out.trim().split("\n");
    expect(facts).toEqual(raw.slice(4).filter((line) => !line.includes('"kind":"frame"')));
  });

  it.each(["--url", "--store"])("--follow stays until the run has ended: %s", async (flag) => {
    const moving = slow();
    const serving = await onFile(() => [moving.agent]);
    const uid = await serving.begin("slow", "go");
    const begun = deferred();
    const following = command(["log", uid, "--follow", flag, flag === "--url" ? serving.url : serving.file], {
      heard: (out) => /step\.attempt +1\.0/.test(out) && begun.resolve(),
    });
    await begun.promise;
    moving.go();
    const { code, out } = await following;
    expect(code).toBe(0);
    expect(out).toMatch(/run\.finished +- +success$/m);
  });

  it("a follower that leaves ends well; one that its server leaves is told that the run goes on", async () => {
    const { agent } = slow();
    const serving = await onFile(() => [agent]);
    const uid = await serving.begin("slow", "go");
    const stop = new AbortController();
    const leaving = command(["log", uid, "--follow", "--url", serving.url], {
      stop: stop.signal,
      heard: (out) => /step\.attempt +1\.0/.test(out) && stop.abort(),
    });
    expect((await leaving).code).toBe(0);
    const begun = deferred();
    const left = command(["log", uid, "--follow", "--url", serving.url], {
      heard: (out) => /step\.attempt +1\.0/.test(out) && begun.resolve(),
    });
    await begun.promise;
    await serving.stop();
    expect(await left).toMatchObject({ code: 1, err: expect.stringMatching(/\((LOG_CUT|SERVER_UNREACHABLE)\)/) });
  });
});

describe("perdure inbox and answer", () => {
  it("lists what waits for an answer with the lines that give it; none when none does", async () => {
    const serving = await onFile(() => [desk().agent]);
    expect((await bothSay(serving, ["inbox"])).out).toMatch(/^Nobody waits for an answer\.\n\n {2}perdure ls /);
    const uid = await serving.say("desk", "20000");
    const said = await bothSay(serving, ["inbox"]);
    expect(said.out).toMatch(/^approval {2}Refund 20000 cents\?$\n^ {2}refund \{"cents":20000\}$/m);
    expect(said.out).toMatch(new RegExp(`asked .* ago by desk, thread t\\d+, run ${uid}, needs scope ${BOSS}$`, "m"));
    expect(pasted(said).map((words) => words.slice(2, -2))).toEqual([["--approve"], ["--reject", "reason"]]);
  });

  it("approves with other arguments, and rejects with a reason that the model is told", async () => {
    const { agent, ledger } = desk();
    const serving = await onFile(() => [agent]);
    const [edited, rejected] = [await serving.say("desk", "9000"), await serving.say("desk", "8000")];
    expect(await answered(serving, await questionOf(serving, edited), "--edit", '{"cents":7000}')).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Taken: /),
    });
    await answered(serving, await questionOf(serving, rejected), "--reject", "too much");
    const log = async (uid: string) => (await command(["log", uid, "--url", serving.url])).out;
    await expect.poll(() => log(edited)).toContain("run.finished");
    await expect.poll(() => log(rejected)).toContain("rejected by the user: too much");
    expect(ledger).toEqual([7000]);
  });

  it("says that a write has happened, with what it returned", async () => {
    const { agent, paid } = payer();
    const serving = await onFile(() => [agent]);
    const uid = await serving.say("payer", "go");
    const id = await questionOf(serving, uid);
    const wrong = await answered(serving, id, "--did", "yes", "--output", '{"paid":1}');
    expect(wrong).toMatchObject({ code: 1, out: "", err: expect.stringMatching(/\(ANSWER_INVALID\)\n.*issues: /s) });
    expect((await answered(serving, id, "--did", "yes", "--output", '{"receipt":"R-9"}')).code).toBe(0);
    await expect
      .poll(async () => (await command(["log", uid, "--url", serving.url])).out)
      .toMatch(/step\.finished +1\.0 +ok, via answer, \{"receipt":"R-9"\}$/m);
    expect(paid).toEqual([]);
  });

  it("the same answer again is nothing to do; another one learns who was first, for programs too", async () => {
    const serving = await onFile(() => [shirt()]);
    const id = await questionOf(serving, await serving.say("shirt", "one"));
    await answered(serving, id, "--value", '{"size":"S"}');
    expect((await answered(serving, id, "--value", '{"size":"S"}')).out).toMatch(/^Nothing to do: /);
    const late = await answered(serving, id, "--value", '{"size":"M"}');
    expect(late).toMatchObject({
      code: 1,
      err: expect.stringMatching(
        /^perdure: local has answered .* \(INTERRUPT_ANSWERED\)\n {2}status: resolved\n {2}by: local\n {2}at: \d{4}-/,
      ),
    });
    const { err } = await answered(serving, id, "--value", '{"size":"M"}', "--json");
    expect(parsed(err)).toMatchObject({
      error: { code: "INTERRUPT_ANSWERED", details: { status: "resolved", by: "local" } },
    });
  });

  it("a file that a server owns is not written to, and the refusal says what to do", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    for (const words of [
      ["answer", await questionOf(serving, uid), "--approve"],
      ["cancel", uid],
      ["abandon", uid],
    ]) {
      const refusal = await command([...words, "--store", serving.file]);
      expect(refusal).toMatchObject({ code: 1, out: "" });
      expect(refusal.err).toMatch(
        new RegExp(
          `^perdure: process ${process.pid} drives store .* with --url instead of --store \\(STORE_LOCKED\\)$`,
          "m",
        ),
      );
    }
    expect((await command(["why", uid, "--store", serving.file])).out).toContain("It waits for a human");
  });

  it("of the file, when no server has it: a wrong answer is refused, a right one is taken once", async () => {
    const serving = await onFile(() => [shirt()]);
    const id = await questionOf(serving, await serving.say("shirt", "one"));
    await serving.stop();
    const say = (size: string) => command(["answer", id, "--value", `{"size":"${size}"}`, "--store", serving.file]);
    expect(await say("XXL")).toMatchObject({ code: 1, err: expect.stringContaining("(ANSWER_INVALID)") });
    expect(await say("S")).toMatchObject({ code: 0, out: expect.stringMatching(/^Taken/) });
    expect(await say("S")).toMatchObject({ code: 0, out: expect.stringMatching(/^Nothing to do/) });
    expect(await say("M")).toMatchObject({ code: 1, err: expect.stringContaining("(INTERRUPT_ANSWERED)") });
  });
});

describe("perdure cancel and abandon", () => {
  it("are taken, say what they mean, and are too late for what has ended", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    const said = await command(["cancel", uid, "--url", serving.url]);
    expect(said).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Taken: run \S+ is to end as cancelled\.\nModel calls/),
    });
    expect(pasted(said)).toEqual([["why", uid, "--url", serving.url]]);
    await expect.poll(async () => (await command(["why", uid, "--url", serving.url])).out).toContain("cancelled it;");
    const late = await command(["cancel", uid, "--url", serving.url, "--json"]);
    expect(parsed(late.out)).toMatchObject({ taken: false, run: { state: "cancelled" } });
    expect((await command(["abandon", uid, "--url", serving.url])).out).toContain("has ended already (cancelled)");
  });

  it("abandon reaches the log with who gave it up, also of a file that no server has", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    await serving.stop();
    const said = await command(["abandon", uid, "--store", serving.file]);
    expect(said).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^Taken: run \S+ is to end as abandoned\.\nNothing of it runs again\./),
    });
    expect((await command(["why", uid, "--store", serving.file])).out).toMatch(/^An abandon by \S+ came in/m);
    await serving.start();
    await expect
      .poll(async () => (await command(["log", uid, "--url", serving.url])).out)
      .toMatch(/inbox\.taken +- +abandon by \S+$/m);
  });
});

describe("perdure verify", () => {
  it("reads everything, counts it, and ends with 1 when something is wrong, naming run and entry", async () => {
    const serving = await onFile(() => [desk().agent]);
    const [sound, broken] = [await serving.say("desk", "500"), await serving.say("desk", "9000")];
    expect(await command(["verify", "--store", serving.file])).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^2 runs with \d+ entries read: no fault\.$/m),
    });
    await serving.stop();
    const db = new SqliteDatabase(await loadDriver(), serving.file);
    db.exec(
      `UPDATE log SET entry = '{"kind":"zap"}' WHERE seq = 7 AND run = (SELECT id FROM runs WHERE uid = '${broken}')`,
    );
    db.close();
    const said = await command(["verify", "--store", serving.file]);
    expect(said.code).toBe(1);
    expect(said.out).toMatch(new RegExp(`^Run ${broken}: entry 7 of run ${broken} cannot be read: `, "m"));
    expect(said.out).not.toContain(sound);
    expect(pasted(said)).toEqual([["why", broken, "--store", serving.file]]);
    const { code, out } = await command(["verify", "--store", serving.file, "--json"]);
    expect(code).toBe(1);
    expect(parsed(out)).toMatchObject({ runs: 2, faults: [{ run: broken, why: expect.stringContaining("entry 7") }] });
  });
});

describe("what goes wrong", () => {
  const nowhere = "00000000-0000-7000-8000-000000000000";

  it("what is not there is 1, the same over HTTP and of the file, and says where to look", async () => {
    const serving = await onFile(() => [desk().agent]);
    await serving.say("desk", "500");
    for (const words of [["why"], ["log"]]) {
      const said = await bothSay(serving, [...words, nowhere]);
      expect(said).toMatchObject({ code: 1, out: "" });
      expect(said.err).toBe(`perdure: there is no run ${nowhere} (RUN_NOT_FOUND)\n  perdure ls --url ${serving.url}\n`);
    }
    const said = await command(["answer", "nothing", "--approve", "--url", serving.url]);
    expect(said).toMatchObject({
      code: 1,
      err: expect.stringContaining("there is no interrupt nothing (INTERRUPT_NOT_FOUND)\n  perdure inbox"),
    });
  });

  it.each([
    [["ls"], "say where the runs are"],
    [["ls", "--url", "ftp://a"], "is not the address of a server"],
    [["ls", "--url", "http://a", "--store", "b"], "cannot be used with"],
    [["ls", "--url", "http://a", "--state", "odd"], "Allowed choices are"],
    [["ls", "--url", "http://a", "--limit", "many"], "It is not a whole number."],
    [["ls", "--url", "http://a", "--header", "secret"], 'write it as "name: value"'],
    [["verify", "--url", "http://a"], "perdure verify --store FILE"],
    [["answer", "q", "--url", "http://a"], "exactly one of --approve"],
    [["answer", "q", "--approve", "--cancel", "--url", "http://a"], "exactly one of --approve"],
    [["answer", "q", "--value", "S", "--url", "http://a"], `--value '"text"'`],
    [["answer", "q", "--did", "maybe", "--url", "http://a"], 'yes, no or unknown, not "maybe"'],
    [["answer", "q", "--did", "no", "--output", "1", "--url", "http://a"], "--output belongs to --did yes"],
    [["answer", "q", "--edit", "[1]", "--url", "http://a"], "one JSON object"],
    [["fly"], "unknown command"],
    [[], "Usage: perdure"],
  ])("a command line that makes no sense is 2: %j", async (words, why) => {
    const said = await command(words);
    expect(said).toMatchObject({ code: 2, out: "" });
    expect(said.err).toContain(why);
  });

  it("no server, no Perdure server, no file, no store: each is named with what to do", async () => {
    const serving = await onFile(() => [desk().agent]);
    const closed = "http://127.0.0.1:1";
    expect((await command(["ls", "--url", closed])).err).toMatch(
      /^perdure: no server answers at http:\/\/127\.0\.0\.1:1 \(.+\): start it, or read its file with --store \(SERVER_UNREACHABLE\)$/m,
    );
    expect((await command(["ls", "--url", `${serving.url}/else`])).err).toMatch(
      /nothing is served at \/else\/runs.*\(NOT_FOUND\)/,
    );
    expect((await command(["ls", "--store", "/no/such.db"])).err).toContain(
      "there is no store /no/such.db: name the file",
    );
    expect((await command(["ls", "--store", import.meta.filename])).err).toContain("(NOT_A_PERDURE_STORE)");
    expect((await command(["ls", "--store", "/no/such.db", "--json"])).err).toMatch(/^\{"error":\{"code":"STORE_FILE"/);
  });

  it("somebody unknown is told how to say who he is; headers get through, and their values are not repeated", async () => {
    const { url } = await served({ echo: async (ctx) => ctx.lastUserText() }, { authorize: byHeader });
    expect((await command(["ls", "--url", url])).err).toContain("PERDURE_AUTHORIZATION) (UNAUTHORIZED)");
    const header = `x-who: ${as("ann")["x-who"]}`;
    const said = await command(["inbox", "--url", url, "--header", header]);
    expect(said).toMatchObject({ code: 0, err: "" });
    expect(said.out).toContain(`perdure ls --url ${url} --header 'x-who: …'`);
  });

  it("what comes from outside cannot command a terminal", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "\u001b[2J\u009b1m\u202e500");
    expect((await command(["log", uid, "--url", serving.url])).out).not.toMatch(/(?!\n)\p{Cc}|\p{Cf}/u);
  });
});

describe("the command as a process", () => {
  it("takes the place from the environment, has no colours in a pipe, and ends with its code", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    const [list, missing, help] = await Promise.all([
      commandProcess(["ls"], { PERDURE_URL: serving.url }),
      commandProcess(["why", "nothing"], { PERDURE_STORE: serving.file }),
      commandProcess(["--version"]),
    ]);
    expect(list).toMatchObject({ code: 0, err: "" });
    expect(list.out).toMatch(new RegExp(`^${uid}  waits for a human`, "m"));
    expect(list.out.trimEnd().split("\n").at(-1)).toBe(`  perdure why ${uid}`);
    expect(missing).toEqual({
      code: 1,
      out: "",
      err: "perdure: there is no run nothing (RUN_NOT_FOUND)\n  perdure ls\n",
    });
    expect(help).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
  });
});

describe("perdure prune", () => {
  const frames = async (serving: Serving, uid: string): Promise<number> =>
    (await command(["log", uid, "--json", "--store", serving.file])).out.split('"kind":"frame"').length - 1;

  it.each(["--url", "--store"])(
    "removes the frames of one run, and says so; again it has nothing to do: %s",
    async (flag) => {
      const serving = await onFile(() => [desk().agent]);
      const uid = await serving.say("desk", "500");
      const before = await command(["log", uid, "--json", "--facts", "--store", serving.file]);
      const reasons = async () =>
        parsed<{ reasons: unknown }>((await command(["why", uid, "--json", "--store", serving.file])).out).reasons;
      const explained = JSON.stringify(await reasons()).replaceAll(/\d+ m?s/g, "a while");
      expect(await frames(serving, uid)).toBeGreaterThan(10);
      if (flag === "--store") await serving.stop();
      const where = [flag, flag === "--url" ? serving.url : serving.file];
      const said = await command(["prune", uid, ...where]);
      expect(said).toMatchObject({ code: 0, err: "" });
      expect(said.out).toMatch(/^Pruned: the frames of the run are gone\./);
      expect(pasted(said)).toEqual([["why", uid, ...where]]);
      expect(await frames(serving, uid)).toBe(0);
      const { out } = await command(["log", uid, "--json", "--facts", "--store", serving.file]);
      expect(out.startsWith(before.out)).toBe(true);
      expect(out.slice(before.out.length)).toMatch(/^\{"kind":"transcript".*\n$/);
      expect(JSON.stringify(await reasons()).replaceAll(/\d+ m?s/g, "a while")).toBe(explained);
      expect((await command(["why", uid, "--store", serving.file])).out).toContain("its frames were pruned");
      expect((await command(["log", uid, "--store", serving.file])).out).toContain("in place of its frames: ");
      expect((await command(["prune", uid, ...where])).out).toMatch(/^Nothing to do/);
      expect((await command(["verify", "--store", serving.file])).code).toBe(0);
    },
  );

  it("refuses one that is not over, one that is not there, and a file that a server has", async () => {
    const serving = await onFile(() => [desk().agent]);
    const uid = await serving.say("desk", "9000");
    const json = async (...words: readonly string[]) => {
      const { code, err } = await command(["prune", ...words]);
      return [code, err] as const;
    };
    expect(await json(uid, "--url", serving.url)).toEqual([
      1,
      expect.stringContaining("it is not over, so its frames are still needed"),
    ]);
    expect(await json("nobody", "--url", serving.url)).toEqual([1, expect.stringContaining("there is no run nobody")]);
    expect(await json(uid, "--store", serving.file)).toEqual([
      1,
      expect.stringContaining("has to prune its runs itself"),
    ]);
    await serving.stop();
    expect(await json(uid, "--store", serving.file)).toEqual([1, expect.stringContaining("it is not over")]);
    expect(await json("nobody", "--store", serving.file)).toEqual([
      1,
      expect.stringContaining("there is no run nobody"),
    ]);
    for (const words of [[], [uid, "--older-than", "7d"], ["--older-than", "a week"]]) {
      expect((await json(...words, "--store", serving.file))[0], words.join(" ")).toBe(2);
    }
  });

  it.each(["--url", "--store"])(
    "--older-than prunes all that ended before, and leaves what goes on: %s",
    async (flag) => {
      const serving = await onFile(() => [desk().agent, shirt()]);
      const done = [await serving.say("desk", "100"), await serving.say("desk", "200")];
      const waiting = await serving.say("shirt", "one");
      if (flag === "--store") await serving.stop();
      const where = [flag, flag === "--url" ? serving.url : serving.file];
      expect((await command(["prune", "--older-than", "1d", ...where])).out).toMatch(/^0 runs pruned\./);
      expect((await command(["prune", "--older-than", "0ms", "--agent", "shirt", ...where])).out).toMatch(
        /^0 runs pruned\./,
      );
      const { out, code } = await command(["prune", "--older-than", "0ms", "--json", ...where]);
      expect([code, parsed(out)]).toEqual([0, { runs: done.map((run) => ({ run, is: "pruned" })) }]);
      for (const uid of done) expect(await frames(serving, uid)).toBe(0);
      expect(await frames(serving, waiting)).toBeGreaterThan(0);
    },
  );
});
