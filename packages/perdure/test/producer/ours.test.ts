/** The kit against our own server, over real sockets: agents that between them exercise every rule of it that a server of events can. */
import { checkProducer, type ProducerReport } from "perdure/testing";
import { describe, expect, test } from "vitest";
import { ask, get, type ListedRun, serving } from "../http/rig.ts";
import { desk, deskInputs, showcase, showcaseInputs } from "./ours.ts";

/** What our server does not do: chunks leave spelled out. */
const NEVER = ["chunks.forms", "chunks.order"];

/** Cancels the run of a thread, as an operator does. */
async function stop(url: string, threadId: string): Promise<void> {
  const { runs } = await get<{ runs: readonly ListedRun[] }>(`${url}/runs?thread=${threadId}`);
  const { status } = await ask(`${url}/runs/${runs[0]?.uid}/cancel`, { body: "{}" });
  expect(status).toBe(202);
}

describe("our server conforms", () => {
  const reports: ProducerReport[] = [];

  test("with a model that has tools, questions, the client's tools, state and reasoning", async () => {
    const { url } = await serving([desk()]);
    const report = await checkProducer(`${url}/agents/desk`, {
      inputs: deskInputs,
      expect: [
        "text",
        "reasoning",
        "tools",
        "client-tools",
        "interrupts",
        "state-deltas",
        "message-snapshots",
        "rejoin",
      ],
      rejoin: ({ threadId }) => `${url}/threads/${threadId}/stream`,
    });
    expect(report.findings, report.table()).toEqual([]);
    reports.push(report);
  });

  test("with a function that emits steps, activities, subagents, chunks, and fails", async () => {
    const { url } = await serving([showcase()]);
    const report = await checkProducer(`${url}/agents/showcase`, {
      inputs: showcaseInputs,
      expect: ["activities", "steps", "subagents", "interrupts", "client-tools", "protobuf"],
      cancel: { says: "Wait for me.", stop: ({ threadId }) => stop(url, threadId) },
    });
    expect(report.findings, report.table()).toEqual([]);
    reports.push(report);
  });

  test("and nothing is left that none of them exercises", () => {
    const left = reports.map(({ notExercised }) => new Set(notExercised));
    expect(left).toHaveLength(2);
    expect(NEVER).toEqual(expect.arrayContaining([...(left[0] ?? [])].filter((rule) => left[1]?.has(rule))));
  });
});
