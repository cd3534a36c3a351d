/**
 * The keys of calls: what a service is given so that it does not do a call twice, and the business keys that runs hold against each other.
 *
 * K1. A key is taken in the batch of the attempt, and moves in the batch of what moves it.
 * K2. Nothing runs under a key that another call holds: the call has its output, waits, inherits its question, or is told why not.
 * K3. Who could only wait for himself is told at once.
 */
import type { NewEntry } from "../log/entries.ts";
import type { RunState, StepState } from "../log/fold.ts";
import { canonicalJson } from "../protocol/canonical.ts";
import type { Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Claim, ClaimChange, EventStore, KeyName } from "../store/store.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { LoopCall } from "./agent-definition.ts";
import { INHERITED } from "./attempt-outcome.ts";
import { sha256 } from "./hash.ts";
import { ancestors } from "./lineage.ts";
import type { Settle } from "./settle.ts";

/** A call that waits for a key, as the driver that has looked last knows it. Times are ms since the epoch. */
export interface KeyWait {
  readonly name: KeyName;
  /** Whether another run holds it. */
  readonly isElsewhere: boolean;
  readonly until: number;
  /** When to look again at the latest, for a driver that cannot lie down until the key moves. */
  readonly lookAt: number;
}

/** Under which name a tool has its business keys. It outlives a renaming, as the world outside does. */
function keyOwner({ name, aliases }: DynTool): string {
  return aliases[0] ?? name;
}

/**
 * The idempotency key of an attempt.
 *
 * @param business - the call's business key, if it has one
 */
export function attemptKey(
  { run }: RunState,
  path: Path,
  tool: DynTool,
  phase: "call" | "resume",
  business: string | null,
): string {
  return sha256(
    business === null ? `${run.uid}\n${path}\n${phase}` : `${run.owner.tenant}\n${keyOwner(tool)}\n${business}`,
  );
}

/** What takes a key for a call. */
export function claiming(run: RunState, path: Path, tool: DynTool, key: string, input: Json): ClaimChange {
  const { uid, owner } = run.run;
  return {
    ...{ tenant: owner.tenant, tool: keyOwner(tool), key, holder: { uid, path }, to: "running" },
    argsHash: sha256(canonicalJson(input)),
  };
}

/**
 * A change of the key that a call has taken; undefined where it has none. A tool that names another one by now (a deploy has changed it) leaves
 * it as it is: it stays open when its run has ended, and whoever comes next inherits the question.
 */
export function claimChange(
  run: RunState,
  { path }: Pick<LoopCall, "path">,
  tool: DynTool,
  input: Json,
  to: ClaimChange["to"],
  output?: Json,
): ClaimChange | undefined {
  const begun = run.steps.get(path)?.attempts.findLast(({ phase }) => phase === "call");
  const key = keyNow(tool, input);
  if (key === null || begun?.key !== attemptKey(run, path, tool, "call", key)) return undefined;
  return { ...claiming(run, path, tool, key, input), to, ...(output !== undefined && { output }) };
}

function keyNow(tool: DynTool, input: Json): string | null {
  try {
    return tool.keyFor(input);
  } catch {
    return null; // its attempt began with one: the tool has changed
  }
}

/** What becomes of the key of a call that no body ends; undefined where it never had it. */
export function claimAfter(step: StepState | undefined, how: Settle): "settled" | "released" | "unknown" | undefined {
  if (how.by === "answer" || how.by === "late") return "settled";
  const last = step?.attempts.at(-1);
  if (step === undefined || last === undefined) return undefined;
  if (how.by === "error") return how.applied === "unknown" ? "unknown" : "released";
  // A write is cancelled only when it is known not to have happened; an idempotent call that was cut is left as it is.
  return step.started.effect === "idempotent" && last.failed?.applied === "unknown" ? "unknown" : "released";
}

/** What a key that is not free means for a call. */
export type NotFree =
  /** The same call was made: this is its output. */
  | { readonly is: "settled"; readonly output: Json }
  | { readonly is: "wait" }
  /** Its holder has ended without saying what came of it. */
  | { readonly is: "orphan" }
  | { readonly is: "refused"; readonly error: RecordedError };

/**
 * Looks at who has a key that could not be taken.
 *
 * @param wanted - by a call of `run`
 */
export async function keyNotFree(
  store: EventStore,
  run: RunState,
  wanted: ClaimChange,
  held: Claim,
  name: string,
): Promise<NotFree> {
  const { holder } = held;
  if (held.argsHash !== wanted.argsHash) {
    const where = `run ${holder.uid}, step ${holder.path}`;
    return refused(
      "KEY_ARGUMENTS",
      `nothing was done: ${name} was called for the same thing with other arguments in ${where}; look there, and call it with those, or for something else`,
    );
  }
  if (held.state === "settled") return { is: "settled", output: held.output ?? null };
  if (holder.uid === run.run.uid) {
    const step = run.steps.get(holder.path);
    const isStuck = step === undefined || step.waits !== null || step.finished !== undefined;
    return isStuck ? refused("KEY_CONFLICT", heldBy(name, held, "this very run")) : { is: "wait" };
  }
  if ((await ancestors(store, run.run.parent?.uid)).some(({ uid }) => uid === holder.uid)) {
    return refused("KEY_CONFLICT", heldBy(name, held, `run ${holder.uid}, which waits for this one`));
  }
  const other = await store.run(holder.uid);
  return { is: other === null || other.outcome !== null ? "orphan" : "wait" };
}

/** For a call that has waited long enough. */
export function keyHeld(name: string, held: Claim): RecordedError {
  return { code: "KEY_HELD", message: heldBy(name, held, `run ${held.holder.uid}`) };
}

function heldBy(name: string, { state, holder }: Claim, where: string): string {
  return `nothing was done: the same ${name} is ${state === "unknown" ? "unknown" : "not done yet"} in ${where}, step ${holder.path}; look there before calling it again`;
}

/**
 * The entries by which a call takes over the question that a dead holder has left: as an attempt of its own that nobody ran here, and of
 * which nobody knows.
 *
 * @param from - when "not applied" may be believed
 */
export function inheritance(
  attempt: Extract<NewEntry, { kind: "step.attempt" }>,
  held: Claim,
  from: number,
): readonly NewEntry[] {
  const { path, n } = attempt;
  const { holder } = held;
  const message = `run ${holder.uid}, step ${holder.path} ended without saying whether it was done`;
  return [
    attempt,
    { kind: "step.failed", path, n, error: { code: INHERITED, message }, applied: "unknown", retryAt: from },
  ];
}

function refused(code: string, message: string): NotFree {
  return { is: "refused", error: { code, message } };
}
