/** `perdure ls` and `perdure why`, on a run that waits for another one. */
import { agent, agentTool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, it } from "vitest";
import { desk } from "../http/desk.ts";
import { command, pasted } from "./rig.ts";
import { bothSay, onFile } from "./runs.ts";

it("a caller says which run it waits for, and that one what it asks and whose it is", async () => {
  const caller = () =>
    agent({
      name: "caller",
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { calls: [{ name: "desk", input: { task: "9000" } }] } : { text: "Done." },
      ),
      tools: [agentTool(desk().agent, { description: "Refunds." })],
    });
  const serving = await onFile(() => [caller()]);
  const uid = await serving.say("caller", "go");
  const { out } = await command(["ls", "--json", "--url", serving.url]);
  const { runs } = JSON.parse(out) as { runs: { uid: string; parent: { uid: string } | null }[] };
  const child = runs.find(({ parent }) => parent?.uid === uid)?.uid ?? "";

  const listed = await bothSay(serving, ["ls"]);
  expect(listed.out).toMatch(new RegExp(`^${uid} +waits for its child +caller +t\\d+ `, "m"));
  expect(listed.out).toMatch(new RegExp(`^${child} +waits for a human +desk +child of `, "m"));
  expect((await bothSay(serving, ["ls", "--state", "child"])).out).not.toContain(child);

  const said = await bothSay(serving, ["why", uid]);
  expect(said.out).toMatch(
    new RegExp(`^The child desk \\(step 1\\.0\\) is run ${child}, which began .* ago and goes on by itself: `, "m"),
  );
  expect(pasted(said)).toEqual([["why", child, "--url", serving.url]]);

  const asked = await bothSay(serving, ["why", child]);
  expect(asked.out).toContain(`of agent desk, child of run ${uid} (step 1.0): waits for a human.`);
  expect(asked.out).toContain("Refund 9000 cents?");
  expect((await bothSay(serving, ["log", uid])).out).toMatch(/CHILD.*entries \d+ to \d+ of run/);
});
