// Define an agent.
export { agent, type ModelAgentDefinition } from "./agent/agent.ts";
export { AgentDefinitionError } from "./agent/definition-error.ts";
export type { Compaction } from "./agent/compaction.ts";
export { type AgentToolOptions, agentTool } from "./agent/agent-tool.ts";
export type { AboutStep, StepSettings } from "./agent/loop.ts";
export { ToolsUnavailableError } from "./agent/changing-tools.ts";
export type { Budget, BudgetDefinition } from "./agent/agent-budget.ts";
export type { CountTokens, ModelInput } from "./agent/model-bound.ts";
export type { ModelOptions } from "./agent/model-options.ts";
export type { CallSettings, LanguageModel, ModelTool, NativeOptions, Prompt } from "./agent/model-port.ts";
export { defaultPricing, type Price, type Pricing } from "./agent/pricing.ts";
export type { OutputMode } from "./agent/structured-output.ts";
export type { CompactionContext } from "./agent/summarise.ts";
export type { Agent, AgentTool, Arrival, BodyAgent, LoopAgent, StateDefinition } from "./runtime/agent-definition.ts";

// Write its loop yourself.
export type { LoopContext, LoopDefinition, ModelCallOptions, ModelTurn, ModelTurnCall } from "./agent/loop-context.ts";
export type { ToolResult } from "./agent/prompt.ts";
export type { CallOptions, DurableContext, OnceOptions, Question } from "./runtime/loop-context.ts";
export type { DriveObserver, ObservedDrive, Observer } from "./runtime/observer.ts";
export { NotDeterministic, StepNotAwaited } from "./runtime/development.ts";
export {
  AskCancelled,
  BudgetExceeded,
  Diverged,
  InputChanged,
  NeedsStore,
  RaceLost,
  StepFailed,
} from "./runtime/loop-errors.ts";

// Define its tools.
export type {
  Approval,
  ApprovalRequest,
  ToolContext,
  ToolDefinition,
  ToolHandler,
  ToolInput,
  ToolLane,
  ToolMeta,
  ToolOutput,
  ToolSubagent,
} from "./tool/definition.ts";
export type { DynTool, ToolPolicy } from "./tool/dyn-tool.ts";
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
export { type JsonSchema, JsonSchemaError, jsonSchema } from "./tool/json-schema.ts";
export {
  applied,
  type Judgement,
  notApplied,
  type Suspension,
  type SuspendRequest,
  suspend,
  type ToolOutcome,
  unknown,
} from "./tool/outcome.ts";
export { registry, type ToolRegistry } from "./tool/registry.ts";
export { tool } from "./tool/tool.ts";
export type { ToolSource } from "./tool/tool-source.ts";

// Run an agent for one leg, or serve it over a store.
export { createRuntime, type Runtime, type RuntimeOptions } from "./http/create-runtime.ts";
export { type Served, type ServeOptions, serve } from "./http/serve.ts";
export { DurationError } from "./protocol/duration.ts";
export { InputError } from "./protocol/input.ts";
export { PayloadTooLargeError } from "./protocol/payload.ts";
export { AgentMissingError, ModelMissingError } from "./runtime/engine.ts";
export { type ExportOptions, ExportRefusedError } from "./runtime/export-run.ts";
export { ModelError, type ModelErrorCode, type RetryAfter } from "./runtime/model-error.ts";
export { type ForkEdits, type ForkedRun, type ForkOptions, ForkRefusedError } from "./runtime/fork.ts";
export { PruneRefusedError } from "./runtime/prune.ts";
export { StateInvalidError } from "./runtime/starting-state.ts";
export { type StreamRunOptions, streamRun } from "./runtime/stream-run.ts";
export * from "./store/errors.ts";
export { memory } from "./store/memory.ts";
export type { EventStore } from "./store/store.ts";

// What agent code holds, and the words shared by all.
export * from "./emit.ts";
