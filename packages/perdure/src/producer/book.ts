/** Where everything that checks writes down what it saw: each occasion of a rule, and each break of it. */
import type { Kept, ProducerFinding } from "./report.ts";
import { type ProducerRuleId, RULE_IDS, RULES } from "./rules.ts";

/** What a finding is about. */
export interface Evidence {
  readonly input: string;
  readonly index?: number | undefined;
  readonly event?: unknown;
}

/** So many findings of one rule are kept, and of them so many of one request: the rest is counted. */
const MAX_OF_RULE = 10;
const MAX_OF_INPUT = 2;

export class Book {
  readonly #kept = new Map<ProducerRuleId, { occasions: number; broken: number; findings: ProducerFinding[] }>();

  /** @param wanted - the rules that are asked; of others nothing is written down */
  constructor(wanted: (rule: ProducerRuleId) => boolean) {
    for (const id of RULE_IDS) if (wanted(id)) this.#kept.set(id, { occasions: 0, broken: 0, findings: [] });
  }

  /** One in which nothing is written. */
  static silent(): Book {
    return new Book(() => false);
  }

  wants(...rules: readonly ProducerRuleId[]): boolean {
    return rules.some((rule) => this.#kept.has(rule));
  }

  /** Something happened that could have broken these rules. */
  occasion(...rules: readonly ProducerRuleId[]): void {
    for (const rule of rules) {
      const kept = this.#kept.get(rule);
      if (kept !== undefined) kept.occasions++;
    }
  }

  /** Something has broken the rule. */
  broken(rule: ProducerRuleId, { input, index, event }: Evidence, message: string): void {
    const kept = this.#kept.get(rule);
    if (kept === undefined) return;
    kept.broken++;
    const ofInput = kept.findings.filter((finding) => finding.input === input).length;
    if (kept.findings.length >= MAX_OF_RULE || ofInput >= MAX_OF_INPUT) return;
    const { severity } = RULES[rule];
    kept.findings.push({ rule, severity, input, index: index ?? null, event, message });
  }

  /** An occasion, and what came of it. `why` is undefined when all is well. */
  check(rule: ProducerRuleId, evidence: Evidence, why: string | undefined): void {
    this.occasion(rule);
    if (why !== undefined) this.broken(rule, evidence, why);
  }

  get all(): ReadonlyMap<ProducerRuleId, Kept> {
    return this.#kept;
  }
}
