import { isJsonObject, type Json } from "../protocol/json.ts";
import { type JsonSchema, jsonSchema } from "../tool/json-schema.ts";

/** How many schemas are kept. */
const KEPT = 256;

/** By their text. Questions ask in few forms, and to judge a schema takes a hundred times as long as to judge a value by it. */
const known = new Map<string, JsonSchema>();

/** The schema of a question's answers, as it stands in the log. What is no object stands for any answer. */
export function answerSchema(recorded: Json): JsonSchema {
  const schema = isJsonObject(recorded) ? recorded : true;
  const text = JSON.stringify(schema);
  const before = known.get(text);
  if (before !== undefined) return before;
  const made = jsonSchema(schema);
  for (const [oldest] of known) {
    if (known.size < KEPT) break;
    known.delete(oldest);
  }
  known.set(text, made);
  return made;
}
