import { createColors } from "picocolors";
import type { Json } from "../protocol/json.ts";
import type { CommandError } from "./command-error.ts";
import { shellWord } from "./wording.ts";

/** Where a command's words go. */
export interface Output {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly isColoured: boolean;
}

/** What a command says: a report for people, or JSON for programs. */
export class Report {
  readonly colours: ReturnType<typeof createColors>;

  /** @param where - flags that a pasted line needs to come to the same runs again */
  constructor(
    private readonly output: Output,
    readonly isJson: boolean,
    private readonly where: readonly string[],
  ) {
    this.colours = createColors(output.isColoured && !isJson);
  }

  line(text = ""): void {
    this.output.out(`${text}\n`);
  }

  json(value: unknown): void {
    this.output.out(`${JSON.stringify(value)}\n`);
  }

  /** The lines to paste next; the last thing of a report. */
  next(...commands: readonly (readonly string[])[]): void {
    for (const words of commands) this.line(`  ${this.colours.cyan(this.commandLine(words))}`);
  }

  commandLine(words: readonly string[]): string {
    return ["perdure", ...words, ...this.where].map(shellWord).join(" ");
  }

  error(error: CommandError): void {
    const { code, message, more } = error;
    const { details, next } = more;
    if (this.isJson) {
      const document = { error: { code, message, ...(details !== undefined && { details }) } };
      this.output.err(`${JSON.stringify(document)}\n`);
      return;
    }
    const label = createColors(this.output.isColoured).red("perdure:");
    this.output.err(`${label} ${message} (${code})\n`);
    if (details !== undefined) for (const line of detailLines(details)) this.output.err(`  ${line}\n`);
    if (next !== undefined) this.output.err(`  ${this.commandLine(next)}\n`);
  }
}

/** What a refusal says beside its sentence, a line each. */
function detailLines(details: Json): string[] {
  if (typeof details !== "object" || details === null) return [String(details)];
  return Object.entries(details).flatMap(([name, value]) => {
    if (!Array.isArray(value))
      return [`${name}: ${name === "at" ? new Date(Number(value)).toISOString() : plain(value)}`];
    return value.map((item: Json) => `${name}: ${plain(item)}`);
  });
}

function plain(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
