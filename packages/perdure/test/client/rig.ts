/** A {@link ResumableHttpAgent}, and what it shows whoever subscribes to it. */
import type { AgentSubscriber } from "@ag-ui/client";
import type { Served } from "perdure";
import { ResumableHttpAgent, type ResumableHttpAgentConfig } from "perdure/client";
import { onTestFinished } from "vitest";
import { CuttingProxy } from "../../../../campaigns/src/cutting-proxy.ts";
import type { Entry } from "../../src/log/entries.ts";
import { rendered } from "../../src/log/fold.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { ask, type ListedRun } from "../http/rig.ts";

export interface Watched {
  readonly subscriber: AgentSubscriber;
  readonly events: AGUIEvent[];
  readonly types: () => string[];
  /** Resolves when an event of this type has come, now or before. */
  readonly seen: (type: AGUIEvent["type"], times?: number) => Promise<void>;
}

export function watching(): Watched {
  const events: AGUIEvent[] = [];
  const waiting = new Set<() => void>();
  return {
    events,
    types: () => events.map(({ type }) => type),
    subscriber: {
      onEvent({ event }) {
        events.push(structuredClone(event) as AGUIEvent);
        for (const look of waiting) look();
      },
    },
    seen: (type, times = 1) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (events.filter((event) => event.type === type).length < times) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      }),
  };
}

/** One that waits for nothing but the server, and never gives up. */
export function resumable<S>(url: string, config: Partial<ResumableHttpAgentConfig<S>> = {}): ResumableHttpAgent<S> {
  return new ResumableHttpAgent<S>({
    url,
    threadId: "t",
    reconnect: { maxAttempts: Number.POSITIVE_INFINITY },
    // A turn of the event loop, so that what it waits for can happen.
    sleep: () => new Promise((resolve) => setTimeout(resolve, 2)),
    ...config,
  });
}

export const user = (id: string, content: string) => ({ id, role: "user" as const, content });

/** Cuts each connection to a server after so many bytes of its answer, one number a connection; the last one for all that follow. */
export async function cutting({ port }: Pick<Served, "port">, budgets: readonly number[]) {
  let made = 0;
  let cuts = 0;
  const proxy = new CuttingProxy(
    () => port,
    () => budgets[made++] ?? Number.POSITIVE_INFINITY,
    () => cuts++,
  );
  await proxy.listen();
  onTestFinished(() => proxy.close());
  return { url: `http://127.0.0.1:${proxy.port}`, cuts: () => cuts };
}

/** The events of a thread's newest run, as its log has them. */
export async function logged(url: string, thread: string): Promise<AGUIEvent[]> {
  const { runs } = JSON.parse((await ask(`${url}/runs?thread=${thread}`, { method: "GET" })).text) as {
    runs: ListedRun[];
  };
  const { text } = await ask(`${url}/runs/${runs[0]?.uid}/log`, { method: "GET" });
  const entries = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Entry);
  return [...rendered(entries)].map(({ event }) => event);
}
