export type { Difference, FindingKind } from "./testing/compare.ts";
export { type CrashMatrixOptions, crashMatrix, type MatrixAgent } from "./testing/crash-matrix.ts";
export { type Disk, type DiskSettings, memoryDisk, sqliteDisk } from "./testing/outside.ts";
export { cutHere } from "./testing/places.ts";
export { type Boundary, CrashMatrixError, type CrashReport, type Finding } from "./testing/report.ts";
export { type EmittedEvents, type RunContextOptions, runContext } from "./testing/run-context.ts";
export {
  type Answering,
  type AnswerRule,
  type Look,
  type MatrixScript,
  MatrixScriptError,
  type ScriptQuestion,
  type ScriptReply,
  type ScriptTurn,
} from "./testing/script.ts";
export { RequestRefused } from "./testing/script-client.ts";
export * from "./testing/scripted-model.ts";
export { type TestToolContext, type ToolContextOverrides, toolContext } from "./testing/tool-context.ts";
