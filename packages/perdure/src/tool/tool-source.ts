import type { DynTool } from "./dyn-tool.ts";

/**
 * Tools that are known only at run time and may change, as those of an MCP server. It stands among an agent's tools, and all its runs share it.
 */
export interface ToolSource {
  /** For errors and warnings. */
  readonly name: string;
  /** What is known of them: none before the first {@link ready}. Another list whenever they have changed, never the same one changed. */
  readonly tools: readonly DynTool[];
  /**
   * Resolves when the tools are known. Connects where that is needed, and soon fails where it cannot: it is asked again.
   *
   * @param signal - whoever waits does not wait any more; what was begun for others goes on
   */
  ready(signal: AbortSignal): Promise<void>;
  /** Lets go of connections and processes. A later {@link ready} connects again. */
  close(): Promise<void>;
}
