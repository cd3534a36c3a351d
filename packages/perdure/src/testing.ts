export { type EmittedEvents, type RunContextOptions, runContext } from "./testing/run-context.ts";
