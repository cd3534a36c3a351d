/** What an answer means that ended otherwise than by the model's own wish, and whether asking again may help. */
import type { RecordedError } from "../protocol/words.ts";
import { ModelError } from "../runtime/model-error.ts";
import type { FinishReason, ModelAnswer } from "./model-output.ts";
import type { LanguageModel } from "./model-port.ts";

/**
 * An answer that stopped before its end is never a success by itself:
 *
 * | `finishReason`       | what it means                                                                                        |
 * | -------------------- | ---------------------------------------------------------------------------------------------------- |
 * | `stop`, `tool-calls` | the answer is whole                                                                                  |
 * | `length`             | the run fails with MODEL_LENGTH; the text stays                                                      |
 * | `content-filter`     | the next fallback is asked; without one the run fails with MODEL_REFUSED                             |
 * | `error`              | asked again, as after a stream that broke: MODEL_FAILED                                              |
 * | `other`              | without the provider's word for it the stream just ended: asked again; else the run fails with MODEL_STOPPED |
 */
export const NOT_WHOLE: { readonly [R in FinishReason]: RecordedError | null } = {
  stop: null,
  "tool-calls": null,
  length: { code: "MODEL_LENGTH", message: "The model's answer was cut at its length limit." },
  "content-filter": { code: "MODEL_REFUSED", message: "The model's answer was withheld by its provider." },
  error: { code: "MODEL_ERROR", message: "The model failed while it answered." },
  other: { code: "MODEL_STOPPED", message: "The model stopped for a reason that its provider does not name." },
};

/**
 * Why an answer does not count, and the model, or another one, should be asked.
 *
 * @param isLast - whether there is no other model to ask
 */
export function unusableEnd(
  model: LanguageModel,
  { finishReason, rawFinishReason }: ModelAnswer,
  isLast: boolean,
): ModelError | undefined {
  const name = `model ${model.provider}/${model.modelId}`;
  switch (finishReason) {
    case "error":
      return new ModelError("MODEL_FAILED", `${name} failed while it answered${byIts(rawFinishReason)}`, true);
    case "other":
      // What providers report when no frame said how the answer finished; `unknown` is V2's word for it.
      return rawFinishReason === undefined || rawFinishReason === "unknown"
        ? new ModelError("MODEL_CUT", `the answer of ${name} ended without saying how; try again`, true)
        : undefined;
    case "content-filter":
      return isLast
        ? undefined
        : new ModelError("MODEL_REFUSED", `${name} withheld its answer${byIts(rawFinishReason)}`, false);
    case "stop":
    case "tool-calls":
    case "length":
      return undefined;
    default:
      return finishReason satisfies never;
  }
}

function byIts(reason: string | undefined): string {
  return reason === undefined ? "" : ` (${reason})`;
}
