// Events, and whether they are sound alone and in their order.
export type { AGUIEvent, AGUIEventOf, AGUIEventType } from "./protocol/events.ts";
export * from "./protocol/json.ts";
export { apply, diff, type Patch, PatchError } from "./protocol/patch.ts";

// What they come to.
export { gateFor } from "./protocol/gates.ts";
export { newTranscript, reduce, type Transcript } from "./protocol/reduce.ts";
export { checkShape } from "./protocol/shape.ts";

// How they go out.
export { encodeSse, KEEP_ALIVE } from "./protocol/sse.ts";
export {
  newWire,
  ProtocolError,
  type Rule,
  verify,
  verifyEnd,
  type Wire,
  type WireOptions,
} from "./protocol/verify.ts";
