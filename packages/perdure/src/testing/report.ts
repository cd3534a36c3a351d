/** What a crash matrix has found, to read and to assert on. */
import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";
import type { Difference, FindingKind } from "./compare.ts";

/** A place at which a process was killed. */
export interface Boundary {
  /** A commit to the store; or the user's code. */
  readonly at: "append" | "body";
  /** Of a commit: before it, or when it was durable and nobody had heard of it. Of a body: before its first line, at a use of its context, at a `cutHere()`, after its last line. */
  readonly point: "before" | "operation" | "mark" | "after";
  /** From 1; null where it belongs to none. */
  readonly turn: number | null;
  /** Path of the step; null for what belongs to the whole run. */
  readonly step: string | null;
  /** Null where it is no tool's. */
  readonly tool: string | null;
  /** As the table says it. */
  readonly label: string;
}

/** Something that was not as without a cut. */
export interface Finding extends Difference {
  /** Where the processes of this play died, in order; empty where a play without a cut went wrong. */
  readonly cut: readonly Boundary[];
}

/** The matrix is not empty. */
export class CrashMatrixError extends PerdureError {
  override readonly name = "CrashMatrixError";
  constructor(table: string) {
    super("CRASH_MATRIX", table);
  }
}

export interface Played {
  readonly cut: readonly Boundary[];
  readonly differences: readonly Difference[];
  /** A human gave a write up. */
  readonly gaveUp: boolean;
}

export class CrashReport {
  /** All that was found, in the order of the cuts. */
  readonly findings: readonly Finding[];
  /** How often the conversation was played, two plays without a cut among them. */
  readonly plays: number;
  /** How many plays were cut. */
  readonly cuts: number;
  readonly #cut: readonly Played[];

  /**
   * @param skipped - cuts that were left out, by `limit`, or because play after play came to no end
   * @param effects - what the play without a cut has done: of an agent that does nothing, nothing can be found
   */
  constructor(
    readonly agent: string,
    played: readonly Played[],
    readonly skipped: number,
    readonly effects: readonly string[],
  ) {
    this.plays = played.length;
    this.#cut = played.filter(({ cut }) => cut.length > 0);
    this.cuts = this.#cut.length;
    this.findings = played.flatMap(({ cut, differences }) => differences.map((found) => ({ ...found, cut })));
  }

  /** Effects that happened more often than without a cut. */
  get duplicates(): readonly Finding[] {
    return this.#of("duplicate");
  }
  /** Effects that happened less often. */
  get losses(): readonly Finding[] {
    return this.#of("loss");
  }
  /** Where log, conversation or state say something else. */
  get differences(): readonly Finding[] {
    return this.#of("difference");
  }
  /** Effects that do not happen without a cut, bodies that outlive their process, plays that come to no end. */
  get unexpected(): readonly Finding[] {
    return this.#of("unexpected");
  }
  /** In how many plays the script gave a write up, of which nobody knows. Their effect may be missing, and what follows is not compared. */
  get gaveUp(): number {
    return this.#cut.filter(({ gaveUp }) => gaveUp).length;
  }
  /** Nothing was found, and something was cut. */
  get ok(): boolean {
    return this.findings.length === 0 && this.cuts > 0;
  }

  /** @throws {@link CrashMatrixError} with the table, unless `ok` */
  assertNoFindings(): void {
    if (!this.ok) throw new CrashMatrixError(`\n${this.table()}`);
  }

