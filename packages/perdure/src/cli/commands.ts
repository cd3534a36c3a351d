/** What each command does: asks, and says what it was told. Nothing here knows whether a server or a file is asked. */
import type { ShownRun } from "../http/shown.ts";
import type { Entry } from "../log/entries.ts";
import { redacted } from "../log/fixture.ts";
import { fold, type RunState } from "../log/fold.ts";
import type { ForkOptions } from "../runtime/fork.ts";
import type { Reply } from "../store/store.ts";
import type { Access, ListQuery } from "./access.ts";
import { answerLines } from "./answer-lines.ts";
import { CommandError, noRun } from "./command-error.ts";
import { describeEntry } from "./describe-entry.ts";
import type { Report } from "./output.ts";
import { explain, type Log } from "./why.ts";
import { ago, jsonText, short, span, table } from "./wording.ts";

/** @returns whether what was asked for is as it should be */
export type Command = (access: Access, report: Report, now: () => number) => Promise<boolean>;

export function list(query: ListQuery & { readonly state?: string }): Command {
  return async (access, report, now) => {
    const { runs, next } = await access.runs(query);
    if (report.isJson) {
      report.json({ runs, ...(next !== null && { next }) });
      return true;
    }
    const [first] = runs;
    if (first === undefined) {
      report.line("No run is there that fits.");
      report.line();
      report.next(queryWords(query).length > 0 ? ["ls"] : ["inbox"]);
      return true;
    }
    const header = ["RUN", "STATE", "AGENT", "THREAD", "BEGAN"];
    const rows = runs.map((run) => [
      ...[run.uid, stateText(run, now()), short(run.agent, 40), short(run.thread ?? placeOf(run), 40)],
      ago(run.createdAt, now()),
    ]);
    const [head = "", ...lines] = table([header, ...rows]);
    report.line(report.colours.dim(head));
    for (const line of lines) report.line(line);
    report.line();
    report.next(["why", (runs.find(({ outcome }) => outcome === null) ?? first).uid]);
    if (next !== null) report.next(["ls", ...queryWords(query), "--after", next]);
    return true;
  };
}

/** Where a run belongs that is of no thread. */
function placeOf({ parent }: ShownRun): string {
  return parent === null ? "-" : `child of ${parent.uid}`;
}

function stateText(run: ShownRun, now: number): string {
  const left = run.wakesAt === null ? "" : span(run.wakesAt - now);
  switch (run.waitsFor) {
    case null:
      return run.state;
    case "human":
      return "waits for a human";
    case "operator":
      return "waits for an operator";
    case "client":
      return "waits for its client";
    case "key":
      return `waits for a key${left && `, for ${left} at most`}`;
    case "child":
      return "waits for its child";
    case "signal":
      return "waits for a signal";
    case "timer":
      return `waits for a timer, due in ${left}`;
    default:
      return run.waitsFor satisfies never;
  }
}

/** A listing's own flags, for its next page. */
function queryWords({ after: _, ...query }: ListQuery & { readonly state?: string }): string[] {
  return Object.entries(query).flatMap(([name, value]) => [`--${name}`, String(value)]);
}

export function log(
  uid: string,
  { after, follow, facts }: { readonly after: number; readonly follow: boolean; readonly facts: boolean },
): Command {
  return async (access, report) => {
    const { run } = await access.detail(uid);
    let shown = 0;
    for await (const entry of access.log(uid, after, follow)) {
      if (facts && entry.kind === "frame") continue;
      shown += 1;
      if (report.isJson) report.json(entry);
      else report.line(logLine(entry, run.createdAt, report));
    }
    if (report.isJson) return true;
    if (shown === 0) report.line(`Run ${uid} has no entry behind ${after}.`);
    report.line();
    report.next(["why", uid]);
    return true;
  };
}

function logLine(entry: Entry, began: number, { colours }: Report): string {
  const { kind, path, what } = describeEntry(entry);
  const seconds = `+${((entry.at - began) / 1_000).toFixed(3)}s`;
  const name = kind.padEnd(25);
  const place = path === "" ? "-" : path;
  const line = `${String(entry.seq).padStart(5)}  ${seconds.padStart(10)}  `;
  return `${colours.dim(line)}${entry.kind === "frame" ? colours.dim(name) : name}  ${place.padEnd(6)}  ${what}`.trimEnd();
}

