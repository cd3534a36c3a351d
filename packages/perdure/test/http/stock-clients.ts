/** The published AG-UI clients that a server meets, behind the few members the tests use. */

import { createRequire } from "node:module";
import { HttpAgent as Agent100 } from "@ag-ui/client";
import { HttpAgent as Agent059 } from "@ag-ui/client-0.0.59";
import type { Message, ResumeEntry } from "@ag-ui/core";

// The ES module of 0.0.45 cannot import its own patch library outside a bundler; what Node users load is the CommonJS one.
const { HttpAgent: Agent045 }: typeof import("@ag-ui/client-0.0.45") = createRequire(import.meta.url)(
  "@ag-ui/client-0.0.45",
);

export interface StockClient {
  readonly messages: readonly Message[];
  readonly state: unknown;
  add(message: Message): void;
  /** Sets the state, as a page does when its user edits it. */
  edit(state: unknown): void;
  /** Runs once; rejects when the stream is not acceptable to this client. */
  run(request?: {
    runId?: string;
    resume?: ResumeEntry[];
    tools?: readonly unknown[];
    context?: readonly unknown[];
    /** Closes the connection at the first event of this type. */
    cutAt?: string;
    /** Closes the connection when it is aborted. */
    signal?: AbortSignal;
    /** Told of each event. */
    onType?: (type: string) => void;
  }): Promise<{ result: unknown; types: string[]; asked: Asked[] }>;
}

/** A question, as RUN_FINISHED lists it. */
export interface Asked {
  readonly id: string;
  readonly reason: string;
  readonly toolCallId?: string;
  readonly metadata?: unknown;
}

export interface StockOptions {
  readonly url: string;
  readonly threadId?: string;
  readonly state?: Record<string, unknown>;
}

/** What all three classes have, whatever else their types say. */
interface AnyHttpAgent {
  abortRun(): void;
  messages: unknown[];
  state: unknown;
  runAgent(
    parameters: Record<string, unknown>,
    subscriber: { onEvent(params: { event: { type: string; outcome?: { interrupts?: Asked[] } } }): void },
  ): Promise<{ result: unknown }>;
}

type AnyHttpAgentClass = new (config: Record<string, unknown>) => AnyHttpAgent;

/** 0.0.45 has no `resume` parameter: its front ends put the entries into the request themselves. */
class ResumingAgent045 extends Agent045 {
  resume: ResumeEntry[] | undefined;
  protected override requestInit(input: Parameters<InstanceType<typeof Agent045>["run"]>[0]): RequestInit {
    const init = super.requestInit(input);
    return { ...init, body: JSON.stringify({ ...input, ...(this.resume && { resume: this.resume }) }) };
  }
}

const classes = { "1.0.0": Agent100, "0.0.59": Agent059, "0.0.45": ResumingAgent045 } as unknown as Record<
  "1.0.0" | "0.0.59" | "0.0.45",
  AnyHttpAgentClass
>;

export type Version = keyof typeof classes;
export const versions = Object.keys(classes) as Version[];

export function stockClient(version: Version, { url, threadId = "thread", state = {} }: StockOptions): StockClient {
  const agent = new classes[version]({ url, threadId, initialState: state });
  return {
    get messages() {
      return agent.messages as Message[];
    },
    get state() {
      return agent.state;
    },
    add: (message) => void agent.messages.push(message),
    edit: (edited) => {
      agent.state = edited;
    },
    async run({ resume, cutAt, signal, onType, ...parameters } = {}) {
      signal?.addEventListener("abort", () => agent.abortRun(), { once: true });
      const types: string[] = [];
      let asked: Asked[] = [];
      if (agent instanceof ResumingAgent045) agent.resume = resume;
      const { result } = await agent.runAgent(
        { ...parameters, ...(resume && version !== "0.0.45" && { resume }) },
        {
          onEvent({ event }) {
            types.push(event.type);
            onType?.(event.type);
            if (event.type === cutAt && types.filter((type) => type === cutAt).length === 1) agent.abortRun();
            asked = event.outcome?.interrupts ?? [];
          },
        },
      );
      return { result, types, asked };
    },
  };
}
