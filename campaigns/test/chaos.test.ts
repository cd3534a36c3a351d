import { expect, it } from "vitest";
import { campaign } from "../src/campaign.ts";

it("15 kills with twenty runs in flight: nothing twice, nothing lost, every transcript as if nothing had happened", async () => {
  const { kills, caught, faults, complaints } = await campaign({ kind: "chaos", count: 15, kills: 15, seed: "test" });
  expect({ faults, complaints }).toEqual({ faults: [], complaints: [] });
  expect(kills).toBeGreaterThanOrEqual(15);
  expect(caught).toBeGreaterThan(15);
}, 120_000);
