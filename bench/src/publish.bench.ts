/** Publishing one changed field of one item, from the change to the frame's text. */
import fastJsonPatch from "fast-json-patch";
import { encodeSse } from "perdure/protocol";
import { runContext } from "perdure/testing";
import { Bench, type Contender, made } from "./harness.ts";

interface Item {
  id: string;
  title: string;
  done: boolean;
  tags: string[];
  position: { x: number; y: number };
}
type Items = Item[] | Record<string, Item>;
interface State {
  board: string;
  items: Items;
}

const item = (index: number): Item => ({
  id: `task-${index}`,
  title: `Task number ${index}`,
  done: false,
  tags: ["open", `group-${index % 10}`],
  position: { x: index, y: -index },
});

const shapes: Record<"array" | "map", (size: number) => Items> = {
  array: (size) => Array.from({ length: size }, (_, index) => item(index)),
  map: (size) => Object.fromEntries(Array.from({ length: size }, (_, index) => [`task-${index}`, item(index)])),
};

/** Changes one field, each time of another item and to another value. */
function change(items: Items, keys: readonly (number | string)[], step: number): void {
  const key = keys[(step * 7919) % keys.length] ?? 0;
  const target = Array.isArray(items) ? items[Number(key)] : items[key];
  if (target) target.position.x = step;
}

function keysOf(items: Items): readonly (number | string)[] {
  return Array.isArray(items) ? [...items.keys()] : Object.keys(items);
}

/** The way that agent code takes: draft, difference, checks, frame. */
function perdure(initial: State): Contender {
  const { ctx, events } = runContext<State>(undefined, { state: initial });
  const keys = keysOf(initial.items);
  let step = 0;
  return {
    name: "publishState",
    run(times) {
      let sum = 0;
      for (let i = 0; i < times; i++) {
        step++;
        ctx.updateState((draft) => change(draft.items, keys, step));
        for (const event of events.drain()) sum += made(encodeSse(event));
      }
      return sum;
    },
  };
}

/** The usual way: keep a copy, change in place, compare everything. */
function cloneAndCompare(state: State): Contender {
  const keys = keysOf(state.items);
  let step = 0;
  return {
    name: "clone and compare",
    run(times) {
      let sum = 0;
      for (let i = 0; i < times; i++) {
        step++;
        const before = structuredClone(state);
        change(state.items, keys, step);
        const delta = fastJsonPatch.compare(before, state);
        sum += made(`data: ${JSON.stringify({ type: "STATE_DELTA", delta })}\n\n`);
      }
      return sum;
    },
  };
}

const FASTER: Record<"array" | "map", Record<number, number>> = {
  array: { 100: 10, 1000: 10, 10000: 10, 100000: 10 },
  map: { 100: 8, 1000: 8, 10000: 5, 100000: 2 },
};

const bench = new Bench("publish");
for (const shape of ["array", "map"] as const) {
  for (const [size, atLeast] of Object.entries(FASTER[shape])) {
    const items = () => ({ board: "Release", items: shapes[shape](Number(size)) });
    await bench.compare(
      `One field of one item among ${Number(size).toLocaleString("en")} in ${shape === "array" ? "an array" : "a map"}`,
      perdure(items()),
      [cloneAndCompare(items())],
      [
        { fasterThan: "clone and compare", atLeast },
        ...(shape === "array" && size === "1000" ? [{ atMostMicroseconds: 20 }] : []),
      ],
    );
  }
}
bench.finish();
