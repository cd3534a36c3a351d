/**
 * A loop some of whose tools are known only at run time. It owns which of them a model step and its calls see.
 *
 * 1. A driver sees the tools as they were when its last model step began, or when it went on with recorded calls; whatever changes meanwhile.
 * 2. Without a driver, as when the agent is described, the newest ones are seen.
 * 3. Two tools of one name are an error that names both, before the model is asked.
 */
import { PerdureError } from "../protocol/errors.ts";
import type { AsForked, Loop } from "../runtime/agent-definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { registry, type ToolRegistry } from "../tool/registry.ts";
import type { ToolSource } from "../tool/tool-source.ts";

/** Tools that an agent is defined with cannot be had. The cause says why, and what to do about it. */
export class ToolsUnavailableError extends PerdureError {
  override readonly name = "ToolsUnavailableError";
  constructor(
    readonly sources: readonly string[],
    cause: unknown,
  ) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super("TOOLS_UNAVAILABLE", `the tools of ${sources.map((name) => `"${name}"`).join(", ")} cannot be had: ${why}`, {
      cause,
    });
  }
}

/** @param loopOver - the loop over tools that are known */
export function loopOverSources(
  loopOver: (tools: ToolRegistry) => Loop,
  own: readonly DynTool[],
  sources: readonly ToolSource[],
): Loop {
  const view = (): View => new View(loopOver, own, sources);
  const newest = view();
  const as = (fork: AsForked): Loop => loopOverSources((tools) => loopOver(tools).as(fork), own, sources);
  return loopOf(newest, () => newest.follow(), {
    as,
    forDriver: () => {
      const seen = view();
      return loopOf(seen, () => seen.loop, { as });
    },
    async close() {
      const closed = await Promise.allSettled(sources.map((source) => source.close()));
      for (const one of closed) if (one.status === "rejected") throw one.reason;
    },
  });
}

/** The tools of all sources, as they were at one time. */
class View {
  loop: Loop;
  #lists: readonly (readonly DynTool[])[] = [];
  #problem: ToolsUnavailableError | undefined;

  constructor(
    private readonly loopOver: (tools: ToolRegistry) => Loop,
    private readonly own: readonly DynTool[],
    private readonly sources: readonly ToolSource[],
  ) {
    this.loop = loopOver(registry(own));
    this.follow();
  }

  /** What is known now, where it fits together; what does not is said when a run needs it. */
  follow(): Loop {
    try {
      this.#take();
    } catch {
      // Thrown again by `refresh`, where somebody hears it.
    }
    return this.loop;
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const ready = await Promise.allSettled(this.sources.map((source) => source.ready(signal)));
    const failed = ready.flatMap((one, i) => (one.status === "rejected" ? [{ i, reason: one.reason as unknown }] : []));
    const names = failed.map(({ i }) => this.sources[i]?.name ?? "");
    this.#problem = failed.length === 0 ? undefined : new ToolsUnavailableError(names, failed[0]?.reason);
    try {
      this.#take();
    } catch (error) {
      this.#problem ??= new ToolsUnavailableError(
        this.sources.map(({ name }) => name),
        error,
      );
    }
    if (this.#problem !== undefined) throw this.#problem;
  }

  /** @throws what the last `refresh` has failed of: a model that lacks some of its tools would make do without them */
  check(): void {
    if (this.#problem !== undefined) throw this.#problem;
  }

  #take(): void {
    const lists = this.sources.map(({ tools }) => tools);
    if (lists.length === this.#lists.length && lists.every((list, i) => list === this.#lists[i])) return;
    this.loop = this.loopOver(registry([...this.own, ...lists.flat()]));
    this.#lists = lists;
  }
}

type OfAgent = Pick<Loop, "as" | "forDriver" | "close">;
/** Of custom loops alone. */
type OfCode = "ask";

/** Complete, so that whatever a loop comes to have has to be passed on here. */
type Members = Required<Omit<Loop, keyof OfAgent | OfCode>> & OfAgent;

function loopOf(view: View, loop: () => Loop, ofAgent: OfAgent): Members {
  return {
    ...ofAgent,
    get tools() {
      return loop().tools;
    },
    get describes() {
      return loop().describes;
    },
    get alternatives() {
      return loop().alternatives;
    },
    get models() {
      return loop().models;
    },
    get budget() {
      return loop().budget ?? null;
    },
    settings: (run, path) => loop().settings(run, path),
    tool: (name, path) => loop().tool(name, path),
    next: (run, before) => loop().next(run, before),
    asks: (step) => loop().asks(step),
    unusable: (messages) => loop().unusable(messages),
    async callModel(step) {
      view.check();
      return await loop().callModel(step);
    },
    refresh: (signal) => view.refresh(signal),
  };
}
