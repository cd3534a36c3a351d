/** What a replay has found, to read and to assert on. */
import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";

/** Something that is otherwise now. */
export interface ReplayDifference {
  /** Path of the step, or of the lane in which something else is emitted; "" for the end of the run, and for the main lane. */
  readonly step: string;
  readonly what:
    | "instructions"
    | "messages"
    | "tools"
    | "settings"
    | "decision"
    | "tool"
    | "approval"
    | "key"
    | "input"
    | "emitted"
    | "state"
    | "result";
  readonly message: string;
  /** Line by line: `-` then, `+` now. */
  readonly diff?: string;
  /** The line in the code of a `run(ctx)`, where it is one line's doing. */
  readonly at?: string;
}

/** The agent does not do what was recorded. */
export class ReplayDifferenceError extends PerdureError {
  override readonly name = "ReplayDifferenceError";
  constructor(readonly report: ReplayReport) {
    super("REPLAY_DIFFERS", report.toString());
  }
}

export class ReplayReport {
  /** Whether nothing is otherwise. */
  readonly equal: boolean;

  constructor(
    /** The recorded run's uid. */
    readonly run: string,
    readonly agent: string,
    /** In the order of the steps; each way of being otherwise once, at the first step that shows it. */
    readonly differences: readonly ReplayDifference[],
  ) {
    this.equal = differences.length === 0;
  }

  /** @throws {@link ReplayDifferenceError} with the report as its message, unless it is equal */
  assert(): void {
    if (!this.equal) throw new ReplayDifferenceError(this);
  }

  /** As text, to read. */
  toString(): string {
    const { run, agent, differences } = this;
    if (this.equal) return `agent "${agent}" does and asks what run ${run} recorded`;
    const told = differences.map(({ step, what, message, diff, at }) => {
      const place = step !== "" ? `step ${step}` : what === "emitted" || what === "state" ? "main lane" : "at the end";
      const line = at === undefined ? "" : `\n  at ${at}`;
      return `${place}, ${what}: ${message}${line}${diff === undefined ? "" : `\n${diff}`}`;
    });
    return [`agent "${agent}" is not what run ${run} recorded:`, ...told].join("\n\n");
  }
}

/** Lines around a change. */
const AROUND = 2;

/** Two values as indented JSON, with what is in one alone marked. */
export function textDiff(then: Json, now: Json): string {
  const [a, b] = [linesOf(then), linesOf(now)];
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from += 1;
  let same = 0;
  while (same < Math.min(a.length, b.length) - from && a[a.length - 1 - same] === b[b.length - 1 - same]) same += 1;
  const mark = (sign: string, lines: readonly string[]): string[] => lines.map((line) => `  ${sign} ${line}`);
  return [
    ...mark(" ", a.slice(Math.max(0, from - AROUND), from)),
    ...mark("-", a.slice(from, a.length - same)),
    ...mark("+", b.slice(from, b.length - same)),
    ...mark(" ", a.slice(a.length - same, a.length - same + AROUND)),
  ].join("\n");
}

/** Texts of several lines, as prompts are, take several lines. */
function linesOf(value: Json): readonly string[] {
  return JSON.stringify(value, null, 2).replaceAll("\\n", "\\n\n").split("\n");
}
