import { spawn } from "node:child_process";
import { once } from "node:events";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";

const JOB = JSON.stringify(pathToFileURL(`${import.meta.dirname}/job.mjs`).href);

/** A process that runs `code` with job.mjs at hand, where `node(…)` is the job of running that code. */
function runner(code: string) {
  const prelude = `const { foreground, steps } = await import(${JOB});
    const node = (code) => ({ command: process.execPath, args: ["-e", code] });`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", `${prelude} process.exitCode = await ${code};`], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const exit = once(child, "close").then(([code, signal]) => ({ code, signal, output }));
  /** Settles when the output says `word`. */
  const says = async (word: string) => {
    while (!output.includes(word)) await once(child.stdout, "data");
    return output;
  };
  return { child, exit, says };
}

test("the exit code is the job's", async () => {
  expect(await runner(`foreground(node("process.exitCode = 7"))`).exit).toMatchObject({ code: 7 });
});

test("a job that dies of a signal gives 128 and the signal's number, as a shell does", async () => {
  expect(await runner(`foreground(node("process.kill(process.pid, 'SIGKILL')"))`).exit).toMatchObject({ code: 137 });
});

test("a signal reaches the job, and the job decides with which code it ends", async () => {
  const job = `process.on("SIGTERM", () => process.exit(9)); setInterval(() => {}, 1000); console.log("ready");`;
  const { child, exit, says } = runner(`foreground(node(${JSON.stringify(job)}))`);
  await says("ready");
  child.kill("SIGTERM");
  expect(await exit).toMatchObject({ code: 9 });
});

test("a signal reaches what the job has started", async () => {
  // It holds our pipe, so the output does not close while it lives.
  const grandchild = `console.log("ready"); setTimeout(() => {}, 60_000);`;
  const job = `require("node:child_process").spawn(process.execPath, ["-e", ${JSON.stringify(grandchild)}], { stdio: "inherit" });`;
  const { child, exit, says } = runner(`foreground(node(${JSON.stringify(job)}))`);
  await says("ready");
  child.kill("SIGTERM");
  expect(await exit).toMatchObject({ code: 143 });
});

test("a step that succeeds is one line, and what it wrote is not shown", async () => {
  const { code, output } = await runner(`steps({ first: node("console.log('chatter')") })`).exit;
  expect(code).toBe(0);
  expect(output).toMatch(/^✓ first +\d+\.\d s\n$/);
});

test("a step that fails is shown whole and without colours, ends those beside it, and none follows", async () => {
  const failing = `console.log("\\x1b[31mout\\x1b[0m"); console.error("err"); process.exitCode = 3;`;
  const { code, output } = await runner(
    `steps({ slow: node("setInterval(() => {}, 1000)"), failing: node(${JSON.stringify(failing)}), ...Object.fromEntries(
      Array.from({ length: 64 }, (_, i) => ["later " + i, node("setInterval(() => {}, 1000)")])) })`,
  ).exit;
  expect(code).toBe(3);
  expect(output).toMatch(/^✗ failing +\d+\.\d s\n(out\nerr|err\nout)\n$/);
});

test("a signal between steps ends them with its number", async () => {
  const { child, exit } = runner(`(console.log("ready"), steps({ slow: node("setInterval(() => {}, 1000)") }))`);
  await once(child.stdout, "data");
  child.kill("SIGINT");
  expect(await exit).toMatchObject({ code: 130, output: "ready\n" });
});
