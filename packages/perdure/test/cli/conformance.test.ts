/** `perdure conformance`, against small servers over real sockets. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "@hono/node-server";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Fault, smallServer } from "../producer/correct-server.ts";
import { command } from "./rig.ts";

/** Serves a small server until the test is over. */
async function served(fault?: Fault, look: (request: Request) => void = () => {}): Promise<string> {
  const answer = smallServer(fault);
  const fetch = (request: Request): Promise<Response> => {
    look(request);
    return answer(request);
  };
  const server = serve({ fetch, port: 0, hostname: "127.0.0.1" });
  onTestFinished(() => void server.close());
  if (!server.listening) await new Promise((resolve) => server.once("listening", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

function file(content: unknown): string {
  const folder = mkdtempSync(join(tmpdir(), "conformance-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "inputs.json");
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

const withoutEnd: Fault = { events: (events) => events.slice(0, -1) };

describe("perdure conformance", () => {
  test("ends with 0 for a server that is right, and prints each rule with its source", async () => {
    const { code, out, err } = await command(["conformance", await served()]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(
      /^http:\/\/127\.0\.0\.1:\d+\/: \d+ rules passed, 0 failed, 0 warned, \d+ not exercised \(\d+ requests\)\n/,
    );
    expect(out).toMatch(
      /^ok {4}run\.ending +Every run that starts reaches .* \[spec events\/lifecycle, ag-ui#2300, ag-ui#2416\]$/m,
    );
    expect(out).toMatch(/^- {5}resume\.served /m);
  });

  test("ends with 1 for one that is not, and says where that shows", async () => {
    const { code, out } = await command(["conformance", await served(withoutEnd)]);
    expect(code).toBe(1);
    expect(out).toMatch(/^FAIL {2}run\.ending /m);
    expect(out).toMatch(/^ {2}plain turn: The stream breaks the rule "run-unfinished"/m);
  });

  test("--json is one document, with all findings", async () => {
    const { code, out } = await command(["conformance", await served(withoutEnd), "--json", "--only", "run.ending"]);
    const { passed, rules, findings } = JSON.parse(out) as {
      passed: boolean;
      rules: { id: string }[];
      findings: { input: string }[];
    };
    expect([code, passed, rules.map(({ id }) => id)]).toEqual([1, false, ["run.ending"]]);
    expect(findings[0]?.input).toBe("plain turn");
  });

  test("warnings alone end with 0", async () => {
    const { code, out } = await command([
      "conformance",
      await served({ headers: () => ({ "x-accel-buffering": "yes" }) }),
    ]);
    expect(code).toBe(0);
    expect(out).toMatch(/^warn {2}http\.buffering /m);
  });

  test("takes headers, inputs, and what has to be seen", async () => {
    const seen = new Set<string | null>();
    const url = await served(undefined, (request) => seen.add(request.headers.get("authorization")));
    const inputs = file([{ name: "pay", says: "Please pay.", answer: { approved: true } }]);
    const words = ["conformance", url, "--inputs", inputs, "--header", "authorization: Bearer x"];
    expect(await command([...words, "--expect", "interrupts", "tools"])).toMatchObject({ code: 0 });
    expect([...seen]).toEqual(["Bearer x"]);
    const { code, out } = await command([...words, "--expect", "subagents"]);
    expect(code).toBe(1);
    expect(out).toContain("subagents: no input has led to it");
  });

  test.each([
    ["no address", ["nonsense"]],
    ["a rule that is none", ["http://127.0.0.1:1/", "--only", "run.beauty"]],
    ["a feature that is none", ["http://127.0.0.1:1/", "--expect", "beauty"]],
    ["inputs that are not there", ["http://127.0.0.1:1/", "--inputs", "/nowhere/inputs.json"]],
    ["inputs that are no list", ["http://127.0.0.1:1/", "--inputs", JSON.stringify({ name: "a" })]],
    ["an input without a name", ["http://127.0.0.1:1/", "--inputs", JSON.stringify([{ says: "a" }])]],
    ["no server at all", []],
  ])("ends with 2 for %s, before anything is asked", async (_, words) => {
    const written = words.map((word) => (/^[{[]/.test(word) ? file(word) : word));
    const { code, out, err } = await command(["conformance", ...written]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).not.toBe("");
  });

  test("ends with 1 where nobody answers, and when it is stopped", async () => {
    const nobody = await command(["conformance", "http://127.0.0.1:1/"]);
    expect(nobody.code).toBe(1);
    expect(nobody.err).toContain("PRODUCER_UNREACHABLE");
    const stop = new AbortController();
    const url = await served(undefined, () => stop.abort());
    const stopped = await command(["conformance", url], { stop: stop.signal });
    expect(stopped.code).toBe(1);
    expect(stopped.err).toContain("STOPPED");
  });
});
