/**
 * A log that an earlier loop has left goes on under this one. `RECORD_LOOP=loop-v2 npx vitest run loop-generations` keeps what this loop leaves
 * as a generation of its own: do that before a change of what the loop records.
 */
import { env } from "node:process";
import { afterEach, describe, expect, it } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { Run } from "../../src/store/store.ts";
import { type DeskOptions, generations, keep, OldDesk, recorded } from "./loop-generations.ts";

const over = ({ outcome }: Run): boolean => outcome !== null;
const parked = ({ owner, legOpen, outcome }: Run): boolean => owner === null && !legOpen && outcome === null;

interface OldStory {
  /** Leaves the log. */
  readonly begins: (desk: OldDesk) => Promise<readonly Entry[]>;
  readonly hangs?: true;
  /** What becomes of it under the loop of today. */
  readonly goesOn: (desk: OldDesk) => Promise<unknown>;
  /** What is done in the world by that. */
  readonly does: readonly string[];
  /** Whether the model is asked. */
  readonly asks?: false;
}

const behind = (log: readonly Entry[], isLast: (entry: Entry) => boolean) => log.slice(0, log.findIndex(isLast) + 1);

const stories: { readonly [name: string]: OldStory } = {
  finished: {
    async begins(desk) {
      await desk.says("look");
      await desk.until(over);
      return desk.log();
    },
    goesOn: (desk) => desk.ask("/agents/desk", { threadId: "t", runId: "again", messages: [] }),
    does: [],
    asks: false,
  },
  approval: {
    async begins(desk) {
      await desk.says("approve");
      await desk.until(parked);
      return desk.log();
    },
    goesOn: (desk) => desk.answers({ approved: true }),
    does: ["refund 1"],
  },
  suspended: {
    async begins(desk) {
      await desk.says("suspend");
      await desk.until(parked);
      return desk.log();
    },
    goesOn: (desk) => desk.answers("ann"),
    does: ["transfer ann"],
  },
  "unknown-write": {
    async begins(desk) {
      await desk.says("unknown");
      await desk.until(parked);
      return desk.log();
    },
    goesOn: (desk) => desk.answers({ did: "yes", output: { sent: "bob" } }),
    does: [],
  },
  "cut-in-a-model-step": {
    async begins(desk) {
      await desk.says("look");
      await desk.until(over);
      const isHalf = (entry: Entry) =>
        entry.kind === "frame" && "event" in entry && entry.event.type === "TOOL_CALL_ARGS";
      return behind(await desk.log(), isHalf);
    },
    goesOn: async () => {},
    does: ["look 1"],
  },
  "cut-in-calls": {
    hangs: true,
    async begins(desk) {
      const isBegun = (log: readonly Entry[]) => log.filter(({ kind }) => kind === "step.attempt").length === 3;
      void desk.says("several");
      for (;;) {
        const log = await desk.log().catch(() => []);
        if (isBegun(log)) return log;
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    },
    goesOn: async () => {},
    does: ["book 1", "look 1"],
  },
  "client-tools": {
    async begins(desk) {
      await desk.says("paint");
      await desk.until(parked);
      return desk.log();
    },
    goesOn: (desk) => desk.paints(),
    does: [],
  },
  "multi-turn": {
    async begins(desk) {
      for (const said of ["look", "hello", "paint"]) {
        await desk.says(said);
        await desk.until((run) => over(run) || parked(run));
      }
      await desk.paints();
      await desk.until(over);
      return desk.log();
    },
    goesOn: (desk) => desk.says("look"),
    does: ["look 1"],
  },
};

let open: OldDesk[] = [];
afterEach(async () => {
  for (const desk of open) await desk.runtime.close();
  open = [];
});
function deskWith(options: DeskOptions = {}): OldDesk {
  const desk = new OldDesk(options);
  open.push(desk);
  return desk;
}

async function leftBy(story: OldStory): Promise<readonly Entry[]> {
  const log = await story.begins(deskWith(story.hangs && { hangs: true }));
  return log;
}

/** Each run of the thread onto the one before. */
function foldAll(log: readonly Entry[]) {
  const starts = log.flatMap(({ kind }, i) => (kind === "run.started" ? [i] : []));
  return starts.reduce<ReturnType<typeof fold> | undefined>(
    (before, from, i) => fold(log.slice(from, starts[i + 1]), before),
    undefined,
  );
}

if (env.RECORD_LOOP !== undefined) {
  const generation = env.RECORD_LOOP;
  it.each(Object.entries(stories))(`records ${generation}: %s`, async (name, story) => {
    keep(generation, name, await leftBy(story));
  });
}

/** What this loop leaves, too: so the stories stay what they were recorded from. */
describe.each([...generations(), "today"])("a log that %s has left", (generation) => {
  it.each(Object.entries(stories))("goes on under the loop of today: %s", async (name, story) => {
    const log = generation === "today" ? await leftBy(story) : recorded(generation, name);
    const desk = deskWith();
    await desk.takesOver(log);
    await desk.runtime.open();
    await story.goesOn(desk);
    const run = await desk.until(over);
    const after = await desk.log();
    expect(run).toMatchObject({ outcome: "success", aside: null });
    // What was there is there, and what came fits it.
    expect(after.slice(0, log.length).map(({ at: _, ...entry }) => entry)).toEqual(
      log.map(({ at: _, ...entry }) => entry),
    );
    expect(foldAll(after)?.messages.at(-1)).toMatchObject({ role: "assistant", content: "Done." });
    expect([...desk.ledger].sort()).toEqual(story.does);
    expect(desk.offences).toEqual([]);
    expect(desk.prompts.length > 0).toBe(story.asks ?? true);
  });

  it("goes on under an edited prompt and another model: parked on an approval", async () => {
    const log = generation === "today" ? await leftBy(stories.approval as OldStory) : recorded(generation, "approval");
    const desk = deskWith({ instructions: "You are terse.", says: "OK.", modelId: "new" });
    await desk.takesOver(log);
    await desk.answers({ approved: true });
    await desk.until(over);
    expect(foldAll(await desk.log())?.messages.at(-1)?.content).toBe("OK.");
    expect(desk.prompts).toHaveLength(1);
    expect(desk.prompts[0]?.[0]).toEqual({ role: "system", content: "You are terse." });
    expect(desk.ledger).toEqual(["refund 1"]);
    const hashes = (await desk.log()).flatMap((entry) =>
      entry.kind === "step.started" && "history" in entry.input ? [entry.input.history.instructions] : [],
    );
    expect(new Set(hashes).size).toBe(2);
  });
});
