import { expect, it } from "vitest";
import { campaign } from "../src/campaign.ts";

it("100 connections cut at any byte: every reader ends with the transcript of one who was never cut", async () => {
  const { cuts, faults, complaints } = await campaign({ kind: "cuts", count: 100, seed: "test" });
  expect({ faults, complaints }).toEqual({ faults: [], complaints: [] });
  expect(cuts).toBeGreaterThanOrEqual(100);
}, 120_000);
