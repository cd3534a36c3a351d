import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";

/** The server answered a request with a refusal, which asking again would not change. `code` is the server's own; `HTTP_ERROR` if it gave none. */
export class RequestError extends PerdureError {
  override readonly name: string = "RequestError";
  constructor(
    /** Of HTTP. */
    readonly status: number,
    code: string,
    message: string,
    /** What the server said more, for example which fields are wrong. */
    readonly details: Json | undefined,
    /** The body as it came: JSON where it is some, else text. Named as in the errors of `HttpAgent`. */
    readonly payload: unknown,
  ) {
    super(code, `HTTP ${status} ${code}: ${message}`);
  }
}

/** Somebody has answered the question already, and otherwise. */
export class AnswerConflictError extends RequestError {
  override readonly name = "AnswerConflictError";

  /** The answer that counts: how it was given, who gave it, and when, in milliseconds since the epoch. */
  get winner(): { readonly status: string; readonly by: string; readonly at: number } {
    return this.details as { status: string; by: string; at: number };
  }
}

/** Whoever asks may not answer this question: `details.why` names the scope. */
export class AnswerForbiddenError extends RequestError {
  override readonly name = "AnswerForbiddenError";
}

/** There is no such question, or it is not one's own: that looks the same. */
export class InterruptNotFoundError extends RequestError {
  override readonly name = "InterruptNotFoundError";
}

/** The answer does not fit the question's schema. */
export class InvalidAnswerError extends RequestError {
  override readonly name = "InvalidAnswerError";

  /** What is wrong with the payload, and where in it. */
  get issues(): readonly { readonly path: string; readonly message: string }[] {
    const { issues = [] } = this.details as { issues?: { path: string; message: string }[] };
    return issues;
  }
}

/** The server could not be reached for too long. What runs goes on without its reader: `connectAgent()` attaches to it again. */
export class ConnectionLostError extends PerdureError {
  override readonly name = "ConnectionLostError";
  constructor(
    /** Times it was tried again. */
    readonly attempts: number,
    cause: Error,
  ) {
    const tried = `it was tried ${attempts} ${attempts === 1 ? "time" : "times"} more`;
    super(
      "CONNECTION_LOST",
      `${cause.message}, and ${tried}. What runs goes on at the server; try again later, a run by connectAgent()`,
      { cause },
    );
  }
}

const ofCode: Readonly<Record<string, typeof RequestError>> = {
  INTERRUPT_ANSWERED: AnswerConflictError,
  ANSWER_FORBIDDEN: AnswerForbiddenError,
  INTERRUPT_NOT_FOUND: InterruptNotFoundError,
  ANSWER_INVALID: InvalidAnswerError,
};

/** @param text - the body of a response that is no success */
export function requestError(status: number, text: string): RequestError {
  const payload = parsed(text);
  const error = isJsonObject(payload) && isJsonObject(payload.error) ? payload.error : {};
  const code = typeof error.code === "string" ? error.code : "HTTP_ERROR";
  const message = typeof error.message === "string" ? error.message : text;
  // A refused `resume` lists several questions; a winner, or the issues, are those of one.
  const Class = (!Array.isArray(error.details) && ofCode[code]) || RequestError;
  return new Class(status, code, message, error.details, payload);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
