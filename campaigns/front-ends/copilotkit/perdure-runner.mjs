/**
 * How CopilotKit's runtime runs agents of a Perdure server: it keeps nothing, because the server does.
 *
 * Its own runner, InMemoryAgentRunner, keeps each thread in the runtime's memory: a page that is loaded again gets that copy, which is gone with
 * the process, knows nothing of what went on without the runtime, and is made by `compactEvents`, which throws on a run whose state events begin
 * with a delta.
 */
import { AgentRunner } from "@copilotkit/runtime/v2";
import { ResumableHttpAgent } from "perdure/client";
import { gateFor } from "perdure/protocol";
import { Observable } from "rxjs";

/** What the pages of CopilotKit speak is AG-UI from before 1.0. */
const forPage = gateFor(undefined);

export class PerdureRunner extends AgentRunner {
  /** The agents that are being read, by thread. */
  #reading = new Map();

  /** @param {string} url where the Perdure server is */
  constructor(url) {
    super();
    this.url = url;
  }

  run({ agent, input }) {
    return this.#read(input.threadId, agent, (subscriber) => agent.runAgent(input, subscriber));
  }

  /** A page was loaded, or comes back: it gets what the thread shows, and the rest of a run that goes on. */
  connect({ threadId, agentId, headers }) {
    const agent = new ResumableHttpAgent({ url: `${this.url}/agents/${agentId}`, threadId, headers });
    return this.#read(threadId, agent, (subscriber) => agent.connectAgent({}, subscriber));
  }

  async isRunning({ threadId }) {
    return this.#reading.has(threadId);
  }

  /** The stop button: the server cancels the run. */
  async stop({ threadId }) {
    const agent = this.#reading.get(threadId);
    if (agent === undefined) return false;
    await agent.cancel();
    return true;
  }

  #read(threadId, agent, begin) {
    return new Observable((page) => {
      this.#reading.set(threadId, agent);
      let isOver = false;
      const onEvent = ({ event }) => {
        if (isOver) return;
        isOver = event.type === "RUN_FINISHED" || event.type === "RUN_ERROR";
        const shown = forPage(event);
        if (shown !== null) page.next(shown);
      };
      begin({ onEvent })
        .catch((error) => {
          // Refused, or lost for longer than the agent's patience: a page waits for an end.
          if (!isOver) page.next({ type: "RUN_ERROR", message: error.message, code: error.code });
        })
        .finally(() => {
          if (this.#reading.get(threadId) === agent) this.#reading.delete(threadId);
          page.complete();
        });
      // A page that goes away ends nothing: the run goes on, and `connect` comes back to it.
      return () => {
        isOver = true;
        void agent.detach();
      };
    });
  }
}
