/** The example, played by the published client over HTTP. */
import { HttpAgent } from "@ag-ui/client";
import { createRuntime, type Served, serve } from "perdure";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { taskBoard } from "./agent.ts";

let server: Served;
beforeAll(async () => {
  server = await serve(createRuntime({ agents: [taskBoard] }), { port: 0 });
});
afterAll(() => server.close());

const board = (...titles: string[]) => ({ tasks: titles.map((title) => ({ title, done: false })) });

let threads = 0;

/** A front end on a thread of its own: what the user says, how he answers, and what he sees. */
function frontEnd() {
  const threadId = `t${++threads}`;
  const client = new HttpAgent({ url: `${server.url}/agents/task-board`, threadId, initialState: {} });
  let turn = 0;
  const run = async (reply?: { status: "resolved" | "cancelled"; payload?: unknown }) => {
    const resume = reply && client.pendingInterrupts.map(({ id }) => ({ interruptId: id, ...reply }));
    const types: string[] = [];
    const onEvent = ({ event }: { event: { type: string } }): void => void types.push(event.type);
    await client.runAgent({ runId: `r${++turn}`, ...(resume && { resume }) }, { onEvent });
    return types;
  };
  return {
    client,
    say(content: string) {
      client.addMessage({ id: `u${turn}`, role: "user", content });
      return run();
    },
    answer: (payload: unknown) => run({ status: "resolved", payload }),
    dismiss: () => run({ status: "cancelled" }),
    /** The newest message, and the board. */
    sees: () => ({ said: client.messages.at(-1)?.content, board: client.state as unknown }),
  };
}

describe("the task board", () => {
  it("adds a task, and it lands on the board while its call is open", async () => {
    const user = frontEnd();
    const types = await user.say("add write the docs");
    expect(user.sees()).toEqual({ said: 'Added "write the docs".', board: board("write the docs") });
    const landed = types.indexOf("STATE_DELTA");
    expect(landed).toBeGreaterThan(types.indexOf("TOOL_CALL_START"));
    expect(landed).toBeLessThan(types.indexOf("TOOL_CALL_END"));
    await user.say("Add ship it");
    expect(user.sees().board).toEqual(board("write the docs", "ship it"));
  });

  it("asks before it clears, and clears when that is approved: one call, one result", async () => {
    const user = frontEnd();
    await user.say("add one");
    await user.say("clear");
    expect(user.client.pendingInterrupts).toMatchObject([
      { id: expect.stringMatching(/:clear-board$/), message: "Remove all 1 tasks?" },
    ]);
    expect(user.sees().board).toEqual(board("one"));
    const types = await user.answer({ approved: true });
    expect(types).not.toContain("TOOL_CALL_START");
    expect(user.sees()).toEqual({ said: "The board is empty.", board: board() });
    expect(user.client.messages.filter(({ role }) => role === "tool").at(-1)?.content).toBe('{"cleared":true}');
    expect(user.client.pendingInterrupts).toEqual([]);
  });

  it.each([
    ["denied", (user: ReturnType<typeof frontEnd>) => user.answer({ approved: false })],
    ["dismissed", (user: ReturnType<typeof frontEnd>) => user.dismiss()],
  ])("keeps the board when clearing is %s", async (_, deny) => {
    const user = frontEnd();
    await user.say("add one");
    await user.say("clear");
    await deny(user);
    expect(user.sees()).toEqual({ said: "Nothing was removed.", board: board("one") });
    expect(user.client.messages.filter(({ role }) => role === "tool").at(-1)?.content).toBe('{"cleared":false}');
  });

  it("can be cleared twice in one thread, each time by a call of its own", async () => {
    const user = frontEnd();
    for (const title of ["one", "two"]) {
      await user.say(`add ${title}`);
      await user.say("clear");
      await user.answer({ approved: true });
      expect(user.sees().board).toEqual(board());
    }
    const results = user.client.messages.flatMap((message) => (message.role === "tool" ? [message.toolCallId] : []));
    expect(new Set(results).size).toBe(4);
  });

  it("says what it can do otherwise", async () => {
    const user = frontEnd();
    await user.say("hello");
    expect(user.sees().said).toBe('There are 0 tasks. Say "add TITLE" or "clear".');
  });
});
