import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { type Agent, createRuntime, serve } from "perdure";
import { sqlite } from "perdure/sqlite";
import type { World } from "./agents.ts";
import { type Effect, Ledger } from "./ledger.ts";
import { Random } from "./random.ts";

class AimedLedger extends Ledger {
  constructor(
    path: string,
    private left: number,
  ) {
    super(path);
  }

  override write(effect: Effect): void {
    super.write(effect);
    if (--this.left === 0) process.kill(process.pid, "SIGKILL");
  }
}

/**
 * The process that gets killed: its arguments are STORE LEDGER PORT SEED AIM. It says "ready" when it serves, and dies with its parent.
 *
 * With an aim above 0 it kills itself with SIGKILL, when so many effects have reached the ledger: no other process can hit the moment between an
 * effect and its record.
 */
export async function serveUntilKilled(agentsOf: (world: World) => readonly Agent[]): Promise<void> {
  const [file = "", ledger = "", port = "0", seed = "", aim = "0"] = process.argv.slice(2);
  const random = new Random(seed);
  process.stdin.on("end", () => process.exit(1)).resume();
  const runtime = createRuntime({
    agents: agentsOf({
      ledger: new AimedLedger(ledger, Number(aim)),
      pause: async () => {
        if (random.chance(0.6)) await sleep(random.between(1, 40));
      },
      delayMs: 3,
    }),
    store: sqlite(file),
    onError: (error) => console.error(error),
  });
  await runtime.open();
  await serve(runtime, { port: Number(port) });
  console.log("ready");
}
