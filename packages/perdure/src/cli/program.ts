import { CommanderError, Command as CommandLine, InvalidArgumentError, Option } from "commander";
import { RUN_STATES } from "../http/shown.ts";
import { DurationError, parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Duration } from "../protocol/words.ts";
import type { Access } from "./access.ts";
import { CommandError, USAGE, usage } from "./command-error.ts";
import * as commands from "./commands.ts";
import type { ConformanceFlags } from "./conformance.ts";
import { type ForkFlags, forkOptions } from "./fork-flags.ts";
import { type Output, Report } from "./output.ts";
import { type AnswerFlags, replyOf } from "./reply.ts";

/** Of `process.env`. */
type Environment = Readonly<Record<string, string | undefined>>;

/** Flags that every command takes. */
interface Where {
  readonly url?: string;
  readonly store?: string;
  readonly header?: readonly string[];
  readonly json?: true;
}

export interface World {
  readonly output: Output;
  readonly env: Environment;
  /** The package's. */
  readonly version: string;
  /** Fires when the command is to stop, as on SIGINT. */
  readonly stop: AbortSignal;
}

/**
 * The `perdure` command.
 *
 * @param words - what stands behind its name
 * @returns the exit code: 0; 1 for what is not there, was refused or is at fault; 2 for a command line that makes no sense
 */
export async function perdure(words: readonly string[], world: World): Promise<number> {
  let code = 0;
  const { output, env } = world;
  const program = new CommandLine("perdure")
    .description("Looks at durable runs, says why they are where they are, and answers their questions.")
    .version(world.version)
    .configureOutput({ writeOut: output.out, writeErr: output.err })
    .exitOverride()
    .addHelpText("after", HELP);

  const command = (usageText: string, description: string): CommandLine =>
    program
      .command(usageText)
      .description(description)
      .addOption(new Option("--url <url>", "a running server, for example http://127.0.0.1:8787").conflicts("store"))
      .option("--store <file>", "a store's file; looking on is possible beside its server")
      .option("--header <line>", 'a header for the server, "name: value"; may be repeated', collect)
      .option("--json", "JSON in place of a report");

  const run = async (where: Where, work: commands.Command): Promise<void> => {
    const report = new Report(output, where.json === true, pastedFlags(where));
    let access: Access | undefined;
    await told(report, async () => {
      access = await open(where, env);
      const leave = (): void => void access?.close();
      world.stop.addEventListener("abort", leave, { once: true });
      return await work(access, report, Date.now);
    });
    await access?.close();
  };
  /** Sets the exit code by what came of it. */
  const told = async (report: Report, work: () => Promise<boolean>): Promise<void> => {
    try {
      if (!(await work())) code = 1;
    } catch (error) {
      if (!(error instanceof PerdureError)) throw error;
      const refused =
        error instanceof CommandError ? error : new CommandError(error.code, error.message, { cause: error });
      report.error(refused);
      code = refused.exitCode;
    }
  };

  const listed = (name: string, description: string): CommandLine =>
    command(name, description)
      .option("--agent <name>", "only of this agent")
      .option("--thread <id>", "only of this thread")
      .option("--limit <n>", "how many, at most 500", wholeNumber)
      .option("--after <page>", "the page behind another one, as that one names it");

  listed("ls", "runs, newest first")
    .addOption(new Option("--state <state>", "only those in this state, or waiting for this").choices(RUN_STATES))
    .action((options: Where & Parameters<typeof commands.list>[0]) => run(options, commands.list(queryOf(options))));
  command("log <run>", "a run's entries, one a line")
    .option("--after <seq>", "only those behind this one", wholeNumber, -1)
    .option("--facts", "without the frames that user interfaces were shown")
    .option("--follow", "stay for what comes, until the run has ended")
    .action((uid: string, options: Where & { after: number; facts?: true; follow?: true }) =>
      run(options, commands.log(uid, { ...options, facts: options.facts === true, follow: options.follow === true })),
    );
  command("why <run>", "why a run is where it is, and what to do about it").action((uid: string, options: Where) =>
    run(options, commands.why(uid)),
  );
  listed("inbox", "open questions, oldest first, each with the lines that answer it").action(
    (options: Where & Parameters<typeof commands.inbox>[0]) => run(options, commands.inbox(queryOf(options))),
  );
  command("answer <interrupt>", "answer a question, in one of these ways")
    .option("--approve", "approve a call as it is")
    .option("--edit <json>", "approve it with these arguments in place of the model's")
    .option("--reject [reason]", "reject it")
    .option("--did <yes|no|unknown>", "say whether a write has happened")
    .option("--output <json>", "with --did yes: what it has returned")
    .option("--note <text>", "with --did unknown: what is known")
    .option("--value <json>", "answer with this value")
    .option("--cancel", "answer with nothing: the call counts as rejected or cancelled")
    .action((id: string, options: Where & AnswerFlags) =>
      run(options, (...args) => commands.answer(id, replyOf(options))(...args)),
    );
  for (const kind of ["cancel", "abandon"] as const) {
    const what = kind === "cancel" ? "end a run in order" : "give a run up as it is";
    command(`${kind} <run>`, what).action((uid: string, options: Where) => run(options, commands.put(uid, kind)));
  }
  command("prune [run]", "remove the frames of runs that are over; what their threads show stays")
    .option("--older-than <duration>", 'in place of a run: all that ended longer ago, for example "7d"')
    .option("--agent <name>", "with --older-than: only of this agent")
    .option("--thread <id>", "with --older-than: only of this thread")
    .action((uid: string | undefined, { olderThan, ...options }: Where & PruneFlags) =>
      run(options, (...args) => commands.prune(prunedBy(uid, olderThan, queryOf(options)))(...args)),
    );
  command("fork <run>", "begin a run that goes on from an entry of this one, in a thread of its own")
    .option("--at <seq>", "the last entry that counts, as log numbers them; default: the newest", wholeNumber)
    .option("--instructions <text>", "another system prompt")
    .option("--model <name>", "another one of the agent's models")
    .option("--input <text>", "what the user's newest message says, in place of what it said")
    .option("--state <json>", "the state at the entry, in place of what it was")
    .option("--agent <name>", "another agent of the server, for other tools")
    .option("--thread <id>", "the thread of the fork, a new one")
    .option("--acknowledge <writes...>", "writes behind the entry that may happen once more: step paths, or tools")
    .action((uid: string, options: Where & ForkFlags) =>
      run(options, (...args) => commands.fork(uid, forkOptions(queryOf(options)))(...args)),
    );
  command("export <run>", "a recorded run as a JSON fixture on standard output, for replay() of perdure/testing")
    .option("--redact <pattern>", "hide what fits this regular expression in every text; may be repeated", collect)
    .action((uid: string, { redact = [], ...options }: Where & { redact?: readonly string[] }) =>
      run(options, (...args) => commands.exportRun(uid, redact.map(pattern))(...args)),
    );
  command("verify", "read a whole store, and say what is wrong with it").action((options: Where) =>
    run(options, commands.verify),
  );

  program
    .command("conformance <url>")
    .description("check any AG-UI server against the protocol, rule by rule")
    .option("--inputs <file>", "conversations to lead with it, beside the kit's own: a JSON list")
    .option("--prompt <text>", "what the user says where it does not matter")
    .option("--only <rules...>", "only these rules")
    .option("--skip <rules...>", "all rules but these")
    .option("--expect <features...>", "what has to be seen, for example tools interrupts state")
    .option("--rejoin <url>", "where the rest of a stream is, by Last-Event-ID, with {threadId} in it")
    .option("--timeout <ms>", "how long one answer may take", wholeNumber)
    .option("--header <line>", 'a header for each request, "name: value"; may be repeated', collect)
    .option("--json", "JSON in place of a report")
    .action(async (url: string, options: ConformanceFlags & Pick<Where, "header" | "json">) => {
      const report = new Report(output, options.json === true, []);
      await told(report, async () => {
        const { conformance } = await import("./conformance.ts");
        const headers = headersOf(options.header ?? [], env.PERDURE_AUTHORIZATION);
        return await conformance(url, options, headers, report, world.stop);
      });
    });

  try {
    await program.parseAsync(words, { from: "user" });
  } catch (error) {
    // It has said what is wrong, or shown the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE;
    throw error;
  }
  return code;
}

