export { type EmittedEvents, type RunContextOptions, runContext } from "./testing/run-context.ts";
export * from "./testing/scripted-model.ts";
export { type TestToolContext, type ToolContextOverrides, toolContext } from "./testing/tool-context.ts";
