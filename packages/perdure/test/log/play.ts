/** Random runs as a driver would write them, with crashes anywhere in their steps. */
import fc from "fast-check";
import type { Entry, Frame, NewEntry } from "../../src/log/entries.ts";
import { fold, type RunState } from "../../src/log/fold.ts";
import { retractAll } from "../../src/log/retract.ts";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";
import {
  at,
  attempt,
  type Batch,
  type Call,
  callEnd,
  callFrames,
  callStarted,
  failed,
  frame,
  leg,
  legEnd,
  modelStarted,
  ok,
  reasoning,
  request,
  result,
  runStarted,
  said,
  stateSnapshot,
  stateStart,
  text,
  user,
} from "./entries.ts";

export type Part = { part: "text" | "reasoning"; deltas: string[] } | { part: "call"; input: Json; pieces: number };
export type Op = { op: "activity"; value: number } | { op: "publish" } | { op: "progress" };

export interface Turn {
  /** What the model says, in the end. */
  readonly parts: readonly Part[];
  /** What it began to say before it was cut. */
  readonly tries: readonly { readonly parts: readonly Part[]; readonly cut: number }[];
  /** What each call does, one list per call. */
  readonly tools: readonly (readonly Op[])[];
  /** After how many of all their operations the process dies, once or more. */
  readonly toolCuts: readonly number[];
}

const delta = fc.string({ unit: "grapheme", minLength: 1, maxLength: 4 });
const deltas = fc.array(delta, { minLength: 1, maxLength: 3 });
const part: fc.Arbitrary<Part> = fc.oneof(
  fc.record({ part: fc.constantFrom("text" as const, "reasoning" as const), deltas }),
  fc.record({
    part: fc.constant("call" as const),
    input: fc.record({ a: delta }),
    pieces: fc.integer({ min: 1, max: 3 }),
  }),
);
const parts = fc.array(part, { maxLength: 4 });

/** Another try is of the same shape with other words, or says something else, beginning with its reasoning as models do. */
const tries = (said: readonly Part[]) =>
  fc.array(
    fc.record({
      parts: fc.oneof(
        fc
          .tuple(fc.array(deltas, { minLength: 4, maxLength: 4 }), parts)
          .map(([words, more]) => [
            ...said.map((one, i) => (one.part === "call" ? one : { ...one, deltas: words[i] ?? one.deltas })),
            ...more,
          ]),
        parts.map((some) => some.toSorted((a, b) => rank(a) - rank(b))),
      ),
      cut: fc.nat({ max: 30 }),
    }),
    { maxLength: 2 },
  );
const rank = ({ part: kind }: Part) => (kind === "reasoning" ? 0 : 1);

const op: fc.Arbitrary<Op> = fc.oneof(
  fc.record({ op: fc.constant("activity" as const), value: fc.nat({ max: 9 }) }),
  fc.record({ op: fc.constantFrom("publish" as const, "progress" as const) }),
);

export const turn: fc.Arbitrary<Turn> = parts.chain((said) =>
  fc.record({
    parts: fc.constant(said),
    tries: tries(said),
    tools: fc.array(fc.array(op, { maxLength: 4 }), { minLength: 4, maxLength: 4 }),
    toolCuts: fc.array(fc.nat({ max: 12 }), { maxLength: 2 }),
  }),
);
export const turns = fc.array(turn, { minLength: 1, maxLength: 3 });

/** The same stories with all reasoning before text and calls. */
export const reasoningFirst = (story: readonly Turn[]): Turn[] =>
  story.map((one) => ({
    ...one,
    parts: one.parts.toSorted((a, b) => rank(a) - rank(b)),
    tries: one.tries.map(({ parts: some, cut }) => ({ parts: some.toSorted((a, b) => rank(a) - rank(b)), cut })),
  }));

/** The same stories where another try says the same things, in other words. */
export const sameShape = (story: readonly Turn[]): Turn[] =>
  story.map((one) => ({
    ...one,
    tries: one.tries.map(({ cut }) => ({
      parts: one.parts.map((said) => (said.part === "call" ? said : { ...said, deltas: said.deltas.toReversed() })),
      cut,
    })),
  }));

/** The same story without a crash. */
export const calm = (story: readonly Turn[]): Turn[] => story.map((one) => ({ ...one, tries: [], toolCuts: [] }));

export class Play {
  readonly batches: Batch[] = [];
  #state: RunState | undefined;
  #deaths = 0;

