/** Every rule of what a POST means, as a table: the thread as it is, the request, and what comes of it. */
import { describe, expect, test } from "vitest";
import type { Added, Interrupt, LegRequest } from "../../src/log/entries.ts";
import type { Message, RunAgentInput, UserMessage } from "../../src/protocol/events.ts";
import type { Principal } from "../../src/protocol/words.ts";
import type { Arrival } from "../../src/runtime/agent-definition.ts";
import type { HearingPolicy } from "../../src/runtime/hearing.ts";
import { meaning } from "../../src/runtime/meaning.ts";
import type { Closed, Run, ThreadView } from "../../src/store/store.ts";
import { nothing, path, uid } from "../store/builders.ts";

const ann: Principal = { tenant: "acme", subject: "ann", scopes: ["answer"] };

const run: Run = {
  ...{ uid: uid("U"), tenant: "acme", subject: "ann", agent: "desk", thread: "t", turn: 1, labels: {}, aside: null },
  ...{
    createdAt: 0,
    updatedAt: 0,
    head: 9,
    leg: 1,
    legOpen: false,
    outcome: null,
    readyAt: null,
    waitsForKey: null,
    owner: null,
    epoch: 1,
    pruned: null,
    parent: null,
  },
};
type At = NonNullable<ThreadView["run"]>;
const streaming: At = { ...run, legOpen: true, owner: "w", readyAt: 0, atRest: false, legDue: false };
const due: At = { ...run, readyAt: 0, atRest: false, legDue: true };
const goingOn: At = { ...run, readyAt: 0, atRest: false, legDue: false };
const resting: At = { ...run, atRest: true, legDue: false };
const over: At = { ...run, outcome: "success", atRest: true, legDue: false };

function question(id: string, change: Partial<Interrupt> = {}): Interrupt {
  return {
    ...{ id, path: path("1.0"), kind: "approval", reason: "tool_call", message: `${id}?`, argsHash: null },
    ...{ schema: { type: "object", required: ["approved"] }, audience: null, expiresAt: null },
    ...change,
  };
}
const clientCall = (id: string) => question(id, { kind: "client-tool", schema: true, toolCallId: id });

interface Thread {
  readonly run?: At;
  readonly open?: readonly Interrupt[];
  readonly known?: Partial<Added> & { readonly uid?: string };
  /** Ids of the user messages that the thread has. */
  readonly holds?: readonly string[];
  /** What the thread shows; by default what the request has of it. */
  readonly shown?: readonly Message[];
  readonly closed?: Readonly<Record<string, Partial<Closed>>>;
  /** Run ids of the requests that wait, each with the message of its name. */
  readonly queued?: readonly string[];
}

function viewOf({ run: newest, open = [], known, holds = [], closed = {}, queued = [] }: Thread): ThreadView {
  return {
    run: newest ?? null,
    open,
    queued: queued.map((runId, n) => ({
      ...{ n, cancels: false },
      request: { ...nothing, runId, messages: [user(runId)] } as unknown as LegRequest,
    })),
    known:
      known === undefined ? null : { uid: uid(known.uid ?? "U"), leg: 1, added: { ...nothing, ...withoutUid(known) } },
    hasMessage: (id) => holds.includes(id),
    closed(id) {
      const how = closed[id];
      return how === undefined ? null : { status: "resolved", by: "bob", at: 5, ...how };
    },
  };
}

function withoutUid({ uid: _, ...added }: NonNullable<Thread["known"]>): Partial<Added> {
  return added;
}

const user = (id: string, content = id): UserMessage => ({ id, role: "user", content });
const toolMessage = (toolCallId: string, content = "done") =>
  ({ id: `m-${toolCallId}`, role: "tool", toolCallId, content }) as const;
const yes = (interruptId: string) => ({ interruptId, status: "resolved" as const, payload: { approved: true } });
const no = (interruptId: string) => ({ interruptId, status: "resolved" as const, payload: { approved: false } });
const dismiss = (interruptId: string) => ({ interruptId, status: "cancelled" as const });

