/** What a page with CopilotKit's components holds and does, without the components: its `core` is all of it that talks to a runtime. */
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Interrupt, Message, ResumeEntry } from "@ag-ui/core";

interface AgentOfPage {
  threadId: string;
  readonly messages: readonly Message[];
  readonly state: unknown;
  readonly pendingInterrupts?: readonly Interrupt[];
  addMessage(message: Message): void;
  subscribe(subscriber: { onEvent(params: { event: { type: string } }): void }): void;
}

interface Core {
  readonly runtimeConnectionStatus: string;
  readonly agents: Readonly<Record<string, AgentOfPage>>;
  subscribe(subscriber: { onError(params: { code: string; error: Error }): void }): void;
  addTool(tool: object): void;
  runAgent(params: { agent: AgentOfPage; resume?: readonly ResumeEntry[] }): Promise<unknown>;
  connectAgent(params: { agent: AgentOfPage }): Promise<unknown>;
  stopAgent(params: { agent: AgentOfPage }): void;
}

interface CopilotKit {
  readonly CopilotKitCore: new (config: { runtimeUrl: string; runtimeTransport: "rest" }) => Core;
}

/** Loads CopilotKit from the folder that it is installed in. */
export async function loadCopilotKit(folder: string): Promise<CopilotKit> {
  // Without a window it takes itself to be rendered on a server, and asks no runtime anything.
  const location = { origin: "http://localhost", href: "http://localhost/" };
  Object.assign(globalThis, { window: { location } });
  const file = createRequire(join(folder, "package.json")).resolve("@copilotkit/core");
  return (await import(pathToFileURL(file).href)) as CopilotKit;
}

export class CopilotPage {
  /** What CopilotKit has told the page of failures. */
  readonly errors: string[] = [];
  /** The types of the events that have arrived. */
  readonly seen: string[] = [];
  readonly #core: Core;
  readonly #agent: AgentOfPage;
  #onEvent: (type: string) => void = () => {};

  private constructor(core: Core, agent: AgentOfPage) {
    this.#core = core;
    this.#agent = agent;
    core.subscribe({ onError: ({ code, error }) => void this.errors.push(`${code}: ${error.message}`) });
    agent.subscribe({
      onEvent: ({ event }) => {
        this.seen.push(event.type);
        this.#onEvent(event.type);
      },
    });
  }

  /** A page that has just been loaded. */
  static async open(
    { CopilotKitCore }: CopilotKit,
    { runtimeUrl, agentName, threadId }: { runtimeUrl: string; agentName: string; threadId: string },
  ): Promise<CopilotPage> {
    const core = new CopilotKitCore({ runtimeUrl, runtimeTransport: "rest" });
    for (let left = 200; core.runtimeConnectionStatus !== "connected"; left--) {
      if (left === 0) throw new Error(`no CopilotKit runtime at ${runtimeUrl}: ${core.runtimeConnectionStatus}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const agent = core.agents[agentName];
    if (agent === undefined) throw new Error(`CopilotKit's runtime has no agent ${agentName}`);
    agent.threadId = threadId;
    return new CopilotPage(core, agent);
  }

  get messages(): readonly Message[] {
    return this.#agent.messages;
  }

  get state(): unknown {
    return this.#agent.state;
  }

  get pending(): readonly Interrupt[] {
    return this.#agent.pendingInterrupts ?? [];
  }

  /** A tool of the page's own. */
  offer(tool: { name: string; description: string; parameters: object; handler: (args: never) => Promise<unknown> }) {
    this.#core.addTool(tool);
  }

  async say(id: string, content: string): Promise<void> {
    this.#agent.addMessage({ id, role: "user", content });
    await this.#core.runAgent({ agent: this.#agent });
  }

  async answer(resume: readonly ResumeEntry[]): Promise<void> {
    await this.#core.runAgent({ agent: this.#agent, resume });
  }

  /** What a chat does when it is mounted: it asks for what the thread shows, and for the rest of a run that goes on. */
  async connect(): Promise<void> {
    await this.#core.connectAgent({ agent: this.#agent });
  }

  stop(): void {
    this.#core.stopAgent({ agent: this.#agent });
  }

  /** Resolves when an event of this type arrives. */
  arrival(wanted: string): Promise<void> {
    return new Promise((resolve) => {
      this.#onEvent = (type) => {
        if (type === wanted) resolve();
      };
    });
  }
}
