import type { Entry, InputRef } from "../log/entries.ts";
import { type AskedOfModel, type Redact, type RunFixture, redacted, withJoinedDeltas } from "../log/fixture.ts";
import { Folding, type RunState } from "../log/fold.ts";
import { PerdureError } from "../protocol/errors.ts";
import { jsonEqual } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { EventStore } from "../store/store.ts";
import type { Agent, Loop } from "./agent-definition.ts";
import { describedAs } from "./describes.ts";
import { type ReplayedCode, replayCode } from "./replay-code.ts";
import type { Threads } from "./threads.ts";

/** Why a run was not exported. */
export class ExportRefusedError extends PerdureError {
  override readonly name = "ExportRefusedError";
  constructor(
    readonly run: Uid,
    override readonly code: "RUN_NOT_FOUND" | "RUN_PRUNED",
    why: string,
  ) {
    super(code, `run ${run} is not exported: ${why}`);
  }
}

export interface ExportOptions {
  /** Changes each text before it leaves, for example to hide what is secret. Default: everything is as it was. */
  readonly redact?: Redact;
}

/** @throws {@link ExportRefusedError}, and what reading its log throws */
export async function exportRun(
  {
    store,
    threads,
    agents,
  }: {
    readonly store: EventStore;
    readonly threads: Threads;
    readonly agents: ReadonlyMap<string, Agent>;
  },
  uid: Uid,
  { redact }: ExportOptions,
): Promise<RunFixture> {
  const run = await store.run(uid);
  if (run === null) throw new ExportRefusedError(uid, "RUN_NOT_FOUND", "there is no such run");
  if (run.pruned !== null) {
    throw new ExportRefusedError(
      uid,
      "RUN_PRUNED",
      "its frames are gone, and with them what its model was shown when; export runs before they are pruned",
    );
  }
  const { entries, before } = await threads.read(run);
  const agent = agents.get(run.agent);
  const earlier = await Promise.all(before.map(({ run: { uid: other } }) => threads.entries(other, -1)));
  const fixture: RunFixture = {
    ...{ perdure: "run", version: 1, run: uid, agent: run.agent },
    logs: [...earlier, entries].map(withJoinedDeltas),
    asked: agent === undefined ? {} : await askedBy(agent, entries, before),
  };
  return redact === undefined ? fixture : redacted(fixture, redact);
}

/** What each model step was asked, where the agent is still what it was then. */
async function askedBy(
  agent: Agent,
  entries: readonly Entry[],
  before: readonly RunState[],
): Promise<RunFixture["asked"]> {
  if (agent.loop !== undefined) return askedIn(agent.loop, entries, before);
  // Code that is not what it was says nothing of what it asked then.
  const replayed = await replayCode(agent, entries, before).catch(() => undefined);
  return replayed === undefined ? {} : askedByCode(replayed);
}

function askedIn(loop: Loop, entries: readonly Entry[], before: readonly RunState[]): RunFixture["asked"] {
  const asked: Record<Path, AskedOfModel> = {};
  for (const { state, started } of modelSteps(entries, before)) {
    const then = loopOf(loop, state);
    const { input } = started;
    if (!("history" in input) || !isAsThen(then, input.history)) continue;
    asked[started.path] = then.asks({ run: state, before, settings: input.history.settings });
  }
  return asked;
}

/** The loop under which a run goes on. */
export function loopOf(loop: Loop, { run: { instructions, model } }: RunState): Loop {
  return instructions === undefined && model === undefined ? loop : loop.as({ instructions, model });
}

function isAsThen(loop: Loop, recorded: { readonly instructions: string; readonly tools: string }): boolean {
  const now = describedAs(loop);
  return now.instructions === recorded.instructions && now.tools === recorded.tools;
}

/** The model steps of a log, each with the run as it was when it began. */
function* modelSteps(entries: readonly Entry[], before: readonly RunState[]) {
  const folding = new Folding(before.at(-1));
  for (const entry of entries) {
    if (entry.kind === "step.started" && entry.step === "model") yield { state: folding.state, started: entry };
    folding.add(entry);
  }
}

/** By the code of a custom loop. */
function askedByCode({ run, begun }: ReplayedCode): RunFixture["asked"] {
  const asked: Record<Path, AskedOfModel> = {};
  for (const { want } of begun) {
    const { path } = want.call;
    const then = run.steps.get(path)?.started.input;
    const now = want.model?.ask(path).started(run);
    if (want.model === undefined || now?.kind !== "step.started" || then === undefined) continue;
    if (!("history" in now.input) || !("history" in then) || !isSame(now.input.history, then.history)) continue;
    asked[path] = want.model.asks();
  }
  return asked;
}

type History = Extract<InputRef, { history: unknown }>["history"];

function isSame({ upTo: _, ...now }: History, { upTo: __, ...then }: History): boolean {
  return jsonEqual(now, then);
}
