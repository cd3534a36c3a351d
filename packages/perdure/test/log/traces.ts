/**
 * The stories of DESIGN's traces as logs, one entry list per story, written by hand. Where a crash is part of the story, `uninterrupted` is
 * the same story without it. Terminal frames and results stand behind the facts they are derived from.
 */
import type { Interrupt } from "../../src/log/entries.ts";
import { interruptEvent, wireInterrupt } from "../../src/log/interrupts.ts";
import type { Tool } from "../../src/protocol/events.ts";
import {
  approval,
  at,
  attempt,
  type Batch,
  type Call,
  callEnd,
  callFrames,
  callStarted,
  cancelled,
  clientCallStarted,
  failed,
  frame,
  leg,
  legEnd,
  messagesSnapshot,
  modelStarted,
  modelStep,
  ok,
  reasoning,
  ref,
  request,
  result,
  runStarted,
  said,
  stateSnapshot,
  stateStart,
  text,
  toolMessage,
  user,
} from "./entries.ts";

export interface Trace {
  readonly name: string;
  readonly batches: readonly Batch[];
  readonly uninterrupted: readonly Batch[];
}

const u = user("u", "refund orders 1 (30 EUR) and 2 (80 EUR)");
const told = (path: string, interrupt: Interrupt, state: Parameters<typeof interruptEvent>[1]) =>
  frame(path, interruptEvent(interrupt, state));

const begin: Batch = [
  runStarted,
  ...leg(1, "r1", request("r1", { messages: [u] }), stateStart({ step: "idle" })),
  stateSnapshot,
];

// t1: SIGKILL in `refund` after the money moved

const search: Call = { id: "c0", name: "search_orders", input: { email: "a@b.c" } };
const refund1: Call = { id: "c1", name: "refund", input: { orderId: "1", cents: 3000 } };
const refund2: Call = { id: "c2", name: "refund", input: { orderId: "2", cents: 8000 } };
const i1 = approval("I1", "5.0", "c2");

const killedInRefund: Batch = [{ kind: "run.resumed", why: "recovered", epoch: 2 }, failed("3.0", "unknown")];

