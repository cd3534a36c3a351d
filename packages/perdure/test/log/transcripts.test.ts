import { describe, expect, test } from "vitest";
import { equalTranscripts, normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { interruptEvent, isListed, wireInterrupt } from "../../src/log/interrupts.ts";
import type { Message } from "../../src/protocol/events.ts";
import { approval, type Batch, failed, logOf, ok, toolMessage, user } from "./entries.ts";
import { traces } from "./traces.ts";

const calls = (id: string, ...ids: string[]): Message => ({
  ...{ id, role: "assistant" },
  toolCalls: ids.map((call) => ({ id: call, type: "function", function: { name: "f", arguments: "{}" } })),
});
const held = (...messages: Message[]) => ({ messages, state: {} });

describe("transcripts are equal", () => {
  test("whatever their ids, but not when other things have the same", () => {
    expect(
      equalTranscripts(
        held(calls("a", "c"), toolMessage("t", "c", "1")),
        held(calls("x", "y"), toolMessage("z", "y", "1")),
      ),
    ).toBe(true);
    expect(
      equalTranscripts(
        held(calls("a", "c", "d"), toolMessage("t", "c", "1")),
        held(calls("a", "c", "d"), toolMessage("t", "d", "1")),
      ),
    ).toBe(false);
  });

  test("in whatever order the results of one turn came, with what else between them", () => {
    const activity: Message = { id: "p", role: "activity", activityType: "PLAN", content: { n: 1 } };
    const [one, two] = [toolMessage("t1", "c1", "1"), toolMessage("t2", "c2", "2")];
    const asked = calls("a", "c1", "c2");
    expect(equalTranscripts(held(asked, two, activity, one), held(asked, one, two, activity))).toBe(true);
    expect(equalTranscripts(held(asked, two, one), held(asked, one, { ...two, content: "3" }))).toBe(false);
  });

  test("with or without what shows nothing", () => {
    const blank: Message[] = [
      { id: "g", role: "reasoning", content: "" },
      { id: "p", role: "activity", activityType: "PLAN", content: {} },
      { id: "a0", role: "assistant", content: "" },
    ];
    const asked = { ...calls("a", "c"), content: "" } as Message;
    expect(normaliseTranscript(held(user("u", "hi"), ...blank, asked))).toEqual(
      normaliseTranscript(held(user("u", "hi"), calls("a", "c"))),
    );
    expect(equalTranscripts(held(user("u", "")), held())).toBe(false);
  });

  test("only with equal state", () => {
    expect(equalTranscripts({ messages: [], state: { a: 1 } }, { messages: [], state: { a: 2 } })).toBe(false);
  });
});

describe("the essence", () => {
  const t1 = traces.find(({ name }) => name.startsWith("t1"))?.batches ?? [];
  const changed = (change: (entry: Batch[number]) => Batch[number]) => t1.map((batch) => batch.map(change));

  test("is another one when an output, an answer, a name or the outcome is", () => {
    const same = essence(logOf(t1));
    const others = [
      changed((entry) =>
        entry.kind === "step.finished" && entry.path === "3.0" ? ok("3.0", { refundId: "R9" }) : entry,
      ),
      changed((entry) => (entry.kind === "interrupt.answered" ? { ...entry, payload: { approved: false } } : entry)),
      changed((entry) => (entry.kind === "step.started" && entry.path === "1.0" ? { ...entry, name: "other" } : entry)),
      changed((entry) => (entry.kind === "run.finished" ? { ...entry, outcome: "failed" } : entry)),
    ];
    for (const other of others) expect(essence(logOf(other))).not.toEqual(same);
  });

  test("leaves out where a history ended, how an end came about, and questions about unknown writes", () => {
    const unknown = { ...approval("I9", "3.0", "c1"), kind: "unknown-write" as const };
    const other = [
      ...changed((entry) => {
        if (entry.kind === "step.finished") return { ...entry, via: "answer" };
        if (entry.kind !== "step.started" || !("history" in entry.input)) return entry;
        return { ...entry, input: { history: { ...entry.input.history, upTo: 99 } } };
      }),
      [failed("3.0"), { kind: "interrupt.opened", interrupt: unknown }] satisfies Batch,
    ];
    expect(essence(logOf(other))).toEqual(essence(logOf(t1)));
  });
});

describe("a question on the wire", () => {
  const asked = { ...approval("I", "1.0", "c"), audience: "refund:approve", expiresAt: 0, metadata: { risk: "high" } };

  test("has its schema, audience and expiry", () => {
    expect(wireInterrupt({ ...asked, schema: true })).toEqual({
      ...{ id: "I", reason: "tool_call", message: "Refund?", toolCallId: "c", responseSchema: {} },
      expiresAt: "1970-01-01T00:00:00.000Z",
      metadata: { risk: "high", kind: "approval", audience: "refund:approve" },
    });
  });

  test("is told as a custom event with what became of it", () => {
    expect(interruptEvent(asked, "withdrawn")).toMatchObject({
      name: "perdure.interrupt",
      value: { id: "I", state: "withdrawn" },
    });
  });

  test("is for those who can answer it: not what an operator or a client tool has to do", () => {
    const kinds = ["approval", "unknown-write", "client-tool", "poisoned", "diverged"] as const;
    expect(kinds.filter((kind) => isListed({ ...asked, kind }))).toEqual(["approval", "unknown-write"]);
  });
});
