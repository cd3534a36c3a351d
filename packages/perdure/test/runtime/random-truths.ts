/** What has to be true of every play of a random agent, and what two plays of the same one have in common. */
import { expect } from "vitest";
import type { Entry, Fact } from "../../src/log/entries.ts";
import { type HeldByClient, normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { fold } from "../../src/log/fold.ts";
import type { Message } from "../../src/protocol/events.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Path } from "../../src/protocol/words.ts";
import type { Ended } from "../../src/testing/play.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import { callsOf, type NamedCall, type Plan, rowOf, SHORT, TOO_LATE } from "./random-agents.ts";
import { humanFor, isGivenUp } from "./random-people.ts";
import { RandomWorld } from "./random-world.ts";
import type { World } from "./world.ts";

export interface Played extends Ended<World> {
  /** Of the one run. */
  readonly log: readonly Entry[];
  /** What the client has shown. */
  readonly asked: readonly ScriptQuestion[];
}

/** Of one play, whatever has become of it. */
export function expectTruths(plan: Plan, played: Played): void {
  const { log, world } = played;
  const lives = RandomWorld.of(world);
  const calls = callsOf(plan);
  for (const { expected, status, who } of lives.told) expect(expected, `${who} was told ${status}`).toContain(status);
  for (const call of calls) {
    const steps = stepsOf(log, call.name);
    expect(steps.length, `${call.name} is one step`).toBe(1);
    for (const step of steps) {
      expectEndAsPlanned(call, step);
      expectLedger(call, step, played);
      expectDeadlines(call, step);
      if (call.effect === "write") expectUnknownsSurfaced(call, step);
    }
  }
  expectQuestions(plan, played);
  for (const entry of log) {
    if (entry.kind === "frame") expect(JSON.stringify(entry), "nothing late is shown").not.toContain(TOO_LATE);
  }
  expectLateOutputs(plan, played);
}

/** What the log says of one call. */
interface Step {
  readonly path: Path;
  readonly entries: readonly Entry[];
  readonly finished: Fact<"step.finished">;
}

function stepsOf(log: readonly Entry[], name: string): readonly Step[] {
  return log.flatMap((started) => {
    if (started.kind !== "step.started" || started.name !== name) return [];
    const { path } = started;
    const ids = new Set<string>();
    const entries = log.filter((entry) => {
      if (entry.kind === "interrupt.opened" && entry.interrupt.path === path) ids.add(entry.interrupt.id);
      return (
        ("path" in entry && entry.path === path) ||
        (entry.kind === "interrupt.opened" && entry.interrupt.path === path) ||
        (entry.kind === "interrupt.answered" && ids.has(entry.id))
      );
    });
    const finished = entries.filter((entry) => entry.kind === "step.finished");
    expect(finished.length, `${name} ends once`).toBe(1);
    return finished.map((end) => ({ path, entries, finished: end }));
  });
}

/** Reads and idempotent calls end by their plan alone; of a write a human may have said that nobody knows. */
function expectEndAsPlanned(call: NamedCall, { finished }: Step): void {
  const { name, effect, approval, fails, outruns } = call;
  const isForEver = outruns?.often === "always";
  const code = approval === "reject" ? "REJECTED" : fails === "for ever" ? "NEVER" : isForEver ? "TIMEOUT" : undefined;
  if (finished.status === "error") {
    const possible = effect === "write" ? [code, "UNKNOWN"] : [code];
    expect(possible, `${name} fails as planned`).toContain(finished.error.code);
    return;
  }
  expect(code, `${name} fails as planned`).toBeUndefined();
  expect(finished, `${name} ends with what it is for`).toMatchObject({ status: "ok", output: { ok: name } });
}

/** The outside is not unique: what the log says of it is true, but for what somebody has said who did not say the truth. */
function expectLedger({ name, effect, suspends }: NamedCall, { finished }: Step, { effects, world }: Played): void {
  if (effect === "read") return;
  const lives = RandomWorld.of(world);
  const rows = effects.filter((row) => row === rowOf(name) || row.startsWith(`${rowOf(name)} `)).length;
  expect(rows, `${name} was done`).toBeLessThanOrEqual(1 + lives.lies(name));
  const saysNo = finished.status === "error" && finished.applied === "no";
  if (saysNo && lives.lies(name) === 0) expect(rows, `${name} was not done`).toBe(0);
  const saysYes = finished.status === "ok" && suspends !== "answer" && !lives.invented.has(name);
  if (saysYes) expect(rows, `${name} was done as the log says`).toBeGreaterThanOrEqual(1);
}

/** Whoever goes on without knowing whether this driver lives has to wait until its attempt is over. */
function expectDeadlines({ name, outruns }: NamedCall, { entries }: Step): void {
  const timeout = outruns === null ? 300_000 : SHORT;
  for (const entry of entries) {
    if (entry.kind !== "step.attempt") continue;
    expect(entry.deadline, `attempt ${entry.n} of ${name} has a deadline`).toBeTypeOf("number");
    expect(Number(entry.deadline)).toBeGreaterThan(entry.at);
    expect(Number(entry.deadline)).toBeLessThanOrEqual(entry.at + timeout);
  }
}

/** An attempt of which nobody knows: the question about it, if there is one, and its answer. */
interface Unknown {
  readonly asked: string | null;
  readonly answer: Fact<"interrupt.answered"> | null;
}

/** Each unknown attempt is looked up, ends after all, or is asked about once; and nothing is asked of what is known. */
function expectUnknownsSurfaced(call: NamedCall, { entries }: Step): void {
  let unknown = null as Unknown | null;
  for (const entry of entries) {
    switch (entry.kind) {
      case "step.failed":
        unknown = entry.applied === "unknown" ? { asked: null, answer: null } : null;
        break;
      case "interrupt.opened":
        if (entry.interrupt.kind !== "unknown-write") break;
        expect(unknown, `${call.name}: an unknown write is asked about, once`).toEqual({ asked: null, answer: null });
        unknown = { asked: entry.interrupt.id, answer: null };
        break;
      case "interrupt.answered":
        if (entry.id === unknown?.asked) unknown = { asked: entry.id, answer: entry };
        break;
      case "step.attempt":
      case "step.finished":
        if (unknown !== null) expectReason(call, entry, unknown.asked === null ? null : didOf(unknown.answer));
        unknown = null;
        break;
      default:
    }
  }
}

function didOf(answer: Fact<"interrupt.answered"> | null): string {
  if (answer === null) return "nothing yet";
  return answer.status === "withdrawn" ? "nothing" : (answer.payload as { readonly did: string }).did;
}

/** Why an unknown write goes on, or ends. @param did - what was said of it; null: nobody was asked */
function expectReason(
  { name, reconcile }: NamedCall,
  next: Fact<"step.attempt"> | Fact<"step.finished">,
  did: string | null,
): void {
  if (next.kind === "step.attempt") {
    const reason = did ?? (reconcile === "looks" || reconcile === "lies" ? "no" : "nobody");
    expect(reason, `${name} is tried again on a "no"`).toBe("no");
  } else if (next.status === "error") {
    expect(did, `${name} is given up by a human`).toBe("unknown");
  } else if (next.via === "answer") {
    expect(did, `${name} is answered`).toBe("yes");
  } else if (next.via === "reconcile") {
    expect([did, reconcile], `${name} is looked up before anybody is asked`).toEqual([null, "looks"]);
  } else {
    // Its body has ended after all: before the question, while it is open, or between the answer and what was to come of it.
    expect(["nothing", "yes", "unknown", null], `${name}: nobody says "no" of what then ends well`).toContain(did);
  }
}

function expectQuestions(plan: Plan, { log, asked, openQuestions, inbox }: Played): void {
  const opened = log.flatMap((entry) => (entry.kind === "interrupt.opened" ? [entry.interrupt.id] : []));
  const closed = log.flatMap((entry) => (entry.kind === "interrupt.answered" ? [entry.id] : []));
  expect(new Set(opened).size, "no question is opened twice").toBe(opened.length);
  expect([...closed].sort(), "each question is closed, once").toEqual([...opened].sort());
  expect({ openQuestions, inbox }).toEqual({ openQuestions: 0, inbox: 0 });
  const unheard = asked.map(({ interrupt }) => interrupt.id).filter((id) => !opened.includes(id));
  expect(unheard, "nobody is asked what the log does not know").toEqual([]);
  if (givenUpIn(log).size > 0) expect(asked.some((question) => isGivenUp(plan, question))).toBe(true);
}

/** What a write brings behind its deadline counts when it comes before anybody's word, and its process lives on. */
function expectLateOutputs(plan: Plan, { log, world, deaths, asked }: Played): void {
  if (deaths.length > 0 || log.some((entry) => entry.kind === "run.resumed")) return;
  for (const { name, isAnswered } of RandomWorld.of(world).lateOutputs) {
    const questions = asked.filter(({ kind, tool }) => kind === "unknown-write" && tool === name);
    if (isAnswered || !questions.every((question) => humanFor(plan, question).isPatient)) continue;
    const ids = new Set(questions.map(({ interrupt }) => interrupt.id));
    const answers = log.filter((entry) => entry.kind === "interrupt.answered" && ids.has(entry.id));
    for (const answer of answers)
      expect(answer, `${name}: a late output counts`).toMatchObject({ status: "withdrawn" });
  }
}

/** Steps of which a human has said that nobody knows. */
export function givenUpIn(log: readonly Entry[]): ReadonlySet<string> {
  return new Set(
    log.flatMap((entry) =>
      entry.kind === "step.finished" && entry.status === "error" && entry.error.code === "UNKNOWN" ? [entry.path] : [],
    ),
  );
}

/** What is the same however often it died; of a step that a human has given up only that it has ended, and that it was asked for. */
export function told(played: Played, givenUp: ReadonlySet<string>): object {
  const { messages, committed } = fold(played.log);
  const whole = essence(played.log) as {
    readonly steps: { readonly [path: string]: Json };
    readonly models: Json;
    readonly questions: { readonly [id: string]: { readonly path: string } };
    readonly outcome: Json;
  };
  const names = new Set(
    played.log.flatMap((entry) => (entry.kind === "step.started" && givenUp.has(entry.path) ? [entry.name] : [])),
  );
  const seen = (held: HeldByClient) => normaliseTranscript(withoutEndsOf(names, held));
  return {
    outcome: whole.outcome,
    models: whole.models,
    steps: Object.fromEntries(Object.entries(whole.steps).filter(([path]) => !givenUp.has(path))),
    questions: Object.values(whole.questions).filter(({ path }) => !givenUp.has(path)),
    client: seen(played.client),
    late: seen(played.late),
    log: seen({ messages, state: committed }),
    runs: played.runs.map(({ outcome, aside }) => ({ outcome, aside })),
  };
}

function withoutEndsOf(names: ReadonlySet<string>, { messages, state }: HeldByClient): HeldByClient {
  const calls = new Map(
    messages.flatMap((message) =>
      message.role === "assistant"
        ? (message.toolCalls ?? []).map((call) => [call.id, call.function.name] as const)
        : [],
    ),
  );
  const isGivenUp = (name: string | undefined) => name !== undefined && names.has(name);
  return {
    messages: messages.map(
      (message): Message =>
        message.role === "tool" && isGivenUp(calls.get(message.toolCallId))
          ? { id: message.id, role: "tool", toolCallId: message.toolCallId, content: "given up" }
          : message,
    ),
    state: Object.fromEntries(Object.entries(state as object).filter(([name]) => !isGivenUp(name))),
  };
}