export function why(uid: string): Command {
  return async (access, report, now) => {
    const before = await access.detail(uid);
    const log = await readLog(access, before.run);
    // A server that cannot read a log sets its run aside with the cause: that says more than a stream that broke off.
    const detail = "broken" in log.state ? await access.detail(uid) : before;
    const { run } = detail;
    const reasons = explain(detail, log, now());
    if (report.isJson) {
      report.json({ ...detail, reasons });
      return true;
    }
    const { colours } = report;
    const parent = run.parent === null ? "" : `, child of run ${run.parent.uid} (step ${run.parent.path})`;
    const thread = run.thread === null ? parent : `, thread ${short(run.thread, 80)}, turn ${run.turn}`;
    report.line(
      `${colours.bold(`Run ${run.uid}`)} of agent ${short(run.agent, 80)}${thread}: ${stateText(run, now())}.`,
    );
    // The frames are gone, and one entry stands for them.
    const size = run.pruned ? `had ${run.head} entries; its frames were pruned` : `has ${run.head + 1} entries`;
    report.line(`It began ${ago(run.createdAt, now())} and ${size}.`);
    for (const { says, next } of reasons) {
      report.line();
      report.line(says);
      report.next(...next);
    }
    if (reasons.some(({ next }) => next.length > 0)) return true;
    report.line();
    report.next(run.outcome === null ? ["log", uid, "--follow"] : ["log", uid]);
    return true;
  };
}

/** A run's log and what it comes to: alone, as nearly every one does, else behind its thread's earlier runs. */
async function readLog(access: Access, run: ShownRun): Promise<Log> {
  const entries: Entry[] = [];
  let state: RunState | undefined;
  try {
    for await (const entry of access.log(run.uid, -1, false)) entries.push(entry);
    try {
      return { entries, state: fold(entries) };
    } catch (error) {
      if (run.turn <= 1) throw error;
    }
    for (const { uid } of await access.earlier(run)) {
      const earlier: Entry[] = [];
      for await (const entry of access.log(uid, -1, false)) earlier.push(entry);
      state = fold(earlier, state);
    }
    return { entries, state: fold(entries, state) };
  } catch (error) {
    return { entries, state: { broken: error instanceof Error ? error.message : String(error) } };
  }
}

export function inbox(query: ListQuery): Command {
  return async (access, report, now) => {
    const { interrupts, next } = await access.questions(query);
    if (report.isJson) {
      report.json({ interrupts, ...(next !== null && { next }) });
      return true;
    }
    if (interrupts.length === 0) {
      report.line("Nobody waits for an answer.");
      report.line();
      report.next(["ls"]);
      return true;
    }
    for (const [i, question] of interrupts.entries()) {
      if (i > 0) report.line();
      const { kind, run, agent, thread, message, openedAt, call, audience, expiresAt } = question;
      const from = `${short(agent, 40)}${thread === null ? "" : `, thread ${short(thread, 40)}`}`;
      report.line(`${report.colours.bold(kind)}  ${short(message, 300)}`);
      if (call !== undefined) report.line(`  ${short(call.name, 64)} ${jsonText(call.input, 300)}`);
      const needs = audience === undefined ? "" : `, needs scope ${short(audience, 80)}`;
      const until = expiresAt === undefined ? "" : `, expires in ${span(expiresAt - now())}`;
      report.line(`  asked ${ago(openedAt, now())} by ${from}, run ${run}${needs}${until}`);
      const lines = answerLines(question);
      report.next(...(lines.length > 0 ? lines : [["why", run]]));
    }
    if (next === null) return true;
    report.line();
    report.next(["inbox", ...queryWords(query), "--after", next]);
    return true;
  };
}

export function answer(interrupt: string, reply: Reply): Command {
  return async (access, report) => {
    const taken = await access.answer(interrupt, reply);
    if (report.isJson) {
      const { fork: forked, ...interrupt } = "fork" in taken ? taken : { ...taken, fork: undefined };
      report.json({ interrupt, ...(forked !== undefined && { fork: forked }) });
      return true;
    }
    if ("fork" in taken) {
      sayForked(report, taken.fork);
      report.line(`Run ${taken.run} stays where it is, and so does its question ${taken.id}, until it is given up.`);
      report.line();
      report.next(["why", taken.fork.uid], ["abandon", taken.run]);
      return true;
    }
    report.line(
      taken.state === "answered"
        ? `Taken: the answer to ${taken.id} is kept, and its run goes on from there.`
        : `Nothing to do: ${taken.id} is closed already, by this answer or so that none is needed any more.`,
    );
    report.line();
    report.next(["why", taken.run]);
    return true;
  };
}

const MEANING = {
  cancel:
    "Model calls and reads are aborted, open questions are taken back, nothing is started any more. A write that runs may finish, " +
    "and one of which nobody knows keeps its question.",
  abandon:
    "Nothing of it runs again. A write of which nobody knows whether it has happened stays so: its key stays held, and whoever claims " +
    "it next inherits the question.",
} as const;

