/** The command, in this process or in one of its own. */
import { spawn } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { perdure } from "../../src/cli/program.ts";

export interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

type Environment = Readonly<Record<string, string>>;

/** Runs the command here, not on a terminal. */
export async function command(
  words: readonly string[],
  { env = {}, stop = new AbortController().signal, heard }: CommandOptions = {},
): Promise<Said> {
  const said = { out: "", err: "" };
  const output = {
    out: (text: string) => {
      said.out += text;
      heard?.(said.out);
    },
    err: (text: string) => {
      said.err += text;
    },
    isColoured: false,
  };
  return { code: await perdure(words, { output, env, stop, version: "0.0.0" }), ...said };
}

interface CommandOptions {
  readonly env?: Environment;
  readonly stop?: AbortSignal;
  /** Gets everything that was said so far. */
  readonly heard?: (out: string) => void;
}

/** What a report says to paste: its indented lines, as words. */
export function pasted({ out }: Said): string[][] {
  return out.split("\n").flatMap((line) => (line.startsWith("  perdure ") ? [wordsOf(line.trim())] : []));
}

/** A line as a shell takes it apart, as far as the command quotes. */
function wordsOf(line: string): string[] {
  const words = [...line.matchAll(/(?:'[^']*'|\\'|[^\s'\\])+/g)].map(([word]) => word);
  return words.map((word) => word.replaceAll(/'([^']*)'|\\(')/g, "$1$2")).slice(1);
}

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** Runs the command as a process. */
export async function commandProcess(words: readonly string[], env: Environment = {}): Promise<Said> {
  const child = spawn(process.execPath, ["--import", "tsx", MAIN, ...words], { env: { ...process.env, ...env } });
  const said = { out: "", err: "" };
  for (const [stream, name] of [
    [child.stdout, "out"],
    [child.stderr, "err"],
  ] as const) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      said[name] += text;
    });
  }
  const code = await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (exit) => resolve(exit ?? -1));
  });
  return { code, ...said };
}