function mean(
  thread: Thread,
  input: Partial<RunAgentInput>,
  {
    by = ann,
    emptyRequest = "hydrate",
    whileActive = "refuse",
    whileParked = "refuse",
    policy = {},
    note = () => {},
  }: {
    by?: Principal;
    emptyRequest?: "hydrate" | "run";
    whileActive?: Arrival;
    whileParked?: Arrival;
    policy?: Partial<HearingPolicy>;
    note?: (what: string) => void;
  } = {},
) {
  return meaning(viewOf(thread), {
    input: {
      ...{ threadId: "t", runId: "r", messages: [], tools: [], context: [], state: {}, forwardedProps: {} },
      ...input,
    },
    principal: by,
    shown: thread.shown ?? (input.messages ?? []).filter(({ id }) => thread.holds?.includes(id)),
    ...{ emptyRequest, whileActive, whileParked },
    mayLand: () => false,
    note,
    isOurs: (id) => id.startsWith("U:"),
    policy: { importHistory: false, systemMessages: "refuse", ...policy },
    first: (added) => [{ kind: "memo", transformer: "added", value: added.messages.map(({ id }) => id) }],
  });
}

describe("a message that comes before the run before it has ended", () => {
  const news = { messages: [user("u")] };

  test.each([
    ["a leg is open", { run: streaming }, "whileActive", "RUN_ACTIVE"],
    ["a leg is due", { run: due }, "whileActive", "RUN_ACTIVE"],
    ["questions are open", { run: resting, open: [question("I")] }, "whileParked", "INTERRUPTS_OPEN"],
  ] as const)(
    "while %s: refused, or waiting, with a cancel or without, as the agent says",
    (_, thread, policy, code) => {
      expect(mean(thread, news)).toMatchObject({ is: "refuse", status: 409, code });
      const other = policy === "whileActive" ? "whileParked" : "whileActive";
      expect(mean(thread, news, { [other]: "queue" })).toMatchObject({ is: "refuse", code });
      for (const arrival of ["queue", "cancel-and-go"] as const) {
        expect(mean(thread, news, { [policy]: arrival })).toMatchObject({
          ...{ is: "queue", uid: "U", answers: [], cancels: arrival === "cancel-and-go" },
          request: { runId: "r", messages: [{ id: "u" }], isBehind: true },
        });
      }
    },
  );

  test("takes the answers that come with it, all or none", () => {
    const thread = { run: resting, open: [question("I"), question("J")] };
    const meant = mean(thread, { ...news, resume: [yes("I")] }, { whileParked: "queue" });
    expect(meant).toMatchObject({ is: "queue", answers: [{ interrupt: "I" }] });
    const bad = { interruptId: "J", status: "resolved" as const, payload: {} };
    expect(mean(thread, { ...news, resume: [yes("I"), bad] }, { whileParked: "queue" })).toMatchObject({ status: 422 });
    // With all of them answered nothing has to wait.
    expect(mean(thread, { ...news, resume: [yes("I"), yes("J")] }, { whileParked: "queue" })).toMatchObject({
      is: "leg",
    });
  });

  test("waits behind what waits already, wherever the run is, and never overtakes it", () => {
    for (const newest of [over, resting, streaming]) {
      const thread = { run: newest, queued: ["before"] };
      expect(mean(thread, news, { whileActive: "queue" })).toMatchObject({ is: "queue" });
      expect(mean(thread, news)).toMatchObject({ is: "refuse", code: "RUN_ACTIVE" });
      expect(mean(thread, {}, { emptyRequest: "run" }).is).toBe(newest === streaming ? "rejoin" : "hydrate");
    }
  });

  test("that waits is the same request again, or another one under its run id", () => {
    const thread = { run: streaming, queued: ["r"] };
    expect(mean(thread, { messages: [user("r")] })).toMatchObject({ is: "queued", uid: "U" });
    expect(mean(thread, { messages: [user("r", "else")] })).toMatchObject({ is: "refuse", code: "RUN_ID_REUSED" });
  });

  test("is refused where no driver will ever end the run", () => {
    const aside = { ...goingOn, aside: "damaged" };
    expect(mean({ run: aside }, news, { whileActive: "queue" })).toMatchObject({ is: "refuse", code: "RUN_ACTIVE" });
  });
});

