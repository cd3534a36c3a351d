export { type EmittedEvents, type RunContextOptions, runContext } from "./testing/run-context.ts";
export { type TestToolContext, type ToolContextOverrides, toolContext } from "./testing/tool-context.ts";
