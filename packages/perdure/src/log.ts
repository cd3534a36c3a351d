// What a log holds.
export {
  type Entry,
  EntryError,
  type Fact,
  type FactKind,
  type Frame,
  type FrameRef,
  type Interrupt,
  type InterruptKind,
  type LegOutcome,
  type LegRequest,
  type NewEntry,
  parseEntry,
  type StepKind,
} from "./log/entries.ts";

// What it comes to.
export { type HeldByClient, equalTranscripts, normaliseTranscript } from "./log/equal-transcripts.ts";
export { essence } from "./log/essence.ts";
export { fold, type History, type Rendered, type RunState, rendered, type StepState } from "./log/fold.ts";
export { type AskedOfModel, type Redact, type RunFixture, redacted } from "./log/fixture.ts";
export { LogError } from "./log/log-error.ts";
export { prelude } from "./log/prelude.ts";
export { render } from "./log/render.ts";
