import type { Interrupt, InterruptKind } from "../log/entries.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { sampleOf } from "./wording.ts";

/** What of a question an answer's command line follows from. */
export interface Answerable {
  readonly id: string;
  readonly kind: InterruptKind;
  /** JSON Schema of an answer's payload. */
  readonly schema: Json;
}

/** Command lines that answer a question, to be filled in and pasted; without the flags that say where. None for an operator's. */
export function answerLines({ id, kind, schema }: Answerable): readonly (readonly string[])[] {
  const answer = (...how: readonly string[]): readonly string[] => ["answer", id, ...how];
  switch (kind) {
    case "approval":
      return [answer("--approve"), answer("--reject", "reason")];
    case "unknown-write":
      return [
        answer("--did", "yes", "--output", JSON.stringify(sampleOf(outputOf(schema)))),
        answer("--did", "no"),
        answer("--did", "unknown"),
      ];
    case "question":
    case "suspension":
      return [answer("--value", JSON.stringify(sampleOf(schema))), answer("--cancel")];
    case "budget":
      return [answer("--value", JSON.stringify(sampleOf(schema))), answer("--value", JSON.stringify({ stop: true }))];
    case "poisoned":
      return ["go-on", "abandon"].map((action) => answer("--value", JSON.stringify({ action })));
    case "diverged":
      // A fork from here is none: the question stays open.
      return ["accept", "abandon"].map((action) => answer("--value", JSON.stringify({ action })));
    case "client-tool":
    case "contract-changed":
      return [];
    default:
      return kind satisfies never;
  }
}

/** The output that "yes, it happened" has to come with. */
function outputOf(schema: Json): Json {
  const [yes] = isJsonObject(schema) && Array.isArray(schema.oneOf) ? schema.oneOf : [];
  const properties = isJsonObject(yes) ? yes.properties : undefined;
  return (isJsonObject(properties) ? properties.output : undefined) ?? true;
}

/** What becomes of a question whose time is up. */
export function afterExpiry(kind: Interrupt["kind"]): string {
  return kind === "approval" ? "rejected" : "cancelled";
}