  get state(): RunState {
    if (this.#state === undefined) throw new Error("nothing has been played");
    return this.#state;
  }

  append(...batch: readonly NewEntry[]): void {
    const head = this.#state?.head ?? -1;
    const entries = batch.map((entry, i): Entry => ({ ...entry, seq: head + 1 + i, at: 1_000 * this.batches.length }));
    this.#state = fold(entries, this.#state);
    this.batches.push(batch);
  }

  begin(): void {
    this.append(
      runStarted,
      ...leg(1, "r1", request("r1", { messages: [user("u", "go")] }), stateStart({ began: true })),
      stateSnapshot,
    );
  }

  end(): void {
    this.append(...legEnd(1, { type: "success", pendingToolCallIds: [] }), {
      kind: "run.finished",
      outcome: "success",
      unresolved: [],
    });
  }

  /** The process dies, and the next one takes back what runs. */
  die(): void {
    this.#deaths++;
    const cuts = [...this.state.running.values()].map(({ attempt: { path, n } }) => failed(path, "no", n));
    this.append({ kind: "run.resumed", why: "recovered", epoch: this.#deaths + 1 }, ...retractAll(this.state, cuts));
  }

  model(path: string, { parts: whole, tries: cutShort }: Pick<Turn, "parts" | "tries">): readonly Call[] {
    let n = 1;
    for (const { parts: some, cut } of cutShort) {
      this.append(...(n === 1 ? [modelStarted(path)] : []), attempt(path, n, n));
      for (const shown of framesOf(path, some).slice(0, cut)) this.append(shown);
      this.die();
      n++;
    }
    this.append(...(n === 1 ? [modelStarted(path)] : []), attempt(path, n, n));
    for (const shown of framesOf(path, whole)) this.append(shown);
    const calls = callsOf(path, whole);
    const words = whole.flatMap((one) => (one.part === "text" ? one.deltas : [])).join("");
    this.append(
      ...calls.map(({ lane, call }) => callEnd(lane, call)),
      said(
        path,
        messageId(path),
        words,
        calls.map(({ call }) => call),
      ),
    );
    return calls.map(({ call }) => call);
  }

  /** All calls of a turn side by side, one operation each in turn. */
  tools(
    group: string,
    model: string,
    calls: readonly Call[],
    { tools, toolCuts }: Pick<Turn, "tools" | "toolCuts">,
  ): void {
    const work = calls.map((call, i) => ({
      path: `${group}.${i}`,
      i,
      call,
      ops: tools[i] ?? [],
      n: 1,
      done: 0,
      isOver: false,
    }));
    for (const { path, call, i } of work)
      this.append(callStarted(path, call.name, "read", call.id, model, i), attempt(path));
    let moves = 0;
    const cuts = [...toolCuts];
    while (work.some(({ isOver }) => !isOver)) {
      for (const one of work) {
        if (one.isOver) continue;
        if (cuts[0] !== undefined && moves++ === cuts[0]) {
          cuts.shift();
          moves = 0;
          this.die();
          for (const cut of work) {
            if (cut.isOver) continue;
            cut.n++;
            cut.done = 0;
            this.append(attempt(cut.path, cut.n, cut.n));
          }
          // All begin again, the first one first.
          break;
        }
        const next = one.ops[one.done++];
        if (next !== undefined) this.append(...this.#does(one.path, next));
        else {
          one.isOver = true;
          const patch = [{ op: "add" as const, path: `/${one.i}`, value: one.call.name }];
          const isShown = this.#isPublished(`${one.i}`);
          this.append(
            ok(one.path, { did: one.ops.length }, "call", patch),
            result(one.path),
            ...(isShown ? [] : [frame(one.path, { type: "STATE_DELTA" as const, delta: patch })]),
          );
        }
      }
    }
  }

  #isPublished(key: string): boolean {
    const { shown } = this.state;
    return isJsonObject(shown) && Object.hasOwn(shown, key);
  }

  #does(path: string, { op: kind, ...rest }: Op): Frame[] {
    const running = this.state.running.get(at(path));
    switch (kind) {
      case "publish": {
        const i = path.split(".").at(-1) ?? "";
        if (this.#isPublished(i)) return [];
        const delta = [{ op: "add" as const, path: `/${i}`, value: this.state.steps.get(at(path))?.started.name }];
        return [frame(path, { type: "STATE_DELTA", delta })];
      }
      case "progress":
        return [frame(path, { type: "CUSTOM", name: "perdure.progress", value: 1 })];
      default: {
        const id = `U:${path}:a0`;
        const value = "value" in rest ? rest.value : 0;
        const content = { log: [value] };
        return running?.messages.has(id)
          ? [
              frame(path, {
                type: "ACTIVITY_DELTA",
                messageId: id,
                activityType: "PLAN",
                patch: [{ op: "add", path: "/log/-", value }],
              }),
            ]
          : [frame(path, { type: "ACTIVITY_SNAPSHOT", messageId: id, activityType: "PLAN", content })];
      }
    }
  }
}

export function play(story: readonly Turn[]): Play {
  const run = new Play();
  run.begin();
  story.forEach((one, t) => {
    const model = `${2 * t}`;
    const calls = run.model(model, one);
    run.tools(`${2 * t + 1}`, model, calls, one);
  });
  run.end();
  return run;
}

const messageId = (path: string) => `U:${path}:m0`;

function callsOf(path: string, parts: readonly Part[]): { lane: string; call: Call }[] {
  const calls: { lane: string; call: Call }[] = [];
  parts.forEach((one, k) => {
    if (one.part !== "call") return;
    const call = { id: `U:${path}:c${calls.length}`, name: `tool${calls.length}`, input: one.input };
    calls.push({ lane: `${path}.${k}`, call });
  });
  return calls;
}

function framesOf(path: string, parts: readonly Part[]): Frame[] {
  const calls = callsOf(path, parts);
  return parts.flatMap((one, k): Frame[] => {
    const lane = `${path}.${k}`;
    if (one.part !== "call") {
      return one.part === "text"
        ? text(lane, messageId(path), ...one.deltas)
        : reasoning(lane, `U:${lane}:r0`, ...one.deltas);
    }
    const mine = calls.filter((other) => other.lane === lane);
    return mine.flatMap(({ call }) => callFrames(lane, call, messageId(path), one.pieces));
  });
}
