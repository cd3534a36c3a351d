/** The words that the rooms share: effects, identities and places. */

declare const brand: unique symbol;
type Brand<T, Name extends string> = T & { readonly [brand]: Name };

/** Server-made identity of a run: a uuid v7. */
export type Uid = Brand<string, "Uid">;

/** A SHA-256 in lower-case hexadecimal. */
export type Hash = Brand<string, "Hash">;

/**
 * Deterministic name of a step or lane: ordinals joined by ".". The n-th step or parallel group begun in a lane takes the next ordinal;
 * branch b of group g is lane "g.b"; a step at p is itself lane p. The root lane is "".
 */
export type Path = Brand<string, "Path">;

/** What running an operation again would do: nothing, nothing more when the key is the same, or the thing a second time. */
export type Effect = "read" | "idempotent" | "write";

/** Milliseconds, or a number with a unit: `"250ms"`, `"30s"`, `"15m"`, `"1h"`, `"2d"`. */
export type Duration = number | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** Who asks: what the `authorize` hook returned for a request. */
export interface Principal {
  readonly tenant: string;
  readonly subject: string;
  readonly scopes: readonly string[];
}

/** An error as the log and the wire hold it. The message is public; the cause stays on the server. */
export interface RecordedError {
  readonly code: string;
  readonly message: string;
  readonly data?: import("./json.ts").Json;
}
