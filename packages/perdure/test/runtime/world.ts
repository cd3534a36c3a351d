/** The world of the crash tests: a ledger that counts, stories that are played over it, and the published client as their front end. */
import { type AgentSubscriber, HttpAgent } from "@ag-ui/client";
import type { AGUIEvent, Interrupt, Message } from "../../src/protocol/events.ts";
import type { Agent } from "../../src/runtime/agent-definition.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { type Disk, memoryDisk, Outside } from "../../src/testing/outside.ts";
import { cutHere } from "../../src/testing/places.ts";
import { type Ended, type Others, type Story as PlayedStory, play } from "../../src/testing/play.ts";
import type { MatrixScript } from "../../src/testing/script.ts";
import type { Asked, Ran, ScriptClient } from "../../src/testing/script-client.ts";

export class World {
  /** What the outside has seen, in order. It counts: nothing here is unique. */
  readonly ledger: string[] = [];

  /** A body is at a place. Its process may die here. */
  readonly at = cutHere;

  /** Does something to the world outside. Nothing keeps it from being done twice. */
  async act(row: string): Promise<void> {
    await cutHere();
    this.ledger.push(row);
  }

  /** Does it unless it is done: an outside that honours a key looks and acts at once. */
  async actOnce(row: string): Promise<boolean> {
    await cutHere();
    if (this.ledger.includes(row)) return false;
    this.ledger.push(row);
    return true;
  }

  /** How often the ledger has a row. */
  count(row: string): number {
    return this.ledger.filter((one) => one === row).length;
  }
}

/** A story: an agent, and what the people at the client do. */
export interface Story extends MatrixScript<World> {
  readonly name: string;
  readonly agent: (world: World) => Agent;
  readonly says?: string;
  /** Failures are part of the story, and whoever runs the server is told of them. */
  readonly fails?: true;
  readonly others?: (world: World) => Others;
  readonly authorize?: PlayedStory<World>["authorize"];
}

/** A story as the crash matrix plays it, with the published client. */
export function staged(
  { agent, says, others, authorize, ...script }: Story,
  disk: () => Disk = memoryDisk,
): PlayedStory<World> {
  return {
    ...{ disk, patience: 5_000, hopeless: new Set<string>() },
    ...(others && { others }),
    ...(authorize && { authorize }),
    script: { ...script, turns: [says ?? "go"] },
    client: (name, fetch) => new StockClient(name, fetch),
    stage() {
      const world = new World();
      return { world, agent: () => agent(world), effects: () => world.ledger, dispose: () => {} };
    },
  };
}

export function played(story: Story, fates: readonly Fate[] = [], disk?: () => Disk): Promise<Ended<World>> {
  return play(staged(story, disk), fates);
}

/** One process that nobody kills, with the world that its agent acts on. */
export function living(agent: (world: World) => Agent, outside = new Outside(memoryDisk())) {
  const world = new World();
  return { world, life: new Life(outside, null, agent(world)) };
}

const AGENT_URL = (name: string) => `http://localhost/agents/${name}`;

/** The published client 1.0.0 as a front end uses it. */
export class StockClient implements ScriptClient {
  readonly #agent: HttpAgent;
  /** Why the last request failed. */
  failure: unknown;

  constructor(agent: string, fetch: (url: string, init: RequestInit) => Promise<Response>, threadId = "thread") {
    this.#agent = new HttpAgent({ url: AGENT_URL(agent), threadId, fetch });
  }

  get held() {
    return structuredClone({ messages: this.#agent.messages as Message[], state: this.#agent.state as unknown });
  }

  add(message: Message): void {
    this.#agent.addMessage(structuredClone(message) as never);
  }

  say(id: string, content: string): void {
    this.add({ id, role: "user", content });
  }

  async join(own: readonly Message[], last: Asked): Promise<Ran> {
    if (this.#agent.messages.length === 0) this.#agent.setMessages(structuredClone([...own]) as never);
    return await this.run(last);
  }

  async run({ runId, resume, tools }: Partial<Asked> & Pick<Asked, "runId">, seen: AGUIEvent[] = []): Promise<Ran> {
    let calls: readonly string[] | undefined;
    const subscriber: AgentSubscriber = {
      onEvent: ({ event }) => void seen.push(event as AGUIEvent),
      onRunFinishedEvent: ({ event }) => {
        const { outcome } = event as { outcome?: { type: string; pendingToolCallIds?: string[] } };
        calls = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
      },
    };
    try {
      const parameters = {
        runId,
        tools: [...(tools ?? [])],
        ...(resume && resume.length > 0 && { resume: [...resume] }),
      };
      await this.#agent.runAgent(parameters, subscriber);
    } catch (error) {
      this.failure = error;
    }
    // A client takes a body that just ends for a whole one.
    if (calls === undefined) return "cut";
    return { questions: this.#agent.pendingInterrupts as Interrupt[], calls };
  }
}
