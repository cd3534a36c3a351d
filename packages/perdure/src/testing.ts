export { type EmittedEvents, runContext, type RunContextOptions } from "./testing/run-context.ts";
