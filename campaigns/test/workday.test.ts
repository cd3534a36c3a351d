import { expect, it } from "vitest";
import { workday } from "../src/workday/workday.ts";

it("an agent with MCP servers, a sub-agent and a structured answer is killed through its day, and the day is as if nothing had happened", async () => {
  const { kills, faults, complaints } = await workday({ turns: 10, kills: 5, seed: "test" });
  expect({ faults, complaints }).toEqual({ faults: [], complaints: [] });
  expect(kills).toBe(5);
}, 180_000);
