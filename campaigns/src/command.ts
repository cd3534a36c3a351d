import { parseArgs } from "node:util";
import { breaks } from "./breaks.ts";
import { campaign, type Report } from "./campaign.ts";

/** `N [--seed S] [--broken NAME|all]`. @returns the exit code: 1 for a fault in the product, or for a broken one in which none was found */
export async function command(kind: "chaos" | "cuts"): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { seed: { type: "string" }, broken: { type: "string" } },
  });
  const count = Number(positionals[0]);
  const seed = values.seed ?? String(Date.now());
  const all = Object.entries(breaks).flatMap(([name, { isRare }]) => (isRare && kind === "cuts" ? [] : [name]));
  const names = values.broken === "all" ? all : values.broken === undefined ? [] : [values.broken];
  const unknown = names.find((name) => !Object.hasOwn(breaks, name));
  if (!Number.isSafeInteger(count) || count < 1 || unknown !== undefined) {
    console.error(`Usage: npm run ${kind} -- N [--seed S] [--broken all|${Object.keys(breaks).join("|")}]`);
    return 2;
  }
  if (names.length === 0) {
    const report = await campaign({ kind, count, seed });
    print(report);
    return report.faults.length === 0 ? 0 : 1;
  }
  let missed = 0;
  for (const broken of names) {
    console.log(`\n${broken}: ${breaks[broken]?.what}`);
    const report = await campaign({ kind, count, seed, broken });
    print(report);
    if (report.faults.length > 0) continue;
    missed++;
    console.log(`${broken} was not seen`);
  }
  return missed === 0 ? 0 : 1;
}

const MOST_FAULTS = 5;

function print({
  seed,
  kills,
  caught,
  cuts,
  poisoned,
  conversations,
  effects,
  seconds,
  faults,
  complaints,
}: Report): void {
  const of = (kind: string): number => faults.filter((fault) => fault.kind === kind).length;
  console.log(
    [
      `seed ${seed}, ${seconds.toFixed(0)} s: ${kills} kills, ${cuts} cut connections; ${caught} times a run in flight lost its reader`,
      `${conversations} conversations, ${effects} effects in the ledger; ${poisoned} times an operator let go on what three deaths had caught`,
      `${of("duplicate")} duplicates, ${of("lost")} lost, ${of("wrong")} wrong transcripts`,
    ].join("\n"),
  );
  for (const { kind, conversation, message } of faults.slice(0, MOST_FAULTS)) {
    console.log(`${kind}: ${conversation}: ${message.slice(0, 3_000)}`);
  }
  if (faults.length > 0 && complaints.length > 0) console.log(`The server said:\n${complaints.slice(-30).join("\n")}`);
}