describe("1. a run id that the thread knows", () => {
  const recorded = { messages: [user("u")] };

  test.each([
    ["while its leg is open", streaming, "rejoin"],
    ["while its leg is due", due, "rejoin"],
    ["at rest", resting, "hydrate"],
    ["after the run has ended", over, "hydrate"],
    ["after another run has begun", { ...streaming, uid: uid("V") }, "hydrate"],
  ] as const)("with the same request, %s", (_, newest, is) => {
    const meant = mean({ run: newest, known: recorded, holds: ["u"] }, { messages: [user("u")] });
    expect(meant).toMatchObject({ is, uid: "U" });
  });

  test.each<[string, Thread["known"], Partial<RunAgentInput>]>([
    ["another user message", recorded, { messages: [user("u"), user("v")] }],
    ["another text under the same id", recorded, { messages: [user("u", "else")] }],
    ["fewer messages", recorded, { messages: [] }],
    ["another answer", { resume: [yes("I")] }, { resume: [no("I")] }],
    ["an answer more", recorded, { messages: [user("u")], resume: [yes("I")] }],
    ["another result of the client", { results: [toolMessage("c")] }, { messages: [toolMessage("c", "else")] }],
  ])("with %s: 409 RUN_ID_REUSED", (_, known = {}, input) => {
    const meant = mean({ run: streaming, known, holds: ["u"], open: [question("I")] }, input);
    expect(meant).toMatchObject({ is: "refuse", status: 409, code: "RUN_ID_REUSED" });
  });

  test("with the client's own copy of what it was shown beside the request: the same request", () => {
    const half = { id: "a0", role: "assistant", content: "Hel" } as const;
    const shown = { id: "t0", role: "tool", toolCallId: "c9", content: "found" } as const;
    const meant = mean(
      { run: streaming, known: recorded, holds: ["old", "u"] },
      { messages: [user("old"), user("u"), half, shown], state: { changed: true } },
    );
    expect(meant).toMatchObject({ is: "rejoin" });
  });
});

