/** Random emitting programs: what agent code can do with a context, as data, and an interpreter for it. */
import fc from "fast-check";
import type { RunContext, SubagentHandle } from "perdure";

export interface ProgramState {
  n: number;
  items: { id: number; label: string }[];
  byKey: Record<string, number>;
}

export const initialState = (): ProgramState => ({ n: 0, items: [{ id: 0, label: "zero" }], byKey: {} });

export type Op =
  | { op: "say" | "think"; text: string }
  | { op: "message" | "reasoning"; deltas: string[]; leave: Leave; inside: Inside[]; metadata: Metadata }
  | { op: "call"; args: string[]; leave: Leave | "result" | "end"; inside: Inside[]; metadata: Metadata }
  | { op: "step"; name: string; leave: Leave; body: Op[]; metadata: Metadata }
  | { op: "subagent"; name: string; id: string | null; leave: Leave | "end" | "fail"; body: Op[]; metadata: Metadata }
  | { op: "callOf"; body: Op[] }
  | { op: "chunks"; kind: "text" | "reasoning" | "call"; pieces: string[] }
  | { op: "snapshot" }
  | { op: "activity"; updates: number[]; metadata: Metadata }
  | { op: "parallel"; branches: Op[][] }
  | { op: "inside"; inside: Inside }
  | { op: "pause" }
  | { op: "usage"; tokens: number }
  | { op: "throw" }
  | { op: "return" }
  | { op: "interrupt"; ask: string };

/** `using` leaves by scope exit, `callback` by the callback form, `forget` not at all. */
type Leave = "using" | "callback" | "forget";

/** On the START, and on the END where a handle is ended by hand. */
type Metadata = { readonly n: number } | null;

type Inside =
  | { do: "set"; n: number }
  | { do: "push"; id: number }
  | { do: "unshift"; id: number }
  | { do: "splice"; at: number }
  | { do: "key"; key: string; value: number | null }
  | { do: "publish" }
  | { do: "custom"; name: string }
  | { do: "raw" };

const text = fc.string({ unit: "binary", maxLength: 6 });
const inside: fc.Arbitrary<Inside> = fc.oneof(
  fc.record({ do: fc.constant("set" as const), n: fc.nat(3) }),
  fc.record({ do: fc.constant("push" as const), id: fc.nat(9) }),
  fc.record({ do: fc.constant("unshift" as const), id: fc.nat(9) }),
  fc.record({ do: fc.constant("splice" as const), at: fc.nat(4) }),
  fc.record({
    do: fc.constant("key" as const),
    key: fc.constantFrom("a", "b/c", "d~e", "", "-"),
    value: fc.option(fc.nat(3)),
  }),
  { arbitrary: fc.record({ do: fc.constant("publish" as const) }), weight: 3 },
  fc.record({ do: fc.constant("custom" as const), name: fc.constantFrom("app.a", "app.b") }),
  fc.record({ do: fc.constant("raw" as const) }),
);
const insides = fc.array(inside, { maxLength: 4 });
const metadata: fc.Arbitrary<Metadata> = fc.option(fc.record({ n: fc.nat(3) }));
const leave = fc.constantFrom<Leave[]>("using", "callback", "forget");
const args = fc.constantFrom<string[][]>([], ["{}"], ['{"a":', "1}"], ['{"a":'], ['{"b":"\\u', '00e9"}'], ["[1,", "2"]);

