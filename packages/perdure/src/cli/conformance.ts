/** `perdure conformance`: asks any AG-UI server, not only ours, so it takes neither a store nor the control plane's address. */
import { readFileSync } from "node:fs";
import {
  type CheckProducerOptions,
  checkProducer,
  PRODUCER_FEATURES,
  type ProducerFeature,
} from "../producer/check-producer.ts";
import type { ProducerInput } from "../producer/inputs.ts";
import { isRuleId, type ProducerRuleId, RULE_IDS } from "../producer/rules.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { CommandError, usage } from "./command-error.ts";
import type { Report } from "./output.ts";

/** As they stand on the command line. */
export interface ConformanceFlags {
  readonly inputs?: string;
  readonly prompt?: string;
  readonly only?: readonly string[];
  readonly skip?: readonly string[];
  readonly expect?: readonly string[];
  readonly timeout?: number;
  readonly rejoin?: string;
}

/** @returns whether the server conforms */
export async function conformance(
  url: string,
  flags: ConformanceFlags,
  headers: Readonly<Record<string, string>>,
  report: Report,
  stop: AbortSignal,
): Promise<boolean> {
  if (!URL.canParse(url) || !/^https?:/.test(url))
    throw usage(`"${url}" is no address: give the agent's, for example http://127.0.0.1:8787/agents/desk`);
  const { prompt, only, skip, expect, timeout, rejoin } = flags;
  const options: CheckProducerOptions = {
    ...{ headers, signal: stop },
    ...(flags.inputs !== undefined && { inputs: readInputs(flags.inputs) }),
    ...(prompt !== undefined && { prompt }),
    ...(only !== undefined && { only: only.map(ruleId) }),
    ...(skip !== undefined && { skip: skip.map(ruleId) }),
    ...(expect !== undefined && { expect: expect.map(feature) }),
    ...(timeout !== undefined && { timeoutMs: timeout }),
    ...(rejoin !== undefined && {
      rejoin: ({ threadId }) => rejoin.replaceAll("{threadId}", encodeURIComponent(threadId)),
    }),
  };
  const result = await checkProducer(url, options).catch((error: unknown) => {
    throw stop.aborted
      ? new CommandError("STOPPED", "the check was stopped before its end; nothing is said of the server")
      : error;
  });
  if (report.isJson) {
    const { target, requests, passed, rules, findings } = result;
    report.json({ target, requests, passed, rules, findings });
  } else report.line(result.table());
  return result.passed;
}

function ruleId(name: string): ProducerRuleId {
  if (!isRuleId(name)) throw usage(`there is no rule "${name}"; there are ${RULE_IDS.join(", ")}`);
  return name;
}

function feature(name: string): ProducerFeature {
  const found = PRODUCER_FEATURES.find((known) => known === name);
  if (found === undefined) throw usage(`"${name}" is nothing to expect; there are ${PRODUCER_FEATURES.join(", ")}`);
  return found;
}

/** A file of inputs, as `checkProducer` takes them: what is a function there is a value here. */
function readInputs(file: string): readonly ProducerInput[] {
  const inputs = parse(file);
  if (!Array.isArray(inputs)) throw usage(`${file} holds no list of inputs`);
  return inputs.map((input: Json, i) => {
    const { name, says } = isJsonObject(input) ? input : {};
    const isTold =
      says === undefined ||
      typeof says === "string" ||
      (Array.isArray(says) && says.every((text) => typeof text === "string"));
    if (typeof name !== "string" || !isTold)
      throw usage(`input ${i} of ${file} needs a name, and in "says" a text or a list of texts`);
    return input as unknown as ProducerInput;
  });
}

function parse(file: string): Json {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Json;
  } catch (error) {
    throw usage(`${file} cannot be read as JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}