describe("2. answers and client results, all or none", () => {
  const asked: Thread = { run: resting, open: [question("I"), question("J")] };

  test("all of the open questions: the next leg", () => {
    expect(mean(asked, { resume: [yes("I"), no("J")] })).toMatchObject({
      is: "leg",
      answers: [
        { interrupt: "I", payload: { approved: true }, by: ann },
        { interrupt: "J", payload: { approved: false } },
      ],
      request: { runId: "r", resume: [yes("I"), no("J")] },
    });
  });

  test("some of the open questions: the next leg with those", () => {
    expect(mean(asked, { resume: [yes("J")] })).toMatchObject({ is: "leg", answers: [{ interrupt: "J" }] });
  });

  test.each([
    ["unknown", {}],
    ["of another thread", { closed: {} }],
  ])("a question that is %s: 409 INTERRUPT_NOT_FOUND, if nothing else is usable", (_, thread) => {
    const meant = mean({ ...asked, ...thread }, { resume: [yes("X")] });
    expect(meant).toMatchObject({
      is: "refuse",
      status: 409,
      code: "INTERRUPT_NOT_FOUND",
      details: { interrupts: ["X"] },
    });
    expect(mean(asked, { resume: [yes("X"), yes("I")] })).toMatchObject({ is: "leg", answers: [{ interrupt: "I" }] });
  });

  test("closed with the same answer, or dismissed however it was closed: covered", () => {
    const closed = { I: { payload: { approved: true } }, J: { status: "expired" as const } };
    expect(mean({ run: over, closed }, { resume: [yes("I"), dismiss("J")] })).toMatchObject({ is: "hydrate" });
    expect(mean({ run: resting, closed, open: [question("K")] }, { resume: [dismiss("I"), yes("K")] })).toMatchObject({
      is: "leg",
      answers: [{ interrupt: "K" }],
    });
    expect(mean({ run: streaming, closed }, { resume: [yes("I")] })).toMatchObject({ is: "rejoin", answers: [] });
  });

  test("closed with another answer: 409 with who and when, noted for him, and nothing of the request is taken", () => {
    const closed = { I: { payload: { approved: true } } };
    const meant = mean({ run: resting, closed, open: [question("J")] }, { resume: [no("I"), yes("J")] });
    expect(meant).toMatchObject({
      ...{ is: "refuse", status: 409, code: "INTERRUPT_ANSWERED" },
      details: [{ interrupt: "I", status: "resolved", by: "bob", at: 5 }],
      contested: [{ interrupt: "I", by: ann }],
    });
  });

  test("an answer that fails its schema: 422 with the place, and nothing of the request is taken", () => {
    const bad = { interruptId: "J", status: "resolved" as const, payload: { approve: 1 } };
    expect(mean(asked, { resume: [yes("I"), bad] })).toMatchObject({
      ...{ is: "refuse", status: 422, code: "ANSWER_INVALID" },
      details: { interrupt: "J" },
    });
  });

  test("an answer without the scope, or without the question's audience: 403", () => {
    const nobody = { by: { ...ann, scopes: [] } };
    expect(mean(asked, { resume: [yes("I")] }, nobody)).toMatchObject({ status: 403, code: "ANSWER_FORBIDDEN" });
    const open = [question("I", { audience: "refund:approve" })];
    expect(mean({ run: resting, open }, { resume: [yes("I")] })).toMatchObject({
      status: 403,
      code: "ANSWER_FORBIDDEN",
    });
    const boss = { by: { ...ann, scopes: ["answer", "refund:approve"] } };
    expect(mean({ run: resting, open }, { resume: [yes("I")] }, boss)).toMatchObject({ is: "leg" });
  });

  test("what only an operator closes: 403", () => {
    const open = [question("I", { kind: "poisoned" })];
    expect(mean({ run: resting, open }, { resume: [yes("I")] })).toMatchObject({ status: 403 });
  });

  test("a client's result: the next leg at rest, a rejoin while the leg is open", () => {
    const open = [clientCall("c")];
    const answer = { interrupt: "c", status: "resolved", payload: { content: "done", messageId: "m-c" } };
    expect(mean({ run: resting, open }, { messages: [toolMessage("c")] })).toMatchObject({
      ...{ is: "leg", answers: [answer] },
      request: { results: [toolMessage("c")] },
    });
    expect(mean({ run: streaming, open }, { messages: [toolMessage("c")] })).toMatchObject({
      ...{ is: "rejoin", answers: [answer] },
    });
  });

  test("a result of a call that is not the client's, or has one: nothing", () => {
    expect(mean({ run: resting, open: [question("I")] }, { messages: [toolMessage("I")] })).toMatchObject({
      is: "hydrate",
    });
    expect(mean({ run: over, closed: { c: {} } }, { messages: [toolMessage("c")] })).toMatchObject({ is: "hydrate" });
  });

  test("a resume entry cannot answer for the client's tool", () => {
    expect(mean({ run: resting, open: [clientCall("c")] }, { resume: [yes("c")] })).toMatchObject({
      ...{ is: "refuse", code: "INTERRUPT_NOT_FOUND" },
    });
  });
});