/** Ops that can stand anywhere; `deep` more levels of steps and branches. */
function ops(deep: number): fc.Arbitrary<Op[]> {
  const flat: fc.Arbitrary<Op>[] = [
    fc.record({ op: fc.constantFrom("say" as const, "think" as const), text }),
    fc.record({
      op: fc.constantFrom("message" as const, "reasoning" as const),
      deltas: fc.array(text, { maxLength: 3 }),
      leave,
      inside: insides,
      metadata,
    }),
    fc.record({
      op: fc.constant("call" as const),
      args,
      leave: fc.oneof(leave, fc.constantFrom("result" as const, "end" as const)),
      inside: insides,
      metadata,
    }),
    fc.record({ op: fc.constant("activity" as const), updates: fc.array(fc.nat(5), { maxLength: 3 }), metadata }),
    fc.record({
      op: fc.constant("chunks" as const),
      kind: fc.constantFrom("text" as const, "reasoning" as const, "call" as const),
      pieces: fc.array(text, { minLength: 1, maxLength: 3 }),
    }),
    fc.constant<Op>({ op: "snapshot" }),
    fc.record({ op: fc.constant("inside" as const), inside }),
    fc.constant<Op>({ op: "pause" }),
    fc.record({ op: fc.constant("usage" as const), tokens: fc.nat(50) }),
  ];
  const rare: fc.Arbitrary<Op> = fc.oneof(
    fc.constant<Op>({ op: "throw" }),
    fc.constant<Op>({ op: "return" }),
    fc.record({ op: fc.constant("interrupt" as const), ask: fc.uuid() }),
  );
  const nested: fc.Arbitrary<Op>[] =
    deep === 0
      ? []
      : [
          fc.record({
            op: fc.constant("step" as const),
            name: fc.constantFrom("plan", "act"),
            leave,
            body: ops(deep - 1),
            metadata,
          }),
          fc.record({
            op: fc.constant("subagent" as const),
            name: fc.constantFrom("scout", "writer"),
            id: fc.constantFrom("one", "two", null, null),
            leave: fc.oneof(leave, fc.constantFrom("end" as const, "fail" as const)),
            body: ops(deep - 1),
            metadata,
          }),
          fc.record({ op: fc.constant("callOf" as const), body: ops(deep - 1) }),
          fc.record({
            op: fc.constant("parallel" as const),
            branches: fc.array(ops(deep - 1), { minLength: 1, maxLength: 3 }),
          }),
        ];
  return fc.array(
    fc.oneof({ arbitrary: fc.oneof(...flat), weight: 12 }, ...nested.map((arbitrary) => ({ arbitrary, weight: 2 })), {
      arbitrary: rare,
      weight: 1,
    }),
    { maxLength: 6 },
  );
}

export const program: fc.Arbitrary<Op[]> = ops(2);

export class ProgramError extends Error {}

/** Runs a program. Blocks that are forgotten keep their lane, so what follows may fail with BlockOpenError: that is part of the fun. */
export async function interpret(
  ctx: RunContext<ProgramState>,
  program: readonly Op[],
): Promise<"returned" | undefined> {
  for (const op of program) {
    if ((await interpretOne(ctx, op)) === "returned") return "returned";
  }
  return undefined;
}

async function interpretOne(ctx: RunContext<ProgramState>, op: Op): Promise<"returned" | undefined> {
  switch (op.op) {
    case "say":
      ctx.say(op.text);
      return;
    case "think":
      ctx.think(op.text);
      return;
    case "message":
    case "reasoning": {
      const options = tagged(op.metadata);
      const said = { ...options, role: op.deltas.length === 2 ? "user" : "assistant", name: "speaker" } as const;
      if (op.op === "message")
        await leaveBy(
          op,
          () => ctx.message(said),
          (body) => ctx.message(said, body),
        );
      else
        await leaveBy(
          op,
          () => ctx.reasoning(options),
          (body) => ctx.reasoning(options, body),
        );
      return;
    }
    case "call": {
      const options = tagged(op.metadata);
      if (op.leave === "callback") {
        await ctx.toolCall("tool", options, (call) => {
          for (const piece of op.args) call.args(piece);
          for (const one of op.inside) touch(call, one);
        });
        return;
      }
      const call = ctx.toolCall("tool", options);
      for (const piece of op.args) call.args(piece);
      for (const one of op.inside) touch(call, one);
      await Promise.resolve();
      if (op.leave === "using") call[Symbol.dispose]();
      else if (op.leave === "result") call.resultJson({ ok: true }, options);
      else if (op.leave === "end") call.end(options);
      return;
    }
    case "step": {
      const options = tagged(op.metadata);
      if (op.leave === "callback") return ctx.step(op.name, options, () => interpret(ctx, op.body));
      const step = ctx.step(op.name, options);
      const result = await interpret(ctx, op.body);
      if (op.leave === "using") step[Symbol.dispose]();
      return result;
    }
    case "subagent": {
      const { name, id, leave: left, body } = op;
      const options = { name, ...tagged(op.metadata), ...(id !== null && { id }) };
      if (left === "callback") return await ctx.subagent(options, (sub) => within(sub, body));
      const sub = ctx.subagent(options);
      const result = await within(sub, body);
      if (left === "using") sub[Symbol.dispose]();
      else if (left === "end") sub.end({ name });
      else if (left === "fail") sub.fail(new ProgramError("the subagent's own"));
      return result;
    }
    case "callOf": {
      // A call that a subagent carries out while it is open.
      using call = ctx.toolCall("delegate");
      call.argsJson({ a: 1 });
      const result = await ctx.subagent({ name: "delegate", parentToolCallId: call.id }, (sub) => within(sub, op.body));
      call.resultJson({ ok: true });
      return result;
    }
    case "chunks": {
      const id = chunkId(op, ctx.runId);
      for (const [i, piece] of op.pieces.entries()) {
        if (op.kind === "call") {
          const first = i === 0 ? { toolCallId: id, toolCallName: "tool" } : {};
          ctx.emit({ type: "TOOL_CALL_CHUNK", ...first, delta: i === 0 ? "[" : `"${i}",` });
        } else {
          const type = op.kind === "text" ? "TEXT_MESSAGE_CHUNK" : "REASONING_MESSAGE_CHUNK";
          ctx.emit({ type, ...(i === 0 && { messageId: id }), delta: piece });
        }
      }
      // Whole with this, and cut without it.
      if (op.kind === "call" && op.pieces[0] !== "") ctx.emit({ type: "TOOL_CALL_CHUNK", toolCallId: id, delta: "0]" });
      return;
    }
    case "snapshot":
      ctx.messagesSnapshot();
      return;
    case "activity": {
      using activity = ctx.activity("PLAN", { items: [] as number[] }, tagged(op.metadata));
      for (const n of op.updates) activity.update((draft) => void draft.items.unshift(n));
      return;
    }
    case "parallel": {
      const ends = await ctx.parallel(op.branches.map((branch) => (lane) => interpret(lane, branch)));
      return ends.includes("returned") ? "returned" : undefined;
    }
    case "inside":
      touch(ctx, op.inside);
      return;
    case "pause":
      await new Promise((resolve) => setImmediate(resolve));
      return;
    case "usage":
      ctx.usage({ provider: "p", model: "m", inputTokens: op.tokens });
      return;
    case "throw":
      throw new ProgramError("the program's own");
    case "return":
      return "returned";
    case "interrupt":
      return ctx.interrupt({ id: op.ask, message: "go on?" });
  }
}

