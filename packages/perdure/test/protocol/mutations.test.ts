import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type AGUIEvent, type AGUIEventOf, type AGUIEventType, event } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { newWire, ProtocolError, type Rule, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { CLIENT_TOOLS, legalStream } from "./legal-streams.ts";

/**
 * Each fault is put into random legal streams; each has to be refused by its own rule, at its own event where that is known. What comes
 * before the fault is legal, so a refusal that came too early, or by another rule, is a defect of the verifier.
 */
interface Fault {
  readonly stream: readonly unknown[];
  /** Index of the event to be refused; undefined when that is a later one. */
  readonly at?: number;
}
type Mutation = (s: Stream) => Fault | undefined;

/** A legal stream, with what it takes to damage it in a certain place. */
class Stream {
  constructor(
    readonly events: readonly AGUIEvent[],
    readonly pick: number,
  ) {}

  /** One of the events of a type that fit, by the pick; undefined when there is none. */
  find<T extends AGUIEventType>(
    type: T,
    fits: (found: AGUIEventOf<T>, i: number) => boolean = () => true,
  ): { readonly i: number; readonly found: AGUIEventOf<T> } | undefined {
    const all = this.events.flatMap((candidate, i) => {
      if (candidate.type !== type) return [];
      const found = candidate as AGUIEventOf<T>;
      return fits(found, i) ? [{ i, found }] : [];
    });
    return all[this.pick % all.length];
  }

  /** A place within a run. */
  inRun(): number | undefined {
    const places = this.events.flatMap((_, i) => (i > 0 && this.isRunning(i) ? [i] : []));
    return places[this.pick % places.length];
  }
  isRunning(i: number): boolean {
    const last = this.events.slice(0, i).findLast(({ type }) => type.startsWith("RUN_"));
    return last?.type === "RUN_STARTED";
  }
  /** The event that ends the run of event `i`, or an event later in that run. */
  endOf(i: number): AGUIEvent | undefined {
    return this.events.slice(i).find(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
  }
  restOfRun(i: number): readonly AGUIEvent[] {
    const rest = this.events.slice(i + 1);
    const end = rest.findIndex(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
    return end < 0 ? rest : rest.slice(0, end + 1);
  }
  runSoFar(i: number): readonly AGUIEvent[] {
    const begin = this.events.slice(0, i).findLastIndex(({ type }) => type === "RUN_STARTED");
    return this.events.slice(Math.max(0, begin), i);
  }
  /** Whether event `i` ends something that a snapshot has just taken back. */
  isTakenBack(i: number): boolean {
    return this.events[i - 1]?.type === "MESSAGES_SNAPSHOT";
  }

  insert(i: number, ...added: readonly unknown[]): Fault {
    return { stream: [...this.events.slice(0, i), ...added, ...this.events.slice(i)], at: i + added.length - 1 };
  }
  replace(i: number, by: unknown): Fault {
    return { stream: this.events.with(i, by as AGUIEvent), at: i };
  }
  drop(i: number): Fault {
    return { stream: [...this.events.slice(0, i), ...this.events.slice(i + 1)] };
  }
}

const custom = event("CUSTOM", { name: "n", value: 1 });
const failed = event("RUN_ERROR", { message: "x" });
const stranger = { subagentRunId: "stranger" };
const idOf = (e: AGUIEvent): string | undefined =>
  "toolCallId" in e ? e.toolCallId : "messageId" in e ? e.messageId : undefined;

function doubled(type: AGUIEventType, fits?: (e: AGUIEvent) => boolean): Mutation {
  return (s) => {
    const it = s.find(type, fits);
    return it && s.insert(it.i + 1, it.found);
  };
}
function after(
  type: AGUIEventType,
  added: (found: AGUIEvent) => AGUIEvent,
  fits?: (e: AGUIEvent, s: Stream, i: number) => boolean,
): Mutation {
  return (s) => {
    const it = s.find(type, (found, i) => fits === undefined || fits(found, s, i));
    return it && s.insert(it.i + 1, added(it.found));
  };
}
function changed<T extends AGUIEventType>(
  type: T,
  change: (found: AGUIEventOf<T>) => object,
  fits?: (e: AGUIEventOf<T>, s: Stream, i: number) => boolean,
): Mutation {
  return (s) => {
    const it = s.find(type, (found, i) => fits === undefined || fits(found, s, i));
    return it && s.replace(it.i, { ...it.found, ...change(it.found) });
  };
}
function inRun(...added: readonly AGUIEvent[]): Mutation {
  return (s) => {
    const i = s.inRun();
    return i === undefined ? undefined : s.insert(i, ...added);
  };
}
/** An END that is missing: the run wants to finish, and nothing began the item again. */
function endDropped(end: AGUIEventType, same: (ended: AGUIEvent, later: AGUIEvent) => boolean): Mutation {
  return (s) => {
    const it = s.find(
      end,
      (found, i) => s.endOf(i)?.type === "RUN_FINISHED" && !s.restOfRun(i).some((later) => same(found, later)),
    );
    return it && s.drop(it.i);
  };
}
const sameId = (a: AGUIEvent, b: AGUIEvent) => idOf(a) === idOf(b);
/** A START that is missing although more of the item follows, before anything else speaks of it. */
function startDropped(start: AGUIEventType, more: readonly AGUIEventType[]): Mutation {
  return (s) => {
    const it = s.find(start, (found, i) => {
      const speaksOfIt = (later: AGUIEvent) =>
        sameId(found, later) || ("parentMessageId" in later && later.parentMessageId === idOf(found));
      const next = s.restOfRun(i).find(speaksOfIt);
      return next !== undefined && more.includes(next.type) && sameId(found, next);
    });
    return it && s.drop(it.i);
  };
}
const isOwnStep = (e: AGUIEvent) => "stepName" in e && e.stepName !== "plan";
const isTriadCall = (e: AGUIEvent) => "toolCallId" in e && /^call\d/.test(e.toolCallId ?? "");
const start = (id: string | undefined, name = "search") =>
  event("TOOL_CALL_START", { toolCallId: id ?? "", toolCallName: name });
const result = (id: string | undefined) =>
  event("TOOL_CALL_RESULT", { messageId: "fresh", toolCallId: id ?? "", content: "x" });

const PROTOCOL: Record<string, readonly [Rule, Mutation]> = {
  "no RUN_STARTED": [
    "first-event",
    (s) => (/^RUN_/.test(s.events[1]?.type ?? "RUN_") ? undefined : { ...s.drop(0), at: 0 }),
  ],
  "RUN_STARTED twice": ["run-active", doubled("RUN_STARTED")],
  "another run begins in the middle": [
    "run-active",
    inRun(event("RUN_STARTED", { threadId: "thread", runId: "other" })),
  ],
  "an event after RUN_FINISHED": ["run-over", after("RUN_FINISHED", () => custom)],
  "RUN_FINISHED twice": ["run-over", doubled("RUN_FINISHED")],
  "an event after RUN_ERROR": ["run-errored", after("RUN_ERROR", () => custom)],
  "RUN_ERROR twice": ["run-errored", doubled("RUN_ERROR")],
  "RUN_FINISHED of another run": ["run-id", changed("RUN_FINISHED", () => ({ runId: "other" }))],
  "RUN_FINISHED of another thread": ["thread-id", changed("RUN_FINISHED", () => ({ threadId: "other" }))],
  "a second run on another thread": [
    "thread-id",
    changed(
      "RUN_STARTED",
      () => ({ threadId: "other" }),
      (_, __, i) => i > 0,
    ),
  ],
  "a run id used again": [
    "run-id-reused",
    changed(
      "RUN_STARTED",
      () => ({ runId: "run1" }),
      (_, __, i) => i > 0,
    ),
  ],
  "no terminal event": [
    "run-unfinished",
    (s) => (s.events.at(-2)?.type === "RUN_FINISHED" ? undefined : s.drop(s.events.length - 1)),
  ],
  "an interrupt listed twice": [
    "interrupt-id",
    changed(
      "RUN_FINISHED",
      ({ outcome }) =>
        outcome?.type === "interrupt"
          ? { outcome: { ...outcome, interrupts: [...outcome.interrupts, ...outcome.interrupts] } }
          : {},
      ({ outcome }) => outcome?.type === "interrupt",
    ),
  ],

  "no TEXT_MESSAGE_END": ["open-at-end", endDropped("TEXT_MESSAGE_END", sameId)],
  "no TOOL_CALL_END": ["open-at-end", endDropped("TOOL_CALL_END", sameId)],
  "no REASONING_MESSAGE_END": [
    "open-at-end",
    endDropped("REASONING_MESSAGE_END", (a, b) => sameId(a, b) && b.type !== "REASONING_END"),
  ],
  "no REASONING_END": [
    "open-at-end",
    endDropped("REASONING_END", (a, b) => sameId(a, b) && b.type === "REASONING_START"),
  ],
  "no STEP_FINISHED": [
    "open-at-end",
    endDropped("STEP_FINISHED", (a, b) => b.type === "STEP_STARTED" && !isOwnStep(a)),
  ],
  "no SUBAGENT_FINISHED": ["open-at-end", endDropped("SUBAGENT_FINISHED", () => false)],
  "TEXT_MESSAGE_START twice": ["text-already-open", doubled("TEXT_MESSAGE_START")],
  "TOOL_CALL_START twice": ["tool-call-already-open", doubled("TOOL_CALL_START")],
  "REASONING_MESSAGE_START twice": ["reasoning-message-already-open", doubled("REASONING_MESSAGE_START")],
  "REASONING_START twice": ["reasoning-already-open", doubled("REASONING_START")],
  "STEP_STARTED twice": ["step-already-open", doubled("STEP_STARTED")],
  "SUBAGENT_STARTED twice": ["subagent-already-open", doubled("SUBAGENT_STARTED")],
  "TEXT_MESSAGE_END twice": ["text-not-open", doubled("TEXT_MESSAGE_END")],
  "TOOL_CALL_END twice": ["tool-call-not-open", doubled("TOOL_CALL_END")],
  "REASONING_MESSAGE_END twice": ["reasoning-message-not-open", doubled("REASONING_MESSAGE_END")],
  "REASONING_END twice": ["reasoning-not-open", doubled("REASONING_END")],
  "STEP_FINISHED twice": ["step-not-open", doubled("STEP_FINISHED", isOwnStep)],
  "SUBAGENT_FINISHED twice": ["subagent-not-open", doubled("SUBAGENT_FINISHED")],
  "SUBAGENT_ERROR twice": ["subagent-not-open", doubled("SUBAGENT_ERROR")],
  "no TEXT_MESSAGE_START": [
    "text-not-open",
    startDropped("TEXT_MESSAGE_START", ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]),
  ],
  "no TOOL_CALL_START": ["tool-call-not-open", startDropped("TOOL_CALL_START", ["TOOL_CALL_ARGS", "TOOL_CALL_END"])],
  "no REASONING_MESSAGE_START": [
    "reasoning-message-not-open",
    startDropped("REASONING_MESSAGE_START", ["REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"]),
  ],
  "no REASONING_START": ["reasoning-not-open", startDropped("REASONING_START", ["REASONING_END"])],
  "no STEP_STARTED": [
    "step-not-open",
    (s) => {
      const it = s.find(
        "STEP_STARTED",
        (found, i) =>
          isOwnStep(found) &&
          s.restOfRun(i).some((later) => later.type === "STEP_FINISHED" && later.stepName === found.stepName),
      );
      return it && s.drop(it.i);
    },
  ],
  "no SUBAGENT_STARTED": [
    "subagent-not-open",
    (s) => {
      const it = s.find("SUBAGENT_STARTED", ({ subagentRunId }, i) => {
        const rest = s.restOfRun(i);
        const isParent = rest.some(
          (later) => later.type === "SUBAGENT_STARTED" && later.parentSubagentRunId === subagentRunId,
        );
        return (
          !isParent &&
          rest.some(
            (later) =>
              /^SUBAGENT_(FIN|ERR)/.test(later.type) &&
              "subagentRunId" in later &&
              later.subagentRunId === subagentRunId,
          )
        );
      });
      return it && s.drop(it.i);
    },
  ],
  "content of a text that never was": [
    "text-not-open",
    inRun(event("TEXT_MESSAGE_CONTENT", { messageId: "never", delta: "x" })),
  ],
  "arguments of a call that never was": [
    "tool-call-not-open",
    inRun(event("TOOL_CALL_ARGS", { toolCallId: "never", delta: "x" })),
  ],

  "content by another owner": ["owner", changed("TEXT_MESSAGE_CONTENT", () => stranger)],
  "reasoning by another owner": ["owner", changed("REASONING_MESSAGE_CONTENT", () => stranger)],
  "arguments by another owner": ["owner", changed("TOOL_CALL_ARGS", () => stranger)],
  "a text ended by another owner": ["owner", changed("TEXT_MESSAGE_END", () => stranger)],
  "a call ended by another owner": ["owner", changed("TOOL_CALL_END", () => stranger)],
  "an activity patched by another owner": [
    "owner",
    changed(
      "ACTIVITY_DELTA",
      () => stranger,
      (found, s, i) => s.runSoFar(i).some((e) => e.type === "ACTIVITY_SNAPSHOT" && e.messageId === found.messageId),
    ),
  ],
  "a step finished by another owner": ["step-owner", changed("STEP_FINISHED", () => stranger)],
  "a call of another owner than its message": [
    "call-owner",
    changed(
      "TOOL_CALL_START",
      () => stranger,
      ({ parentMessageId }) => parentMessageId?.startsWith("text") === true,
    ),
  ],
  "a text's id for reasoning": [
    "id-kind",
    after("TEXT_MESSAGE_START", (e) =>
      event("REASONING_MESSAGE_START", { messageId: idOf(e) ?? "", role: "reasoning" }),
    ),
  ],
  "a reasoning message's id for a text": [
    "id-kind",
    after("REASONING_MESSAGE_END", (e) => event("TEXT_MESSAGE_START", { messageId: idOf(e) ?? "" })),
  ],
  "an activity's id for a text": [
    "id-kind",
    after("ACTIVITY_SNAPSHOT", (e) => event("TEXT_MESSAGE_START", { messageId: idOf(e) ?? "" })),
  ],
  "a text's id for an activity": [
    "id-kind",
    after("TEXT_MESSAGE_END", (e) =>
      event("ACTIVITY_SNAPSHOT", { messageId: idOf(e) ?? "", activityType: "PLAN", content: {} }),
    ),
  ],

  "a result without a call": ["result-without-call", inRun(result("never"))],
  "a result whose call a snapshot has withdrawn": [
    "result-without-call",
    (s) => {
      const it = s.find("TOOL_CALL_RESULT");
      return it && { ...s.insert(it.i, event("MESSAGES_SNAPSHOT", { messages: [] })), at: it.i + 1 };
    },
  ],
  "two results for one call": [
    "result-repeated",
    after("TOOL_CALL_RESULT", (e) => ({ ...result(""), ...e, messageId: "fresh" }) as AGUIEvent),
  ],
  "a result under a text's id": [
    "result-id",
    (s) => {
      const it = s.find("TOOL_CALL_RESULT");
      const taken = s.events.slice(0, it?.i ?? 0).find(({ type }) => type === "TEXT_MESSAGE_START");
      return it && taken && s.replace(it.i, { ...it.found, messageId: idOf(taken) });
    },
  ],
  "a result before its call's END": [
    "result-before-end",
    (s) => {
      const it = s.find("TOOL_CALL_END", (_, i) => !s.isTakenBack(i));
      return it && s.insert(it.i, result(it.found.toolCallId));
    },
  ],
  "the server answers the client's call": [
    "client-call-result",
    after(
      "TOOL_CALL_END",
      (e) => result(idOf(e)),
      (e, s, i) =>
        !s.isTakenBack(i) &&
        s
          .runSoFar(i)
          .some((b) => b.type === "TOOL_CALL_START" && sameId(b, e) && CLIENT_TOOLS.includes(b.toolCallName)),
    ),
  ],
  "answered arguments that are not JSON": [
    "args-not-json",
    (s) => {
      const it = s.find("TOOL_CALL_END", (found, i) => {
        const rest = s.events.slice(i + 1);
        const next = rest.find((e) => e.type === "MESSAGES_SNAPSHOT" || sameId(e, found));
        return !s.isTakenBack(i) && next?.type === "TOOL_CALL_RESULT";
      });
      return (
        it && {
          stream: s.insert(it.i, event("TOOL_CALL_ARGS", { toolCallId: it.found.toolCallId, delta: "]" })).stream,
        }
      );
    },
  ],
  "arguments left to the client that are not JSON": [
    "args-not-json",
    (s) => {
      const it = s.find("TOOL_CALL_END", (found, i) => {
        const rest = s.restOfRun(i);
        const end = rest.at(-1);
        const isSuccess = end?.type === "RUN_FINISHED" && (end.outcome === undefined || end.outcome.type === "success");
        return isSuccess && !s.isTakenBack(i) && !rest.some((e) => e.type === "MESSAGES_SNAPSHOT" || sameId(e, found));
      });
      return (
        it && {
          stream: s.insert(it.i, event("TOOL_CALL_ARGS", { toolCallId: it.found.toolCallId, delta: "]" })).stream,
        }
      );
    },
  ],
  "a call made again after its result": [
    "call-reopened",
    after("TOOL_CALL_RESULT", (e) => start("toolCallId" in e ? e.toolCallId : undefined), isTriadCall),
  ],
  "a call made again as another tool's": [
    "call-reopened",
    after(
      "TOOL_CALL_END",
      (e) => start(idOf(e), "other"),
      (_, s, i) => !s.isTakenBack(i),
    ),
  ],
  "a call made again in a later run": [
    "call-reopened",
    (s) => {
      const next = s.find("RUN_STARTED", (_, i) => i > 0);
      if (next === undefined) return undefined;
      const made = s.events.slice(0, next.i).findLast((e, i) => {
        if (e.type !== "TOOL_CALL_START" || e.parentMessageId !== undefined) return false;
        const since = s.events.slice(i + 1, next.i);
        return (
          since.some((later) => later.type === "TOOL_CALL_END" && sameId(later, e)) &&
          !since.some((later) => later.type === "MESSAGES_SNAPSHOT")
        );
      });
      return made?.type === "TOOL_CALL_START"
        ? s.insert(next.i + 1, start(made.toolCallId, made.toolCallName))
        : undefined;
    },
  ],

  "an activity patched that never was": [
    "activity-without-snapshot",
    inRun(event("ACTIVITY_DELTA", { messageId: "never", activityType: "PLAN", patch: [] })),
  ],
  "no ACTIVITY_SNAPSHOT": [
    "activity-without-snapshot",
    (s) => {
      const it = s.find("ACTIVITY_SNAPSHOT", (found, i) => {
        const isFirst = !s.events.slice(0, i).some((e) => sameId(e, found));
        const next = s.events.slice(i + 1).find((e) => e.type === "MESSAGES_SNAPSHOT" || sameId(e, found));
        return isFirst && next?.type === "ACTIVITY_DELTA";
      });
      return it && s.drop(it.i);
    },
  ],
  "a subagent started again": [
    "subagent-reused",
    after("SUBAGENT_FINISHED", (e) => ({
      type: "SUBAGENT_STARTED",
      name: "n",
      subagentRunId: "subagentRunId" in e ? (e.subagentRunId ?? "") : "",
    })),
  ],
  "a subagent of an unknown parent": [
    "subagent-parent",
    changed("SUBAGENT_STARTED", () => ({ parentSubagentRunId: "nobody" })),
  ],

  "START for a text that came in chunks": [
    "mixed-forms",
    after(
      "TEXT_MESSAGE_CHUNK",
      (e) => event("TEXT_MESSAGE_START", { messageId: idOf(e) ?? "" }),
      (e) => idOf(e) !== undefined,
    ),
  ],
  "chunks for a text that began with START": [
    "mixed-forms",
    after(
      "TEXT_MESSAGE_END",
      (e) => event("TEXT_MESSAGE_CHUNK", { messageId: idOf(e) ?? "" }),
      (_, s, i) => !s.isTakenBack(i),
    ),
  ],
  "chunks for a call that began with START": [
    "mixed-forms",
    after(
      "TOOL_CALL_END",
      (e) => event("TOOL_CALL_CHUNK", { toolCallId: idOf(e) ?? "", toolCallName: "search" }),
      (_, s, i) => !s.isTakenBack(i),
    ),
  ],
  "a first text chunk without an id": [
    "chunk-without-id",
    inRun(event("TEXT_MESSAGE_CHUNK", { delta: "x", ...stranger })),
  ],
  "a text chunk without an id after its stream was closed": [
    "chunk-without-id",
    inRun(
      event("TEXT_MESSAGE_CHUNK", { messageId: "fresh", ...stranger }),
      { ...custom, ...stranger },
      event("TEXT_MESSAGE_CHUNK", { delta: "x", ...stranger }),
    ),
  ],
  "a first call chunk without the tool's name": [
    "chunk-without-name",
    inRun(event("TOOL_CALL_CHUNK", { toolCallId: "fresh" })),
  ],
  "a chunk of another role": [
    "chunk-conflict",
    after(
      "TEXT_MESSAGE_CHUNK",
      (e) => event("TEXT_MESSAGE_CHUNK", { messageId: idOf(e) ?? "", role: "developer" }),
      (e) => idOf(e) !== undefined,
    ),
  ],
  "a chunk of another tool": [
    "chunk-conflict",
    after(
      "TOOL_CALL_CHUNK",
      (e) => event("TOOL_CALL_CHUNK", { toolCallId: idOf(e) ?? "", toolCallName: "other" }),
      (e) => idOf(e) !== undefined,
    ),
  ],
  "a chunk that could belong to two lanes": [
    "chunk-ambiguous",
    inRun(
      custom,
      event("TEXT_MESSAGE_CHUNK", { messageId: "fresh1", subagentRunId: "x1" }),
      event("TEXT_MESSAGE_CHUNK", { messageId: "fresh2", subagentRunId: "x2" }),
      event("TEXT_MESSAGE_CHUNK", { delta: "?" }),
    ),
  ],

  "null for an optional member": ["shape", changed("TEXT_MESSAGE_CONTENT", () => ({ subagentRunId: null }))],
  "a member that no event has": ["shape", changed("TOOL_CALL_END", () => ({ final: true }))],
  "a delta that is a number": ["shape", changed("TEXT_MESSAGE_CONTENT", () => ({ delta: 1 }))],
  "a snapshot that is undefined": ["shape", changed("STATE_SNAPSHOT", () => ({ snapshot: undefined }))],
  "a BigInt in the state": ["shape", changed("STATE_SNAPSHOT", () => ({ snapshot: { n: 1n } }))],
  "a float as timestamp": ["shape", changed("RUN_STARTED", () => ({ timestamp: 0.5 }))],
  "a line break in an id": ["shape", changed("TEXT_MESSAGE_END", ({ messageId }) => ({ messageId: `${messageId}\n` }))],
  "half a surrogate pair in an id": [
    "shape",
    changed("TOOL_CALL_START", ({ toolCallId }) => ({ toolCallId: `${toolCallId}\ud83d` })),
  ],
  "an id of the wrong type": ["shape", changed("TOOL_CALL_ARGS", () => ({ toolCallId: 7 }))],
  "an event of an unknown type": ["shape", changed("CUSTOM", () => ({ type: "FUTURE_EVENT" }))],
  "an unknown patch operation": ["shape", changed("STATE_DELTA", () => ({ delta: [{ op: "increment", path: "/a" }] }))],
};

const isPending = ({ outcome }: AGUIEventOf<"RUN_FINISHED">) =>
  outcome?.type === "success" && outcome.pendingToolCallIds !== undefined;
const isSuccess = ({ outcome }: AGUIEventOf<"RUN_FINISHED">) => outcome?.type === "success";
const isInterrupt = ({ outcome }: AGUIEventOf<"RUN_FINISHED">) => outcome?.type === "interrupt";
const beforeFinish =
  (fits: (e: AGUIEventOf<"RUN_FINISHED">) => boolean, ...added: readonly AGUIEvent[]): Mutation =>
  (s) => {
    const it = s.find("RUN_FINISHED", fits);
    return it && { ...s.insert(it.i, ...added), at: it.i + added.length };
  };

const STRICT: Record<string, readonly [Rule, Mutation]> = {
  "no version": ["version", (s) => s.replace(0, { ...s.events[0], protocolVersion: undefined })],
  "another version": ["version", changed("RUN_STARTED", () => ({ protocolVersion: "1.1" }))],
  "RUN_ERROR before anything": ["first-event", (s) => s.insert(0, failed)],
  "RUN_ERROR after RUN_FINISHED": ["second-ending", after("RUN_FINISHED", () => failed)],
  "a text open at RUN_ERROR": [
    "open-at-end",
    (s) => {
      const it = s.find("RUN_ERROR");
      return it && { ...s.insert(it.i, event("TEXT_MESSAGE_START", { messageId: "fresh" })), at: it.i + 1 };
    },
  ],
  "a call ended with partial arguments": [
    "args-partial",
    (s) => {
      const it = s.find("TOOL_CALL_END", (_, i) => !s.isTakenBack(i));
      return (
        it && {
          ...s.insert(it.i, event("TOOL_CALL_ARGS", { toolCallId: it.found.toolCallId, delta: "[" })),
          at: it.i + 1,
        }
      );
    },
  ],
  "content of a text that was taken back": [
    "withdrawn",
    (s) => {
      const it = s.find(
        "TEXT_MESSAGE_END",
        (_, i) =>
          s.isTakenBack(i) && s.events[i - 1]?.type === "MESSAGES_SNAPSHOT" && !holds(s.events[i - 1], s.events[i]),
      );
      return it && s.insert(it.i, event("TEXT_MESSAGE_CONTENT", { messageId: it.found.messageId, delta: "x" }));
    },
  ],
  "a pending call not listed": [
    "pending-calls",
    changed("RUN_FINISHED", () => ({ outcome: { type: "success" } }), isPending),
  ],
  "a pending call that never was": [
    "pending-calls",
    changed("RUN_FINISHED", () => ({ outcome: { type: "success", pendingToolCallIds: ["never"] } }), isSuccess),
  ],
  "a pending call listed twice": [
    "pending-calls",
    changed(
      "RUN_FINISHED",
      ({ outcome }) => {
        const ids = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
        return { outcome: { type: "success", pendingToolCallIds: [...ids, ...ids] } };
      },
      isPending,
    ),
  ],
  "a server's call left without a result": [
    "pending-calls",
    beforeFinish(isSuccess, start("fresh"), event("TOOL_CALL_END", { toolCallId: "fresh" })),
  ],
  "a change of state between the snapshots and an interrupt": [
    "interrupt-unprepared",
    beforeFinish(isInterrupt, event("STATE_DELTA", { delta: [] })),
  ],
  "a text between the snapshots and an interrupt": [
    "interrupt-unprepared",
    beforeFinish(
      isInterrupt,
      event("TEXT_MESSAGE_START", { messageId: "fresh" }),
      event("TEXT_MESSAGE_END", { messageId: "fresh" }),
    ),
  ],
};

function holds(snapshot: AGUIEvent | undefined, item: AGUIEvent | undefined): boolean {
  return (
    snapshot?.type === "MESSAGES_SNAPSHOT" &&
    item !== undefined &&
    snapshot.messages.some(({ id }) => id === idOf(item))
  );
}

function refusal(
  stream: readonly unknown[],
  strict: boolean,
): { readonly rule: Rule; readonly at: number } | undefined {
  let at = 0;
  try {
    let wire = newWire({ strict, clientTools: CLIENT_TOOLS });
    for (const next of stream) {
      wire = verify(wire, checkShape(next));
      at++;
    }
    verifyEnd(wire);
    return undefined;
  } catch (error) {
    if (error instanceof ProtocolError) return { rule: error.rule, at };
    throw error;
  }
}

/** Enough streams, the same ones for every fault, so that the rarest fault finds its place many times. */
const STREAMS = 400;
const AT_LEAST = 15;
const ENOUGH = 60;

describe.each([
  { mode: "protocol", strict: false, faults: PROTOCOL, streams: sample({ chunks: true }) },
  { mode: "strict", strict: true, faults: { ...PROTOCOL, ...STRICT }, streams: sample({ strict: true, chunks: true }) },
])("a $mode verifier refuses a random legal stream with", ({ mode, strict, faults, streams }) => {
  const own = Object.entries(faults).filter(([name]) => mode === "protocol" || name in STRICT);
  test.each(own)("%s", (_, [rule, mutate]) => {
    let applied = 0;
    for (const [pick, events] of streams.entries()) {
      const fault = mutate(new Stream(events, pick));
      if (fault === undefined) continue;
      if (++applied > ENOUGH) break;
      const expected = { rule, at: fault.at ?? expect.any(Number) };
      expect(refusal(fault.stream, strict), `stream ${pick}`).toEqual(expected);
    }
    expect(applied).toBeGreaterThanOrEqual(AT_LEAST);
  });
});

test("there are more than 40 faults, and none is seen where there is none", () => {
  expect(Object.keys({ ...PROTOCOL, ...STRICT }).length).toBeGreaterThan(40);
  for (const events of sample({ chunks: true })) expect(refusal(events, false)).toBeUndefined();
});

function sample(options: Parameters<typeof legalStream>[0]): readonly AGUIEvent[][] {
  return fc.sample(legalStream({ ...options, maxMoves: 60 }), STREAMS);
}
