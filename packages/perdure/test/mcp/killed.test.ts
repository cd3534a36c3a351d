/** Real processes, killed with SIGKILL, with the published servers. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, it, onTestFinished, vi } from "vitest";
import { folder } from "./servers.ts";

const script = fileURLToPath(new URL("./killed-process.ts", import.meta.url));

function started(what: string, dir: string): ChildProcess {
  const child = spawn(process.execPath, ["--import", "tsx", script, what, dir], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

function lives(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

it.runIf(process.platform === "linux")(
  "servers leave when the process that started them is killed",
  async () => {
    const child = started("serve", folder());
    if (child.stdout === null) throw new Error("it says nothing");
    const [line] = (await once(createInterface(child.stdout), "line")) as [string];
    const pids = JSON.parse(line) as number[];
    expect(pids.length).toBeGreaterThanOrEqual(3);
    expect(pids.every(lives)).toBe(true);
    child.kill("SIGKILL");
    await vi.waitFor(() => expect(pids.filter(lives)).toEqual([]), { timeout: 60_000 });
  },
  180_000,
);

it("a write that was done when the process was killed is asked of a human, and not done again", async () => {
  const dir = folder();
  const killed = started("remember", dir);
  expect(await once(killed, "exit")).toEqual([null, "SIGKILL"]);
  const next = started("remember", dir);
  if (next.stdout === null) throw new Error("it says nothing");
  const said: unknown[] = [];
  createInterface(next.stdout).on("line", (line) => said.push(JSON.parse(line)));
  expect(await once(next, "exit")).toEqual([0, null]);
  expect(said).toEqual(["unknown-write", "success"]);
  expect(readFileSync(join(dir, "memory.jsonl"), "utf8").trim().split("\n")).toHaveLength(1);
}, 180_000);
