/** Lanes that wait for something else than steps: they come to the same places in another order when the code is run again. */
import { type Agent, agent, type LoopContext } from "perdure";
import { describe, expect, it } from "vitest";
import { memoryDisk } from "../../src/testing/outside.ts";
import { play } from "../../src/testing/play.ts";

interface Board {
  [name: string]: unknown;
  items?: string[];
}

type Lane = (lane: LoopContext<Board>, idle: (turns: number) => Promise<void>) => Promise<void>;

function add(lane: LoopContext<Board>, item: string): void {
  lane.state.items ??= [];
  lane.state.items.push(item);
  lane.publishState();
}

/** In its first life the first lane is quick, in the second it is slow; or the other way round. */
async function stateOf(isQuickFirst: boolean, one: Lane, other: Lane, begun = 2): Promise<unknown> {
  let lives = 0;
  const loop = (): Agent => {
    const made = agent<Board>({
      name: "loop",
      state: { initial: () => ({}) },
      async run(ctx) {
        const isQuick = (lives++ === 0) === isQuickFirst;
        const idling =
          (scale: number) =>
          async (turns: number): Promise<void> => {
            for (let i = 0; i < turns * scale; i++) await new Promise(setImmediate);
          };
        await ctx.parallel([(lane) => one(lane, idling(isQuick ? 1 : 20)), (lane) => other(lane, idling(6))]);
        await ctx.ask({ message: "Go on?" });
        ctx.state.last = 1;
      },
    });
    return made as Agent;
  };
  const ended = await play({
    ...{ disk: memoryDisk, patience: 20_000, hopeless: new Set<string>() },
    script: { answers: () => ({ status: "resolved", payload: true }) },
    stage: () => ({ world: {}, agent: loop, effects: () => [], dispose: () => {} }),
  });
  expect(lives).toBe(begun);
  expect(ended.runs.map(({ outcome }) => outcome)).toEqual(["success"]);
  expect(ended.client.state).toEqual(ended.late.state);
  return ended.client.state;
}

it("a lane that ends last, behind something that is no step, leaves a run that waits", async () => {
  const state = await stateOf(
    true,
    async (lane) => {
      await lane.ask({ message: "Which one?" });
    },
    async (_, idle) => await idle(20),
    3,
  );
  expect(state).toEqual({ last: 1 });
});

describe.each([true, false])("the first lane is the quick one first: %s", (isQuickFirst) => {
  it("a lane publishes what another has not published, or does not", async () => {
    const state = await stateOf(
      isQuickFirst,
      async (lane, idle) => {
        await idle(1);
        lane.state.a = 1;
        await idle(1);
        lane.state.b = 1;
        lane.publishState();
      },
      async (lane, idle) => {
        await idle(1);
        lane.state.c = 1;
        lane.publishState();
      },
    );
    expect(state).toEqual({ a: 1, b: 1, c: 1, last: 1 });
  });

  it("what nobody has published in a lane is published at the end, once", async () => {
    const state = await stateOf(
      isQuickFirst,
      async (lane, idle) => {
        await idle(1);
        lane.state.a = 1;
      },
      async (lane, idle) => {
        await idle(1);
        lane.state.b = 1;
        lane.publishState();
      },
    );
    expect(state).toEqual({ a: 1, b: 1, last: 1 });
  });

  it("the elements that lanes put into one list are in it once, as they were published first", async () => {
    const state = await stateOf(
      isQuickFirst,
      async (lane, idle) => {
        await idle(1);
        add(lane, "one");
      },
      async (lane, idle) => {
        await idle(1);
        add(lane, "other");
      },
    );
    expect(state).toEqual({ items: isQuickFirst ? ["one", "other"] : ["other", "one"], last: 1 });
  });
});