  /** The matrix: steps by places, and below it what was found, equal findings together. */
  table(): string {
    const counts = [
      plural(this.duplicates.length, "duplicate"),
      plural(this.losses.length, "loss", "losses"),
      plural(this.differences.length, "difference"),
      `${this.unexpected.length} unexpected`,
    ];
    return [
      `agent "${this.agent}", ${plural(this.cuts, "cut")}${this.skipped > 0 ? ` (${this.skipped} skipped)` : ""}: ${counts.join(", ")}`,
      ...(this.gaveUp > 0
        ? [`given up by the script, and not compared from there on: ${plural(this.gaveUp, "play")}`]
        : []),
      "",
      ...aligned([["step", "what", ...COLUMNS.map(({ title }) => title)], ...this.#rows()]),
      ...this.#listed(),
    ].join("\n");
  }

  #of(kind: FindingKind): readonly Finding[] {
    return this.findings.filter((finding) => finding.kind === kind);
  }

  /** Plays by the place of their last death. */
  #rows(): string[][] {
    const several = this.#cut.some(({ cut }) => cut.some(({ turn }) => (turn ?? 1) > 1));
    const rows = new Map<string, { first: Boundary; played: Played[] }>();
    for (const played of this.#cut) {
      const last = played.cut.at(-1);
      if (last === undefined) continue;
      const key = JSON.stringify([several && last.turn, last.step, last.tool]);
      const row = rows.get(key) ?? { first: last, played: [] };
      row.played.push(played);
      rows.set(key, row);
    }
    return [...rows.values()]
      .sort((a, b) => compareBoundaries(a.first, b.first))
      .map(({ first, played }) => [
        `${several && first.turn !== null ? `${first.turn}: ` : ""}${first.step ?? ""}`,
        rowName(first),
        ...COLUMNS.map(({ holds }) => cell(played.filter(({ cut }) => holds(cut.at(-1) as Boundary)))),
      ]);
  }

  #listed(): string[] {
    const groups = new Map<string, { finding: Finding; cuts: string[] }>();
    for (const finding of this.findings) {
      const { cut, ...what } = finding;
      const key = JSON.stringify(what);
      const group = groups.get(key) ?? { finding, cuts: [] };
      group.cuts.push(cut.length === 0 ? "without any cut" : cut.map(({ label }) => label).join(", then "));
      groups.set(key, group);
    }
    return [...groups.values()].flatMap(({ finding, cuts }) => {
      const { kind, turn, step, tool, what, expected, found } = finding;
      const turns = turn !== null && turn > 1 ? `turn ${turn}` : "";
      const where = [turns, step === null ? "" : `step ${step}`, tool ?? ""].filter(Boolean).join(" ");
      const shown = cuts.slice(0, SHOWN_CUTS);
      const more = cuts.length > SHOWN_CUTS ? [`and at ${plural(cuts.length - SHOWN_CUTS, "more cut")}`] : [];
      return [
        "",
        `${kind}: ${where && `${where}: `}${what}: expected ${brief(expected)}, found ${brief(found)}`,
        ...[...shown, ...more].map((line) => `  ${line}`),
      ];
    });
  }
}

const SHOWN_CUTS = 4;

const COLUMNS: readonly { readonly title: string; readonly holds: (boundary: Boundary) => boolean }[] = [
  { title: "appends", holds: ({ at }) => at === "append" },
  { title: "first line", holds: ({ at, point }) => at === "body" && point === "before" },
  { title: "ctx", holds: ({ point }) => point === "operation" },
  { title: "cutHere", holds: ({ point }) => point === "mark" },
  { title: "last line", holds: ({ at, point }) => at === "body" && point === "after" },
];

/** How many plays; and how many of them went wrong. */
function cell(played: readonly Played[]): string {
  const wrong = played.filter(({ differences }) => differences.length > 0).length;
  if (played.length === 0) return "";
  return wrong === 0 ? `${played.length} ok` : `${wrong} of ${played.length}`;
}

function rowName({ step, tool }: Boundary): string {
  if (step === null) return tool === null ? "the run" : `${tool} (approval)`;
  return tool ?? "model";
}

function compareBoundaries(a: Boundary, b: Boundary): number {
  const collate = (one: string | null, other: string | null): number =>
    (one ?? "").localeCompare(other ?? "", "en", { numeric: true });
  return (a.turn ?? 0) - (b.turn ?? 0) || collate(a.step, b.step) || collate(a.tool, b.tool);
}

function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? "").length)));
  return rows.map((row) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

function plural(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

function brief(value: Json): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}
