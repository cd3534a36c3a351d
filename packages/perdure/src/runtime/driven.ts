import type { Uid } from "../protocol/words.ts";
import { LeaseLostError } from "./run-log.ts";

/** How a driver's time with a run ended. */
export type Driven = "parked" | "finished" | "released" | "lost";

/** Lets a driver run. What goes wrong is reported, and then the run is anybody's again. */
export async function untilDriven(
  driver: { run(): Promise<Driven>; close(): void },
  { report, lease }: { readonly report: (error: unknown, run: Uid) => void; readonly lease: { readonly uid: Uid } },
): Promise<Driven> {
  try {
    return await driver.run();
  } catch (error) {
    if (!(error instanceof LeaseLostError) || error.cause !== undefined) report(error, lease.uid);
    return "lost";
  } finally {
    driver.close();
  }
}
