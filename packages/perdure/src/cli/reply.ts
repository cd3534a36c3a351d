import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Reply } from "../store/store.ts";
import { usage } from "./command-error.ts";

/** How `perdure answer` was told to answer. */
export interface AnswerFlags {
  readonly approve?: true;
  /** The reason, if one was given. */
  readonly reject?: string | true;
  /** JSON of other arguments, with which it is approved. */
  readonly edit?: string;
  readonly did?: string;
  /** JSON of what the write has returned. */
  readonly output?: string;
  readonly note?: string;
  /** JSON. */
  readonly value?: string;
  readonly cancel?: true;
}

const FORMS = "--approve, --edit JSON, --reject [REASON], --did yes|no|unknown, --value JSON or --cancel";

/**
 * The reply that the flags stand for. Whether it fits its question, the one who takes it knows.
 *
 * @throws `CommandError` `USAGE`
 */
export function replyOf(flags: AnswerFlags): Reply {
  const { reject, edit, did, output, note, value, cancel } = flags;
  const approve = flags.approve === true || edit !== undefined;
  const chosen = [approve, reject !== undefined, did !== undefined, value !== undefined, cancel === true];
  if (chosen.filter(Boolean).length !== 1) throw usage(`say how to answer with exactly one of ${FORMS}`);
  if (did !== "yes" && output !== undefined)
    throw usage("--output belongs to --did yes: it is what the write has returned");
  if (did !== "unknown" && note !== undefined) throw usage("--note belongs to --did unknown");
  if (cancel === true) return { status: "cancelled" };
  return { status: "resolved", payload: payloadOf(flags) };
}

function payloadOf({ reject, edit, did, output, note, value }: AnswerFlags): Json {
  if (value !== undefined) return parsed("--value", value);
  if (reject !== undefined) return { approved: false, ...(typeof reject === "string" && { reason: reject }) };
  switch (did) {
    case undefined: {
      const editedArgs = edit === undefined ? undefined : parsed("--edit", edit);
      if (editedArgs !== undefined && !isJsonObject(editedArgs)) {
        throw usage("--edit takes all arguments as one JSON object: they replace the model's");
      }
      return { approved: true, ...(editedArgs !== undefined && { editedArgs }) };
    }
    case "yes":
      return { did, ...(output !== undefined && { output: parsed("--output", output) }) };
    case "no":
      return { did };
    case "unknown":
      return { did, ...(note !== undefined && { note }) };
    default:
      throw usage(`--did says whether it happened: yes, no or unknown, not "${did}"`);
  }
}

function parsed(flag: string, text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw usage(`${flag} takes JSON, and this is none (${why}): text needs quotes of its own, as in ${flag} '"text"'`);
  }
}