const HELP = `
In place of --url, --store and the header "authorization" stand PERDURE_URL, PERDURE_STORE and PERDURE_AUTHORIZATION.
Exit codes: 0; 1 for what is not there, was refused or is at fault; 2 for a command line that makes no sense.`;

/** What is asked: loaded only then, so that `--help` is there at once. */
async function open({ url, store, header = [] }: Where, env: Environment): Promise<Access> {
  const fromEnv = url === undefined && store === undefined;
  const address = url ?? (fromEnv ? env.PERDURE_URL : undefined);
  const file = store ?? (fromEnv && !address ? env.PERDURE_STORE : undefined);
  if (address) {
    const { HttpAccess } = await import("./http-access.ts");
    return new HttpAccess(address, headersOf(header, env.PERDURE_AUTHORIZATION));
  }
  if (!file) throw usage("say where the runs are: --url http://127.0.0.1:8787 of a running server, or --store FILE");
  const { FileAccess } = await import("./file-access.ts");
  return new FileAccess(file);
}

function headersOf(lines: readonly string[], authorization: string | undefined): Readonly<Record<string, string>> {
  const named = lines.map((line): [string, string] => {
    const colon = line.indexOf(":");
    if (colon < 1) throw usage(`--header "${line}" is no header: write it as "name: value"`);
    return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { ...(authorization && { authorization }), ...Object.fromEntries(named) };
}

/** What was said on the command line, but for the values of headers: they may be secrets, and reports get copied. */
function pastedFlags({ url, store, header = [] }: Where): string[] {
  const headers = header.flatMap((line) => ["--header", `${line.split(":")[0]}: …`]);
  return [...(url === undefined ? [] : ["--url", url]), ...(store === undefined ? [] : ["--store", store]), ...headers];
}

interface PruneFlags {
  readonly olderThan?: string;
  readonly agent?: string;
  readonly thread?: string;
}

function prunedBy(
  uid: string | undefined,
  olderThan: string | undefined,
  query: Omit<PruneFlags, "olderThan">,
): Parameters<typeof commands.prune>[0] {
  if ((uid === undefined) === (olderThan === undefined)) {
    throw usage("say what to prune: one run, or --older-than 7d for all that ended longer ago");
  }
  if (uid !== undefined) return { run: uid };
  try {
    // What was typed may be anything: the parser says so.
    return { olderThan: parseDuration(olderThan as Duration, "--older-than"), query };
  } catch (error) {
    throw error instanceof DurationError ? usage(error.message) : error;
  }
}

function queryOf<Q extends Where>({
  url: _url,
  store: _store,
  header: _header,
  json: _json,
  ...query
}: Q): Omit<Q, keyof Where> {
  return query;
}

function collect(line: string, before: readonly string[] = []): readonly string[] {
  return [...before, line];
}

function pattern(text: string): RegExp {
  try {
    return new RegExp(text, "g");
  } catch {
    throw usage(`--redact "${text}" is no regular expression`);
  }
}

function wholeNumber(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError("It is not a whole number.");
  return Number(text);
}
