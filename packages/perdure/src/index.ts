// Define an agent and its tools.
export { AgentDefinitionError, agent } from "./agent/agent.ts";
export * from "./emit.ts";
export { createRuntime, type Runtime, type RuntimeOptions } from "./http/create-runtime.ts";
export { type Served, type ServeOptions, serve } from "./http/serve.ts";
export { InputError } from "./protocol/input.ts";
export type { Agent, StateDefinition } from "./runtime/agent-definition.ts";
// Errors.
export { StateInvalidError } from "./runtime/starting-state.ts";
// Run it for one leg, or serve it.
export { type StreamRunOptions, streamRun } from "./runtime/stream-run.ts";
