// Define an agent and its tools.
export { agent, AgentDefinitionError } from "./agent/agent.ts";
export type { Agent, StateDefinition } from "./runtime/agent-definition.ts";

// Run it for one leg, or serve it.
export { streamRun, type StreamRunOptions } from "./runtime/stream-run.ts";
export { createRuntime, type Runtime, type RuntimeOptions } from "./http/create-runtime.ts";
export { serve, type Served, type ServeOptions } from "./http/serve.ts";

// Errors.
export { StateInvalidError } from "./runtime/starting-state.ts";
export { InputError } from "./protocol/input.ts";
export * from "./emit.ts";
