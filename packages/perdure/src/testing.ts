export { type EmittedEvents, type RunContextOptions, runContext } from "./testing/run-context.ts";
export {
  type Script,
  ScriptError,
  type ScriptedCall,
  type ScriptedError,
  type ScriptedModel,
  type ScriptedModelOptions,
  type ScriptedTurn,
  type ScriptMessage,
  type ScriptRequest,
  scriptedModel,
} from "./testing/scripted-model.ts";
export { type TestToolContext, type ToolContextOverrides, toolContext } from "./testing/tool-context.ts";
