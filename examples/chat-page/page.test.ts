/** The page in a real Chromium, its server a process that is killed. Without a Chromium there is nothing to see: `npm run browser` says how to get one. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Browser, chromium as driver, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { chromium } from "./chromium.ts";

const executablePath = chromium();
const WORDS = Array.from({ length: 40 }, (_, i) => `Word ${i + 1}.`).join(" ");

if (executablePath === undefined && process.env.PERDURE_BROWSER === "1") {
  throw new Error("no Chromium was found: install one (Debian: apt-get install chromium) or set PERDURE_CHROMIUM");
}

describe.skipIf(executablePath === undefined)("the page in Chromium (skipped where there is none)", () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await driver.launch({ ...(executablePath && { executablePath }), args: ["--no-sandbox"] });
  });
  afterAll(() => browser.close());

  interface Server {
    readonly url: string;
    kill(): Promise<void>;
  }
  async function start(folder: string, port = 0): Promise<Server> {
    const child: ChildProcess = fork(
      join(import.meta.dirname, "server.ts"),
      ["--port", String(port), "--data", folder, "--delay", "15"],
      { execArgv: ["--import", "tsx"], env: { ...process.env, TSX_TSCONFIG_PATH: "tsconfig.built.json" } },
    );
    onTestFinished(() => void child.kill("SIGKILL"));
    const [{ url }] = (await once(child, "message")) as [{ url: string }];
    return {
      url,
      async kill() {
        const gone = once(child, "exit");
        child.kill("SIGKILL");
        await gone;
      },
    };
  }

  async function opened() {
    const folder = mkdtempSync(join(tmpdir(), "chat-page-test-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const server = await start(folder);
    const page = await browser.newPage();
    onTestFinished(() => page.close());
    const faults: string[] = [];
    page.on("pageerror", (error) => faults.push(error.message));
    await page.goto(server.url);
    await idle(page);
    const receipts = join(folder, "receipts.txt");
    return {
      ...{ page, server, folder, faults },
      receipts: () => (existsSync(receipts) ? readFileSync(receipts, "utf8").trim().split("\n") : []),
    };
  }

  const idle = (page: Page) => page.waitForFunction(() => document.querySelector("#status")?.textContent === "idle");
  const says = async (page: Page, text: string): Promise<void> => {
    await page.fill("#text", text);
    await page.press("#text", "Enter");
  };
  const shown = (page: Page) =>
    page.$$eval("#messages li", (lines) => lines.map((line) => `${line.dataset.role}: ${line.textContent}`));
  const until = (page: Page, text: string) =>
    page.waitForFunction((wanted) => document.querySelector("#messages")?.textContent?.includes(wanted), text);

  it("shows a message while it is written, and a reload inside it costs nothing and shows nothing twice", async () => {
    const { page, faults } = await opened();
    await says(page, "tell me");
    await until(page, "Word 5.");
    expect((await shown(page)).at(-1)).not.toContain("Word 40.");
    await page.reload();
    await until(page, "Word 40.");
    await idle(page);
    expect(await shown(page)).toEqual(["user: tell me", `assistant: ${WORDS}`]);
    expect(faults).toEqual([]);
  });

  it("asks for an approval that a reload does not lose, and what was approved happens once", async () => {
    const { page, receipts, faults } = await opened();
    await says(page, "buy milk bread");
    await page.waitForSelector("text=Buy milk, bread?");
    await page.reload();
    await page.waitForSelector("text=Buy milk, bread?");
    expect(receipts()).toEqual([]);
    await page.click("text=Approve");
    await until(page, "Done.");
    await idle(page);
    expect(await shown(page)).toEqual(["user: buy milk bread", "assistant: One moment.", "assistant: Done."]);
    expect(receipts()).toHaveLength(1);
    expect(await page.$$("#questions p")).toEqual([]);
    expect(faults).toEqual([]);
  });

  it("has a state that both sides change", async () => {
    const { page, faults } = await opened();
    await says(page, "add milk");
    await until(page, "Done.");
    await idle(page);
    expect(await page.inputValue("#items")).toBe("milk");
    await page.fill("#items", "milk bread");
    await page.press("#items", "Tab");
    await says(page, "add salt");
    await page.waitForFunction(() => document.querySelectorAll("#messages li").length === 6);
    await idle(page);
    expect(await page.inputValue("#items")).toBe("milk bread salt");
    await page.reload();
    await idle(page);
    expect(await page.inputValue("#items")).toBe("milk bread salt");
    expect(faults).toEqual([]);
  });

  it("does not notice that its server is killed inside a message, and started again", async () => {
    const { page, server, folder, faults } = await opened();
    await says(page, "tell me");
    await until(page, "Word 5.");
    await server.kill();
    await start(folder, Number(new URL(server.url).port));
    await until(page, "Word 40.");
    await idle(page);
    expect(await shown(page)).toEqual(["user: tell me", `assistant: ${WORDS}`]);
    expect(faults).toEqual([]);
  });

  it("cancels the run, which a page that leaves does not", async () => {
    const { page, server } = await opened();
    const states = () =>
      page.evaluate(async () => {
        const { runs } = (await (await fetch("/runs")).json()) as { runs: { state: string }[] };
        return runs.map(({ state }) => state);
      });
    await says(page, "tell me");
    await until(page, "Word 3.");
    await page.click("#cancel");
    await expect.poll(states).toEqual(["cancelled"]);
    await page.evaluate(() => sessionStorage.clear());
    await page.reload();
    await idle(page);
    await says(page, "tell me");
    await until(page, "Word 3.");
    await page.goto("about:blank");
    await page.goto(server.url);
    await expect.poll(states).toEqual(["success", "cancelled"]);
  });
});
