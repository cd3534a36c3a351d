import { PerdureError } from "../protocol/errors.ts";
import { Book } from "./book.ts";
import type { Session } from "./conversation.ts";
import type { Exchange } from "./exchange.ts";
import { defaultInputs, type ProducerInput } from "./inputs.ts";
import { type Cancelling, playCancel } from "./plays/cancel.ts";
import { claimsToResume } from "./plays/capabilities.ts";
import { lead } from "./plays/conversations.ts";
import { playCuts } from "./plays/cuts.ts";
import { playInterrupts } from "./plays/interrupts.ts";
import { playMalformed } from "./plays/malformed.ts";
import { playNegotiation } from "./plays/negotiation.ts";
import { playRejoin, type RestUrl } from "./plays/rejoin.ts";
import { playRequests } from "./plays/requests.ts";
import { ProducerReport } from "./report.ts";
import { isRuleId, type ProducerRuleId, RULE_IDS } from "./rules.ts";
import { type ProducerTarget, Target } from "./target.ts";

/** What a server may be expected to show, and what shows it. */
const FEATURES = {
  text: ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK"],
  reasoning: ["REASONING_MESSAGE_START", "REASONING_MESSAGE_CHUNK"],
  tools: ["TOOL_CALL_RESULT"],
  "client-tools": ["client-tool"],
  interrupts: ["interrupt"],
  state: ["STATE_SNAPSHOT", "STATE_DELTA"],
  "state-deltas": ["STATE_DELTA"],
  activities: ["ACTIVITY_SNAPSHOT"],
  steps: ["STEP_STARTED"],
  subagents: ["SUBAGENT_STARTED"],
  "message-snapshots": ["MESSAGES_SNAPSHOT"],
  protobuf: ["protobuf"],
  rejoin: ["rejoin"],
} as const;

export type ProducerFeature = keyof typeof FEATURES;

export const PRODUCER_FEATURES = Object.keys(FEATURES) as readonly ProducerFeature[];

/** How {@link checkProducer} asks, and what it looks at. */
export interface CheckProducerOptions {
  /** Conversations beside the kit's own: those that lead this agent to its tools, its questions and its state. */
  readonly inputs?: readonly ProducerInput[];
  /** What the user says where it does not matter. Default: `Hello.` */
  readonly prompt?: string;
  /** The address at which a handler is asked. Default: `http://localhost/`. */
  readonly url?: string;
  /** For every request, for example `authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** How long one answer may take. Milliseconds; default 30,000. */
  readonly timeoutMs?: number;
  /** Only these rules. What none of them needs is not asked. */
  readonly only?: readonly ProducerRuleId[];
  /** All rules but these. */
  readonly skip?: readonly ProducerRuleId[];
  /** Ends the check: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** What has to be seen: where nothing of it is, the rule `expected.seen` is broken. `rejoin` also says that it is offered. */
  readonly expect?: readonly ProducerFeature[];
  /**
   * Where the rest of a stream is served, by GET with Last-Event-ID. Left out, the same POST is sent with that header, where the server's frames
   * have ids.
   */
  readonly rejoin?: RestUrl;
  /** Stops a run. Left out, the rule `run.cancelled` is not exercised. */
  readonly cancel?: Cancelling;
}

/**
 * Checks an AG-UI server against the protocol: leads conversations with it, sends what is odd and what is malformed, closes connections in the
 * middle, and judges every byte that comes back, rule by rule. It is a client like any other, so the server may be written in anything.
 *
 * A rule that nothing had to do with is `not-exercised`, which is no pass: `inputs` lead the agent there.
 *
 * ```ts
 * const report = await checkProducer("http://127.0.0.1:8787/agents/support", {
 *   inputs: [{ name: "refund", says: "Refund A-1001, please.", answer: { approved: true } }],
 *   expect: ["tools", "interrupts"],
 * });
 * console.log(report.table());
 * report.assertPassed();
 * ```
 *
 * @param target - the agent's URL, or a fetch handler, which is called in this process
 * @throws `ProducerUnreachableError` when nobody answers at that URL; {@link PerdureError} `UNKNOWN_RULE` for a rule id that is none
 */
export async function checkProducer(
  target: ProducerTarget,
  options: CheckProducerOptions = {},
): Promise<ProducerReport> {
  const { inputs = [], prompt = "Hello.", url, headers = {}, timeoutMs = 30_000, signal, expect = [] } = options;
  const book = new Book(wantedRules(options));
  const session: Session = { book, target: new Target(target, { url, headers, timeoutMs, signal }), seen: new Set() };
  const report = (): ProducerReport => new ProducerReport(session.target.name, session.target.requests, book.all);

  const [plain, ...others] = [...defaultInputs(prompt), ...inputs];
  if (plain === undefined) throw new Error("there are no inputs");
  const { first } = await lead(session, plain);
  // Where nothing is served, a refusal of what is malformed would prove nothing.
  if (!first.isStream) return report();
  const led = new Map([[plain, first]]);
  for (const input of others) {
    const { first: answer, wasResumed } = await lead(session, input);
    led.set(input, answer);
    if (wasResumed) await playInterrupts(session, input);
  }

  await playRequests(session, prompt, first);
  await playNegotiation(session, prompt);
  await playCuts(session, prompt, first);
  const wantsRejoin = book.wants("rejoin.same-run", "rejoin.cursor");
  const claims = (wantsRejoin || book.wants("capabilities.shape")) && (await claimsToResume(session));
  if (wantsRejoin && (claims || expect.includes("rejoin") || offersCursors(first))) {
    session.seen.add("rejoin");
    for (const input of [plain, ...inputs]) await playRejoin(session, input, led.get(input) ?? first, options.rejoin);
  }
  if (options.cancel !== undefined) await playCancel(session, prompt, options.cancel);
  await playMalformed(session, prompt);
  for (const feature of expect) {
    const isSeen = FEATURES[feature].some((sign) => session.seen.has(sign));
    book.check("expected.seen", { input: feature }, isSeen ? undefined : `${feature}: no input has led to it`);
  }
  return report();
}

function offersCursors({ cursors }: Exchange): boolean {
  return cursors.some((cursor) => cursor !== undefined);
}

function wantedRules({ only = RULE_IDS, skip = [] }: CheckProducerOptions): (rule: ProducerRuleId) => boolean {
  const named: readonly string[] = [...only, ...skip];
  const unknown = named.find((rule) => !isRuleId(rule));
  if (unknown !== undefined) {
    throw new PerdureError("UNKNOWN_RULE", `there is no rule "${unknown}"; there are ${RULE_IDS.join(", ")}`);
  }
  const wanted = new Set(only);
  for (const rule of skip) wanted.delete(rule);
  return (rule) => wanted.has(rule);
}
