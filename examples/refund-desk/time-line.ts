/** The story once more, as the log of its run tells it. */
import { type Entry, fold, type RunState, type StepState } from "perdure/log";
import { z } from "zod";
import { euros } from "./books.ts";
import { dim, green, red, shortened } from "./terminal.ts";

/** The log of a thread's newest run. */
export async function readLog(url: string, thread: string): Promise<Entry[]> {
  const { runs } = Runs.parse(JSON.parse(await get(`${url}/runs?thread=${thread}`)));
  const [newest] = runs;
  if (newest === undefined) throw new Error(`thread ${thread} has no run`);
  const lines = (await get(`${url}/runs/${newest.uid}/log`)).trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as Entry);
}
const Runs = z.object({ runs: z.array(z.object({ uid: z.string() })) });

async function get(url: string): Promise<string> {
  const response = await fetch(url);
  const body = await response.text();
  if (!response.ok) throw new Error(`GET ${url} answered ${response.status}: ${body}`);
  return body;
}

/** A line for each step: when it began, and what each of the two servers did about it. */
export function timeLine(entries: readonly Entry[]): string[] {
  const run = fold(entries);
  const recovered = entries.find(({ kind }) => kind === "run.resumed")?.seq ?? Number.POSITIVE_INFINITY;
  const began = entries[0]?.at ?? 0;
  const rows = [...run.steps.values()].map((step) => {
    const seconds = ((step.started.at - began) / 1_000).toFixed(2);
    return row(`${seconds} s`, what(run, step), inFirst(step, recovered), inSecond(step, recovered));
  });
  return [dim(row("", "", "1st server", "2nd server")), ...rows];
}

function row(at: string, step: string, first: string, second: string): string {
  return `${at.padStart(8)}  ${step.padEnd(WIDTH)}  ${first.padEnd(12)} ${second}`;
}
const WIDTH = 34;

function inFirst({ started, finished }: StepState, recovered: number): string {
  if (started.seq > recovered) return "";
  return finished !== undefined && finished.seq < recovered ? "ran" : "ran, killed";
}

function inSecond({ started, finished, asked }: StepState, recovered: number): string {
  if (finished === undefined) return red("unfinished");
  if (finished.seq < recovered) return dim("replayed from the log");
  const answers = asked.map(({ answer }) =>
    answer?.status === "resolved" ? "asked, answered, " : "asked, not answered, ",
  );
  return answers.join("") + outcome(started.seq < recovered, finished);
}

function outcome(isAgain: boolean, { status, via }: NonNullable<StepState["finished"]>): string {
  if (status !== "ok") return red(status);
  if (via === "reconcile") return green("reconciled: applied, not run again");
  if (via === "dedup") return green("done before, not run again");
  return isAgain ? "ran again" : "ran";
}

function what({ messages }: RunState, { started, finished }: StepState): string {
  if (started.step !== "tool") {
    const { data } = Said.safeParse(finished?.status === "ok" ? finished.output : undefined);
    return shortened(data?.text ? `${started.name} "${data.text}"` : started.name, WIDTH);
  }
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const args = calls.find(({ id }) => id === started.toolCallId)?.function.arguments ?? "{}";
  const { orderId, cents } = Arguments.parse(JSON.parse(args));
  const words = [started.name, orderId, cents === undefined ? undefined : euros(cents), `(${started.effect})`];
  return words.filter(Boolean).join(" ");
}
const Said = z.object({ text: z.string() });
const Arguments = z.object({ orderId: z.string().optional(), cents: z.number().optional() });