export function put(uid: string, kind: "cancel" | "abandon"): Command {
  return async (access, report) => {
    const { run, isLate } = await access.put(uid, kind);
    if (report.isJson) {
      report.json({ run, taken: !isLate });
      return true;
    }
    const ended = `Run ${uid} has ended already (${run.outcome ?? run.state}): nothing was done.`;
    report.line(isLate ? ended : `Taken: run ${uid} is to end as ${kind === "cancel" ? "cancelled" : "abandoned"}.`);
    if (!isLate) report.line(MEANING[kind]);
    report.line();
    report.next(["why", uid]);
    return true;
  };
}

export function fork(uid: string, options: ForkOptions): Command {
  return async (access, report) => {
    const { run, seq } = await access.fork(uid, options);
    if (report.isJson) {
      report.json({ run, forkedFrom: { uid, seq } });
      return true;
    }
    sayForked(report, run, seq);
    report.line(`It is in thread ${short(run.thread ?? "-", 80)}; run ${uid} stays as it is.`);
    report.line();
    report.next(["log", run.uid, "--follow"], ["why", run.uid]);
    return true;
  };
}

function sayForked(report: Report, run: ShownRun, seq?: number): void {
  const where = seq === undefined ? "" : ` behind entry ${seq}`;
  report.line(`Forked${where}: run ${run.uid} of agent ${short(run.agent, 40)} goes on from there.`);
}

/** Standard output is the file. */
export function exportRun(uid: string, patterns: readonly RegExp[]): Command {
  return async (access, report) => {
    const fixture = await access.export(uid);
    const hide = (text: string): string => patterns.reduce((left, one) => left.replaceAll(one, "[redacted]"), text);
    report.json(patterns.length === 0 ? fixture : redacted(fixture, hide));
    return true;
  };
}

/** @param which - one run, or all that ended longer ago than `olderThan` ms */
export function prune(
  which: { readonly run: string } | { readonly olderThan: number; readonly query: Pick<ListQuery, "agent" | "thread"> },
): Command {
  return async (access, report, now) => {
    const uids = "run" in which ? [which.run] : await endedBefore(access, which.query, now() - which.olderThan);
    const done = await access.prune(uids);
    const refused = done.filter((one) => one.is === "refused");
    if ("run" in which && refused[0] !== undefined) {
      const { code, why: message, run } = refused[0];
      throw code === "RUN_NOT_FOUND" ? noRun(run) : new CommandError(code, message, { next: ["why", run] });
    }
    if (report.isJson) {
      report.json({ runs: done });
      return refused.length === 0;
    }
    const pruned = done.filter(({ is }) => is === "pruned").length;
    if ("run" in which) {
      report.line(
        pruned === 0 ? "Nothing to do: its frames are gone already." : "Pruned: the frames of the run are gone.",
      );
      report.line("What its thread shows is as it was; cursors into the run are of no use any more.");
    } else report.line(`${pruned} runs pruned.`);
    for (const { why: fault } of refused) report.line(`${report.colours.red("Kept")}: ${short(fault, 1_000)}`);
    report.line();
    report.next("run" in which ? ["why", which.run] : ["ls"]);
    return refused.length === 0;
  };
}

async function endedBefore(access: Access, query: ListQuery, at: number): Promise<readonly string[]> {
  const uids: string[] = [];
  for (let after: string | null | undefined; after !== null; ) {
    const page = await access.runs({ ...query, limit: 500, ...(after !== undefined && { after }) });
    for (const { uid, outcome, aside, pruned, updatedAt } of page.runs) {
      if (outcome !== null && aside === null && !pruned && updatedAt <= at) uids.push(uid);
    }
    after = page.next;
  }
  // A thread's earlier runs first, as they were written.
  return uids.reverse();
}

export const verify: Command = async (access, report) => {
  const verified = await access.verify();
  const { runs, entries, faults } = verified;
  if (report.isJson) {
    report.json(verified);
    return faults.length === 0;
  }
  report.line(
    `${runs} runs with ${entries} entries read: ${faults.length === 0 ? "no fault" : `${faults.length} faults`}.`,
  );
  for (const { run, why: fault } of faults) {
    report.line();
    report.line(`${report.colours.red(run === null ? "The file itself" : `Run ${run}`)}: ${short(fault, 1_000)}`);
    if (run !== null) report.next(["why", run]);
  }
  report.line();
  if (faults.length === 0) report.next(["ls"]);
  else report.line("A run at fault is set aside by its server, and the others go on. Restore the file from a backup.");
  return faults.length === 0;
};