/** Numbers of the chunk streams: a program that is played again has the same ids. */
const chunked = new WeakMap<Op, number>();
let chunks = 0;

function chunkId(op: Op, runId: string): string {
  const n = chunked.get(op) ?? chunks++;
  chunked.set(op, n);
  return `chunks-${n}-${runId}`;
}

const tagged = (given: Metadata) => (given === null ? {} : { metadata: given });

/** Says in so many words whose the work is, for whoever checks what the events say. */
function within(sub: SubagentHandle<ProgramState>, body: readonly Op[]): Promise<"returned" | undefined> {
  sub.custom("app.mine", sub.id);
  return interpret(sub, body);
}

type TextHandle = Touchable & Disposable & { delta(text: string): void };
type TextOp = Extract<Op, { deltas: string[] }>;

async function leaveBy(
  op: TextOp,
  open: () => TextHandle,
  within: (body: (handle: TextHandle) => Promise<void>) => Promise<void>,
): Promise<void> {
  const fill = async (handle: TextHandle): Promise<void> => {
    for (const delta of op.deltas) {
      handle.delta(delta);
      await Promise.resolve();
    }
    for (const one of op.inside) touch(handle, one);
  };
  if (op.leave === "callback") return within(fill);
  const handle = open();
  await fill(handle);
  if (op.leave === "using") handle[Symbol.dispose]();
}

type Touchable = Pick<RunContext<ProgramState>, "state" | "publishState" | "custom" | "emit">;

function touch(target: Touchable, inside: Inside): void {
  const { state } = target;
  switch (inside.do) {
    case "set":
      state.n = inside.n;
      return;
    case "push":
      state.items.push({ id: inside.id, label: "pushed" });
      return;
    case "unshift":
      state.items.unshift({ id: inside.id, label: "unshifted" });
      return;
    case "splice":
      state.items.splice(inside.at, 1);
      return;
    case "key":
      if (inside.value === null) delete state.byKey[inside.key];
      else state.byKey[inside.key] = inside.value;
      return;
    case "publish":
      target.publishState();
      return;
    case "custom":
      target.custom(inside.name, { at: state.n });
      return;
    case "raw":
      target.emit({ type: "RAW", event: { provider: true } });
      return;
  }
}
