export { type OpenTelemetryOptions, openTelemetry } from "./runtime/otel.ts";
