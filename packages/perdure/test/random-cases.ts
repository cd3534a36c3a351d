import { env } from "node:process";

/** How many random cases a test plays: the first number at each build, the second with `PLAY=all`, as `npm run hunt` has it. */
export function cases(atEachBuild: number, all: number): number {
  return env.PLAY === "all" ? all : atEachBuild;
}
