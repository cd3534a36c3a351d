// Define an agent and its tools.
export { AgentDefinitionError, agent } from "./agent/agent.ts";
export * from "./emit.ts";
// Run it for one leg, or serve it.
export { createRuntime, type Runtime, type RuntimeOptions } from "./http/create-runtime.ts";
export { type Served, type ServeOptions, serve } from "./http/serve.ts";
export { InputError } from "./protocol/input.ts";
export type { Agent, StateDefinition } from "./runtime/agent-definition.ts";
export { StateInvalidError } from "./runtime/starting-state.ts";
export { type StreamRunOptions, streamRun } from "./runtime/stream-run.ts";
// The tool contract.
export type {
  Approval,
  ApprovalRequest,
  ToolContext,
  ToolDefinition,
  ToolHandler,
  ToolInput,
  ToolMeta,
  ToolOutput,
} from "./tool/definition.ts";
export type { DynTool } from "./tool/dyn-tool.ts";
export { erase } from "./tool/erase.ts";
export {
  HandlerError,
  type HandlerErrorOptions,
  InvalidAnswer,
  InvalidInput,
  InvalidOutput,
  MissingIdempotencyKey,
  ReduceError,
  ToolDefinitionError,
} from "./tool/errors.ts";
// What a body says of its work.
export {
  applied,
  type Judgement,
  notApplied,
  type SuspendRequest,
  type Suspension,
  suspend,
  type ToolOutcome,
  unknown,
} from "./tool/outcome.ts";
export { registry, type ToolRegistry } from "./tool/registry.ts";
export { tool } from "./tool/tool.ts";
