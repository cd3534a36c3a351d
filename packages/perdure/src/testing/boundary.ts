/** Names for the places where processes die. */
import type { NewEntry } from "../log/entries.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { EndOfLife } from "./life.ts";
import type { Commit, Death } from "./mortal-store.ts";
import type { Place } from "./places.ts";
import type { Ended } from "./play.ts";
import type { Boundary } from "./report.ts";

/** What a place belongs to, by run and path: a part of a model's answer to its model step. */
export type StepNames = (run: Uid | null, path: Path | null) => Pick<Boundary, "turn" | "step" | "tool">;

/** The steps of a play. */
export function stepNames({ runs, logs, children }: Ended): StepNames {
  const tools = new Map<string, string | null>();
  const turns = new Map<Uid, number>();
  runs.forEach(({ uid, turn }, i) => {
    turns.set(uid, turn);
    for (const entry of logs[i] ?? []) {
      if (entry.kind === "step.started") tools.set(`${uid} ${entry.path}`, entry.step === "model" ? null : entry.name);
    }
  });
  for (const { run, log } of children) {
    for (const entry of log) {
      if (entry.kind === "step.started")
        tools.set(`${run.uid} ${entry.path}`, entry.step === "model" ? null : entry.name);
    }
  }
  return (run, path) => {
    const owners =
      path === null ? [] : path.split(".").map((_, i, parts) => parts.slice(0, parts.length - i).join("."));
    const step = owners.find((owner) => tools.has(`${run} ${owner}`)) ?? path;
    const turn = run === null ? null : (turns.get(run) ?? null);
    return { turn, step, tool: tools.get(`${run} ${step}`) ?? null };
  };
}

export function boundaryOf(end: EndOfLife, names: StepNames): Boundary {
  return "place" in end ? ofPlace(end.place, end.nth, names) : ofCommit(end.commit, end.when, end.nth, names);
}

function ofPlace({ body, point, name }: Place, nth: number, names: StepNames): Boundary {
  const { run = null, step = null, tool = null, phase = "call" } = body ?? {};
  const who = [step, tool ?? "model", phase === "call" || phase === "model" ? "" : phase].filter(Boolean).join(" ");
  const times = nth === 1 ? "" : `, time ${nth}`;
  const { turn } = names(run, step);
  return { at: "body", point, turn, step, tool, label: `${who}: ${POINTS[point](name)}${times}` };
}

const POINTS: { readonly [P in Place["point"]]: (name: string | null) => string } = {
  before: () => "before its first line",
  operation: (name) => `at ctx.${name}`,
  mark: (name) => `at cutHere(${name === null ? "" : JSON.stringify(name)})`,
  after: () => "after its last line",
};

function ofCommit({ operation, run, entries }: Commit, when: Death["when"], nth: number, names: StepNames): Boundary {
  const path = entries.map(pathOf).find((one) => one !== null) ?? null;
  const point = when === "before" ? "before" : "after";
  const what = operation === "append" ? contents(entries) : operation;
  return { at: "append", point, ...names(run, path), label: `${point} commit ${nth} (${what})` };
}

function pathOf(entry: NewEntry): Path | null {
  return "path" in entry && entry.path !== "" ? entry.path : null;
}

/** The facts of a batch; frames where it has no other. */
function contents(entries: readonly NewEntry[]): string {
  const facts = entries.filter(({ kind }) => kind !== "frame");
  if (facts.length === 0) {
    const [first] = entries;
    if (first?.kind !== "frame") return "release";
    return `frame ${"ref" in first ? first.ref.of : first.event.type}`;
  }
  return facts.map((entry) => (pathOf(entry) === null ? entry.kind : `${entry.kind} ${pathOf(entry)}`)).join(", ");
}
