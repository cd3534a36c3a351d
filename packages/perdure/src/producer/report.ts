/** What a check of a server has found, to read and to assert on. */
import { PerdureError } from "../protocol/errors.ts";
import { type ProducerRuleId, RULE_IDS, RULES, type Severity, shortSource } from "./rules.ts";

/** A rule that was broken once, and where that shows. */
export interface ProducerFinding {
  readonly rule: ProducerRuleId;
  readonly severity: Severity;
  /** The request: the input's name, and which of its requests it was. */
  readonly input: string;
  /** Counts the stream's events, from 0; null where it is about no single event. */
  readonly index: number | null;
  /** As it came; for a frame that is no event its text. */
  readonly event: unknown;
  readonly message: string;
}

export interface ProducerRuleResult {
  readonly id: ProducerRuleId;
  readonly title: string;
  readonly sources: readonly string[];
  readonly severity: Severity;
  /** `not-exercised`: nothing that the server did had to do with it. That is no pass. */
  readonly status: "passed" | "failed" | "not-exercised";
  /** How often it could have been broken. */
  readonly occasions: number;
  /** The first few; `broken` counts all. */
  readonly findings: readonly ProducerFinding[];
  readonly broken: number;
}

/** The server breaks rules. */
export class ProducerReportError extends PerdureError {
  override readonly name = "ProducerReportError";
  constructor(table: string) {
    super("PRODUCER_REPORT", table);
  }
}

/** What is written down of one rule. */
export interface Kept {
  readonly occasions: number;
  readonly broken: number;
  readonly findings: readonly ProducerFinding[];
}

export class ProducerReport {
  /** All that were asked, in the order of the kit. */
  readonly rules: readonly ProducerRuleResult[];
  /** Of all rules. */
  readonly findings: readonly ProducerFinding[];

  /**
   * @param target - who was checked
   * @param requests - how many requests were sent
   */
  constructor(
    readonly target: string,
    readonly requests: number,
    kept: ReadonlyMap<ProducerRuleId, Kept>,
  ) {
    this.rules = RULE_IDS.flatMap((id): ProducerRuleResult[] => {
      const of = kept.get(id);
      if (of === undefined) return [];
      const status = of.broken > 0 ? "failed" : of.occasions > 0 ? "passed" : "not-exercised";
      return [{ id, ...RULES[id], status, ...of }];
    });
    this.findings = this.rules.flatMap(({ findings }) => findings);
  }

  /** No rule of severity `error` was broken, and some were exercised. Warnings are not counted. */
  get passed(): boolean {
    const isBroken = this.rules.some(({ status, severity }) => status === "failed" && severity === "error");
    return !isBroken && this.rules.some(({ status }) => status === "passed");
  }

  /** Ids of the rules that were broken, warnings too. */
  get failedRules(): readonly ProducerRuleId[] {
    return this.#of("failed");
  }

  /** Ids of the rules that nothing had to do with. */
  get notExercised(): readonly ProducerRuleId[] {
    return this.#of("not-exercised");
  }

  /** @throws {@link ProducerReportError} with the table, unless `passed` */
  assertPassed(): void {
    if (!this.passed) throw new ProducerReportError(`\n${this.table()}`);
  }

  /** Rule by rule with its source, and below it what was found. */
  table(): string {
    const failed = this.rules.filter(({ status }) => status === "failed");
    const errors = failed.filter(({ severity }) => severity === "error").length;
    const width = Math.max(0, ...this.rules.map(({ id }) => id.length));
    const counts = [
      `${this.#of("passed").length} rules passed`,
      `${errors} failed`,
      `${failed.length - errors} warned`,
      `${this.notExercised.length} not exercised`,
    ];
    return [
      `${this.target}: ${counts.join(", ")} (${this.requests} requests)`,
      "",
      ...this.rules.flatMap((rule) => [
        `${markOf(rule)}  ${rule.id.padEnd(width)}  ${rule.title} [${rule.sources.map(shortSource).join(", ")}]`,
      ]),
      ...failed.flatMap((rule) => ["", ...describe(rule)]),
    ].join("\n");
  }

  toString(): string {
    return this.table();
  }

  #of(status: ProducerRuleResult["status"]): readonly ProducerRuleId[] {
    return this.rules.filter((rule) => rule.status === status).map(({ id }) => id);
  }
}

function markOf({ status, severity }: ProducerRuleResult): string {
  if (status === "passed") return "ok  ";
  if (status === "not-exercised") return "-   ";
  return severity === "error" ? "FAIL" : "warn";
}

const SHOWN_FINDINGS = 3;

function describe({ id, title, findings, broken, occasions }: ProducerRuleResult): string[] {
  const shown = findings.slice(0, SHOWN_FINDINGS);
  const more = broken - shown.length;
  return [
    `${id}: ${title}`,
    ...shown.flatMap(({ input, index, event, message }) => [
      `  ${input}${index === null ? "" : `, event ${index}`}: ${message}`,
      ...(event === undefined ? [] : [`    ${brief(event)}`]),
    ]),
    ...(more > 0 ? [`  and ${more} more, of ${occasions} occasions`] : []),
  ];
}

function brief(value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? String(value));
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}
