/**
 * Every error that Perdure throws. `code` is stable and closed within a release: branch on it, show `message` to a person.
 * Messages name the object, the cause and the next step.
 */
export class PerdureError extends Error {
  override readonly name: string = "PerdureError";
  constructor(
    /** Stable, in upper snake case, for example `NOT_JSON`. */
    readonly code: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