const t1 = (isKilled: boolean): Batch[] => [
  begin,
  ...modelStep("0", "a0", { say: "Looking.", calls: [search] }),
  [callStarted("1.0", "search_orders", "read", "c0", "0"), attempt("1.0")],
  [ok("1.0", [{ id: "1" }, { id: "2" }]), result("1.0")],
  ...modelStep("2", "a1", { calls: [refund1] }),
  [callStarted("3.0", "refund", "write", "c1", "2"), attempt("3.0")],
  ...(isKilled ? [killedInRefund] : []),
  [ok("3.0", { refundId: "R1" }, isKilled ? "reconcile" : "call"), result("3.0")],
  ...modelStep("4", "a2", { calls: [refund2] }),
  [
    callStarted("5.0", "refund", "write", "c2", "4"),
    { kind: "interrupt.opened", interrupt: i1 },
    told("5.0", i1, "open"),
  ],
  [
    ...[stateSnapshot, messagesSnapshot],
    ...legEnd(1, { type: "interrupt", interrupts: [wireInterrupt(i1)] }),
    { kind: "run.parked", why: "interrupt" },
  ],
  [
    ...leg(
      2,
      "r2",
      request("r2", {
        resume: [{ interruptId: "I1", status: "resolved", payload: { approved: true } }],
        state: { step: "idle" },
      }),
    ),
    { kind: "interrupt.answered", id: "I1", status: "resolved", payload: { approved: true }, by: "s" },
  ],
  [attempt("5.0", 1, 3)],
  [
    ok("5.0", { refundId: "R2" }, "call", [{ op: "replace", path: "/step", value: "done" }]),
    result("5.0"),
    frame("5.0", { type: "STATE_DELTA", delta: [{ op: "replace", path: "/step", value: "done" }] }),
  ],
  ...modelStep("6", "a3", { say: "Done." }),
  [
    ...legEnd(2, { type: "success", result: "Done.", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", output: "Done.", unresolved: [] },
  ],
];

// t2: SIGKILL in a model step, with half a text and half a call on the screen

const a: Call = { id: "c", name: "search_orders", input: { a: 1 } };

const t2Whole = (n: number): Batch[] => [
  n === 1 ? [modelStarted("0"), attempt("0")] : [attempt("0", n, n)],
  ...reasoning("0.0", "g", "thi", "nk").map((one) => [one]),
  ...text("0.1", "a0", "Hel", "lo").map((one) => [one]),
  ...callFrames("0.2", a, "a0", 2).map((one) => [one]),
  [callEnd("0.2", a), said("0", "a0", "Hello", [a])],
  [callStarted("1.0", "search_orders", "read", "c", "0"), attempt("1.0")],
  [ok("1.0", "found"), result("1.0")],
  ...modelStep("2", "a1", { say: "Found." }),
  [
    ...legEnd(1, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
];

const t2: Batch[] = [
  begin,
  [modelStarted("0"), attempt("0")],
  ...reasoning("0.0", "g", "thi").map((one) => [one]),
  ...text("0.1", "a0", "Hel")
    .slice(0, 2)
    .map((one) => [one]),
  ...callFrames("0.2", a, "a0", 2)
    .slice(0, 2)
    .map((one) => [one]),
  [
    { kind: "run.resumed", why: "recovered", epoch: 2 },
    ref("0", { of: "MESSAGES_SNAPSHOT", without: { path: at("0"), n: 1 } }),
    callEnd("0.2", a),
    frame("0.1", { type: "TEXT_MESSAGE_END", messageId: "a0" }),
    failed("0"),
  ],
  ...t2Whole(2),
];

// t3: a slow read and two approvals; the inbox answers one in the open leg; crash; AG-UI answers the other

const slow: Call = { id: "c0", name: "search_orders", input: { email: "x" } };
const first: Call = { id: "c1", name: "refund", input: { orderId: "1", cents: 1 } };
const second: Call = { id: "c2", name: "refund", input: { orderId: "2", cents: 2 } };
const ask1 = approval("I1", "1.1", "c1");
const ask2 = approval("I2", "1.2", "c2");
const yes = { status: "resolved", payload: { approved: true } } as const;

const t3 = (isKilled: boolean): Batch[] => [
  begin,
  ...modelStep("0", "a0", { calls: [slow, first, second] }),
  [callStarted("1.0", "search_orders", "read", "c0", "0", 0), attempt("1.0")],
  [
    callStarted("1.1", "refund", "write", "c1", "0", 1),
    { kind: "interrupt.opened", interrupt: ask1 },
    told("1.1", ask1, "open"),
  ],
  [
    callStarted("1.2", "refund", "write", "c2", "0", 2),
    { kind: "interrupt.opened", interrupt: ask2 },
    told("1.2", ask2, "open"),
  ],
  [{ kind: "interrupt.answered", id: "I1", ...yes, by: "bob" }, told("1.1", ask1, "answered")],
  [attempt("1.1")],
  ...(isKilled
    ? ([
        [{ kind: "run.resumed", why: "recovered", epoch: 2 }, failed("1.0"), failed("1.1", "unknown")],
        [attempt("1.0", 2, 2)],
        [ok("1.1", { refundId: "R1" }, "reconcile"), result("1.1")],
        [ok("1.0", ["found"]), result("1.0")],
      ] satisfies Batch[])
    : [
        [ok("1.0", ["found"]), result("1.0")],
        [ok("1.1", { refundId: "R1" }), result("1.1")],
      ]),
  [
    ...[stateSnapshot, messagesSnapshot],
    ...legEnd(1, { type: "interrupt", interrupts: [wireInterrupt(ask2)] }),
    { kind: "run.parked", why: "interrupt" },
  ],
  [
    ...leg(2, "r2", request("r2", { resume: [{ interruptId: "I2", ...yes }], state: { step: "idle" } })),
    { kind: "interrupt.answered", id: "I2", ...yes, by: "s" },
  ],
  [attempt("1.2", 1, 3)],
  [ok("1.2", { refundId: "R2" }), result("1.2")],
  ...modelStep("2", "a1", { say: "Done." }),
  [
    ...legEnd(2, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
];

// t4: a sibling that has published is killed; the other one has finished with its own change

const add = (index: number, value: string) => [{ op: "add" as const, path: `/items/${index}`, value }];
const shows = (path: string, index: number, value: string) =>
  frame(path, { type: "STATE_DELTA", delta: add(index, value) });

const t4 = (isKilled: boolean): Batch[] => [
  [runStarted, ...leg(1, "r1", request("r1", { messages: [u] }), stateStart({ items: [] })), stateSnapshot],
  ...modelStep("0", "a0", {
    calls: [
      { id: "c0", name: "add_a", input: {} },
      { id: "c1", name: "add_b", input: {} },
    ],
  }),
  [callStarted("1.0", "add_a", "read", "c0", "0", 0), attempt("1.0")],
  [callStarted("1.1", "add_b", "read", "c1", "0", 1), attempt("1.1")],
  [shows("1.0", 0, "a")],
  [ok("1.1", "b", "call", add(0, "b")), result("1.1"), shows("1.1", 0, "b")],
  ...(isKilled
    ? ([
        [{ kind: "run.resumed", why: "recovered", epoch: 2 }, ref("1.0", { of: "STATE_SNAPSHOT" }), failed("1.0")],
        [attempt("1.0", 2, 2)],
        [shows("1.0", 1, "a")],
      ] satisfies Batch[])
    : []),
  [ok("1.0", "a", "call", add(1, "a")), result("1.0")],
  ...modelStep("2", "a1", { say: "Done." }),
  [
    ...legEnd(1, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
];

// t5: a client tool and a server tool in one turn

const paint: Call = { id: "c1", name: "paint", input: { color: "red" } };
const look: Call = { id: "c2", name: "search_orders", input: {} };
const paintTool: Tool = { name: "paint", description: "Paints the page.", parameters: {} };

const t5: Batch[] = [
  [
    runStarted,
    ...leg(1, "r1", request("r1", { messages: [u], tools: [paintTool] }), stateStart({ step: "idle" })),
    stateSnapshot,
  ],
  ...modelStep("0", "a0", { calls: [paint, look] }),
  [clientCallStarted("1.0", "paint", "c1", "0", 0)],
  [callStarted("1.1", "search_orders", "read", "c2", "0", 1), attempt("1.1")],
  [ok("1.1", "two orders"), result("1.1")],
  [...legEnd(1, { type: "success", pendingToolCallIds: ["c1"] }), { kind: "run.parked", why: "client-tool" }],
  [
    ...leg(
      2,
      "r2",
      request("r2", { results: [toolMessage("tm1", "c1", "cli")], tools: [paintTool], state: { step: "idle" } }),
    ),
    ok("1.0", "cli", "client"),
  ],
  ...modelStep("2", "a1", { say: "Painted." }),
  [
    ...legEnd(2, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
];

// t6: cancel while a write runs, a read runs, and a second write waits for approval

const ask6 = approval("I2", "1.2", "c2");

const t6: Batch[] = [
  begin,
  ...modelStep("0", "a0", { calls: [first, slow, second].map((call, i) => ({ ...call, id: `c${i}` })) }),
  [callStarted("1.0", "refund", "write", "c0", "0", 0), attempt("1.0")],
  [callStarted("1.1", "search_orders", "read", "c1", "0", 1), attempt("1.1")],
  [
    callStarted("1.2", "refund", "write", "c2", "0", 2),
    { kind: "interrupt.opened", interrupt: ask6 },
    told("1.2", ask6, "open"),
  ],
  [{ kind: "inbox.taken", item: "cancel", payload: null, by: "s" }],
  [cancelled("1.1"), result("1.1")],
  [
    { kind: "interrupt.answered", id: "I2", status: "withdrawn", by: "" },
    told("1.2", ask6, "withdrawn"),
    cancelled("1.2"),
    result("1.2"),
  ],
  [ok("1.0", { refundId: "R1" }), result("1.0")],
  [...legEnd(1, { type: "cancelled" }), { kind: "run.finished", outcome: "cancelled", unresolved: [] }],
];

// t7: an inbox answer begins a headless leg

const ask7 = approval("I1", "1.0", "c1");

const t7: Batch[] = [
  begin,
  ...modelStep("0", "a0", { say: "Refunding.", calls: [{ ...refund1, id: "c1" }] }),
  [
    callStarted("1.0", "refund", "write", "c1", "0"),
    { kind: "interrupt.opened", interrupt: ask7 },
    told("1.0", ask7, "open"),
  ],
  [
    ...[stateSnapshot, messagesSnapshot],
    ...legEnd(1, { type: "interrupt", interrupts: [wireInterrupt(ask7)] }),
    { kind: "run.parked", why: "interrupt" },
  ],
  [...leg(2, "U.2", null), { kind: "interrupt.answered", id: "I1", ...yes, by: "bob" }, told("1.0", ask7, "answered")],
  [attempt("1.0", 1, 2)],
  [ok("1.0", { refundId: "R1" }), result("1.0")],
  ...modelStep("2", "a1", { say: "Done." }),
  [
    ...legEnd(2, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
];

export const traces: readonly Trace[] = [
  { name: "t1 killed in a write after the money moved", batches: t1(true), uninterrupted: t1(false) },
  { name: "t2 killed in a model step", batches: t2, uninterrupted: [begin, ...t2Whole(1)] },
  { name: "t3 two approvals answered by two ways, with a crash between", batches: t3(true), uninterrupted: t3(false) },
  { name: "t4 a sibling that has published is killed", batches: t4(true), uninterrupted: t4(false) },
  { name: "t5 a client tool beside a server tool", batches: t5, uninterrupted: t5 },
  { name: "t6 cancelled during a write", batches: t6, uninterrupted: t6 },
  { name: "t7 a headless leg", batches: t7, uninterrupted: t7 },
];
