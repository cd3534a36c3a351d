import process from "node:process";
import { parseArgs } from "node:util";
import { TURNS } from "./workday/desk.ts";
import { workday } from "./workday/workday.ts";

const KILLS = 40;

const { values } = parseArgs({
  options: { seed: { type: "string" }, turns: { type: "string" }, kills: { type: "string" } },
});
const seed = values.seed ?? String(Date.now());
const day = await workday({ seed, turns: Number(values.turns ?? TURNS), kills: Number(values.kills ?? KILLS) });
console.log(
  [
    `seed ${seed}, ${day.seconds.toFixed(0)} s: ${day.turns} turns, ${day.kills} kills, ${day.caught} of them in a stream, ${day.deploys} deploys`,
    `${day.answers} answers of a human, ${day.effects} effects in the ledger`,
    day.faults.length === 0 ? "each effect once, the transcript that of a quiet day" : day.faults.join("\n"),
  ].join("\n"),
);
if (day.faults.length > 0 && day.complaints.length > 0)
  console.log(`The server said:\n${day.complaints.slice(-40).join("\n")}`);
process.exitCode = day.faults.length === 0 ? 0 : 1;
