export {
  type CheckProducerOptions,
  checkProducer,
  PRODUCER_FEATURES,
  type ProducerFeature,
} from "./producer/check-producer.ts";
export type { InputMembers } from "./producer/conversation.ts";
export type { ProducerInput } from "./producer/inputs.ts";
export type { Cancelling } from "./producer/plays/cancel.ts";
export type { RestUrl, Return } from "./producer/plays/rejoin.ts";
export {
  type ProducerFinding,
  ProducerReport,
  ProducerReportError,
  type ProducerRuleResult,
} from "./producer/report.ts";
export { type ProducerRuleId, RULES as PRODUCER_RULES, type RuleText, type Severity } from "./producer/rules.ts";
export { type ProducerTarget, ProducerUnreachableError } from "./producer/target.ts";
export type { Difference, FindingKind } from "./testing/compare.ts";
export { type CrashMatrixOptions, crashMatrix, type MatrixAgent } from "./testing/crash-matrix.ts";
export { type Disk, type DiskSettings, memoryDisk, sqliteDisk } from "./testing/outside.ts";
export { cutHere } from "./testing/places.ts";
export { ReplayStuckError } from "./runtime/replay-code.ts";
export { ReplayError, replay } from "./testing/replay.ts";
export { type ReplayDifference, ReplayDifferenceError, ReplayReport } from "./testing/replay-report.ts";
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
