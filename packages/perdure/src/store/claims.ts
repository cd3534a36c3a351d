import { StoreError } from "./errors.ts";
import type { Claim, ClaimChange } from "./store.ts";

/** How long a settled key answers for its write, in ms. */
export const CLAIM_TTL = 30 * 24 * 60 * 60 * 1000;

/**
 * A business key's life: what `change` makes of the claim as it is.
 *
 * | it is                | running            | unknown               | settled, released |
 * |----------------------|--------------------|-----------------------|-------------------|
 * | free                 | taken              | a fault               | a fault           |
 * | the holder's own     | goes on            | goes on               | goes on           |
 * | settled              | held: its output   | held                  | held              |
 * | another's, alive     | held: wait         | held                  | held              |
 * | another's, dead      | held: inherit first| inherited             | held              |
 *
 * Free is: never claimed, released, or settled longer ago than its time to live. A key whose write is unknown, or was running when its run
 * ended, is never simply taken: whoever comes next inherits the question, under `unknown`, and settles it before trying anew. Who finds it
 * free again by then is told so (held), and takes it.
 */
export function changeClaim(
  is: Claim | null,
  change: ClaimChange,
  now: { readonly at: number; readonly holderDead: boolean; readonly ttl: number },
): { readonly to: Claim } | { readonly held: Claim } {
  const { to, ...rest } = change;
  const claim: Claim = { ...rest, state: to, until: to === "settled" ? now.at + now.ttl : null };
  if (is === null || is.state === "released" || (is.until !== null && is.until <= now.at)) {
    if (to === "running") return { to: claim };
    if (to === "unknown" && is !== null && !isOwn(is, change)) return { held: is };
    throw new StoreError(
      "CLAIM_NOT_HELD",
      `key ${change.key} of tool ${change.tool} is free: only taking it is possible`,
    );
  }
  if (is.state === "settled") return { held: is };
  if (isOwn(is, change) || (now.holderDead && to === "unknown")) return { to: claim };
  return { held: is };
}

function isOwn(is: Claim, { holder }: ClaimChange): boolean {
  return is.holder.uid === holder.uid && is.holder.path === holder.path;
}