describe("3. new user messages", () => {
  const input = { messages: [user("old"), user("new")] };
  const holds = ["old"];

  test.each<[string, Thread, object]>([
    ["on a new thread", {}, { is: "run", first: [{ value: ["old", "new"] }] }],
    ["after the run has ended", { run: over, holds }, { is: "run", first: [{ value: ["new"] }] }],
    ["while a leg is open", { run: streaming, holds }, { is: "refuse", status: 409, code: "RUN_ACTIVE" }],
    ["while a leg is due", { run: due, holds }, { is: "refuse", status: 409, code: "RUN_ACTIVE" }],
    ["while the run goes on without a leg", { run: goingOn, holds }, { is: "refuse", status: 409, code: "RUN_ACTIVE" }],
    [
      "while a question is open",
      { run: resting, holds, open: [question("I"), clientCall("c")] },
      { is: "refuse", status: 409, code: "INTERRUPTS_OPEN", details: { uid: "U", interrupts: ["I"] } },
    ],
    [
      "while only the client's tool is open",
      { run: resting, holds, open: [clientCall("c")] },
      { is: "leg", answers: [], request: { messages: [user("new")] } },
    ],
  ])("%s", (_, thread, expected) => {
    expect(mean(thread, input)).toMatchObject(expected);
  });

  test("with the answers to all that was open: the next leg has both", () => {
    const meant = mean({ run: resting, holds, open: [question("I")] }, { ...input, resume: [yes("I")] });
    expect(meant).toMatchObject({ is: "leg", answers: [{ interrupt: "I" }], request: { messages: [user("new")] } });
  });
});

describe("4. no new user messages", () => {
  test.each<[string, Thread, "hydrate" | "run", string]>([
    ["on a new thread", {}, "hydrate", "run"],
    ["while a leg is open", { run: streaming }, "hydrate", "rejoin"],
    ["while a leg is due", { run: due }, "hydrate", "rejoin"],
    ["at rest", { run: resting, open: [question("I")] }, "hydrate", "hydrate"],
    ["after the run has ended", { run: over }, "hydrate", "hydrate"],
    ["after the run has ended, for an agent that runs without", { run: over }, "run", "run"],
    ["at rest, for an agent that runs without", { run: resting }, "run", "hydrate"],
  ])("%s", (_, thread, emptyRequest, is) => {
    expect(mean(thread, {}, { emptyRequest })).toMatchObject({ is });
  });

  test("a retry of the last user message under a new run id, after its run has ended, does not ask the model again", () => {
    expect(mean({ run: over, holds: ["u"] }, { messages: [user("u")] })).toMatchObject({ is: "hydrate" });
  });
});

describe("a client that does not hold what the thread shows begins its leg with it", () => {
  const said = { id: "a", role: "assistant", content: "Hello." } as const;
  const thread: Thread = { run: resting, holds: ["u"], shown: [user("u"), said] };
  const next = user("v");
  const TAKEN_BACK = "01a2298a-1b2c-7d3e-8f40-0123456789ab:2:m0";

  test.each<[string, readonly Message[], true | undefined]>([
    ["it holds all of it", [user("u"), said, next], undefined],
    ["it holds reasoning besides", [user("u"), { id: "r", role: "reasoning", content: "Hm." }, said, next], undefined],
    ["it holds none of it", [next], true],
    ["it lacks what was said last", [user("u"), next], true],
    ["it holds half of a message", [user("u"), { ...said, content: "Hel" }, next], true],
    ["it holds a greeting of its own", [{ ...said, id: "hello" }, user("u"), said, next], undefined],
    ["it holds what was taken back", [user("u"), said, { ...said, id: TAKEN_BACK }, next], true],
  ])("%s", (_, messages, isBehind) => {
    const meant = mean(thread, { messages: [...messages] });
    expect(meant).toMatchObject({ is: "leg", request: { messages: [next] } });
    expect(meant.is === "leg" && meant.request.isBehind).toBe(isBehind);
  });
});
