/**
 * A day at the desk: one long conversation with an agent that is killed again and again, deployed anew in the middle, and asks a human now and then;
 * held against the same day without a kill.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { equalTranscripts, type HeldByClient } from "perdure/log";
import { bundleServer } from "../bundle.ts";
import { Conversation, difference, Fault, unnamed } from "../conversation.ts";
import { Ledger } from "../ledger.ts";
import { Random } from "../random.ts";
import { ServerProcess } from "../server-process.ts";
import { DEPLOYS, dayOf, memoryOf } from "./desk.ts";

export interface WorkdayOptions {
  readonly turns: number;
  readonly kills: number;
  readonly seed: string;
}

export interface Workday {
  readonly turns: number;
  readonly kills: number;
  /** Kills that a client has noticed in the middle of a run. */
  readonly caught: number;
  readonly deploys: number;
  /** Questions that a human has answered. */
  readonly answers: number;
  readonly effects: number;
  readonly seconds: number;
  readonly faults: readonly string[];
  readonly complaints: readonly string[];
}

/** How long a whole day may take. Milliseconds. */
const PATIENCE = 15 * 60_000;
const ORDER = "o00001";

export async function workday(options: WorkdayOptions): Promise<Workday> {
  const folder = mkdtempSync(join(tmpdir(), "perdure-workday-"));
  const program = await bundleServer(undefined, "workday/server.ts");
  try {
    const quiet = await new Day({ ...options, kills: 0 }, program, join(folder, "quiet")).spend();
    const killed = await new Day(options, program, join(folder, "killed")).spend();
    return {
      ...killed.report,
      faults: [...quiet.report.faults, ...killed.report.faults, ...differences(killed, quiet)],
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
    rmSync(dirname(program), { recursive: true, force: true });
  }
}

/** What a day has left behind. */
interface Spent {
  readonly report: Workday;
  readonly held: HeldByClient;
  /** What the MCP servers hold, by file. */
  readonly files: Readonly<Record<string, string>>;
}

class Day {
  readonly #begun = performance.now();
  readonly #random: Random;
  readonly #ledger: Ledger;
  readonly #server: ServerProcess;
  readonly #over = new AbortController();
  readonly #office: string;
  #version = 0;
  #kills = 0;
  #caught = 0;
  #answers = 0;
  #killing: Promise<void> = Promise.resolve();
  #restarting: Promise<void> = Promise.resolve();
  #isDeathMeant = false;

  constructor(
    private readonly options: WorkdayOptions,
    program: string,
    folder: string,
  ) {
    this.#office = join(folder, "office");
    mkdirSync(this.#office, { recursive: true });
    writeFileSync(join(this.#office, "memory.jsonl"), memoryOf(options.turns));
    this.#random = new Random(options.seed);
    this.#ledger = new Ledger(join(folder, "ledger"));
    const env = () => ({ DESK_FOLDER: this.#office, DESK_VERSION: String(this.#version) });
    const files = { program, store: join(folder, "runs.db"), ledger: join(folder, "ledger"), env };
    this.#server = new ServerProcess(files, options.seed);
  }

  async spend(): Promise<Spent> {
    const { turns } = this.options;
    const script = dayOf(turns);
    const patience = setTimeout(() => this.#over.abort(), PATIENCE);
    const faults: string[] = [];
    await this.#server.start();
    const conversation = new Conversation({
      ...{ name: "desk", order: ORDER, script, client: "1.0.0", base: `http://127.0.0.1:${this.#server.port}` },
      ...{ ledger: this.#ledger, over: this.#over.signal },
      onTurn: (i) => this.#turn(i),
      onLost: () => {
        this.#caught++;
      },
      onAnswer: () => {
        this.#answers++;
      },
    });
    try {
      await conversation.run();
      await this.#killing;
      await conversation.judge(unnamed(conversation.held, ORDER));
    } catch (error) {
      faults.push(error instanceof Fault ? `${error.kind}: ${error.message}` : String(error));
    } finally {
      clearTimeout(patience);
      this.#over.abort();
      await this.#killing;
      await this.#restarting;
      await this.#server.kill();
    }
    faults.push(...this.#effects(script.effects(ORDER)));
    const report = {
      ...{ turns, kills: this.#kills, caught: this.#caught, answers: this.#answers, deploys: this.#version, faults },
      effects: this.#ledger.effects().length,
      seconds: (performance.now() - this.#begun) / 1_000,
      complaints: faults.length > 0 ? this.#server.complaints : [],
    };
    this.#ledger.close();
    return { report, held: conversation.held, files: contentsOf(this.#office) };
  }

  /** A deploy, or a kill that falls into this turn or the next; they are spread evenly over the day. */
  async #turn(i: number): Promise<void> {
    const { turns, kills } = this.options;
    await this.#killing;
    if (DEPLOYS.includes(i)) {
      this.#version++;
      await this.#restart(0);
    }
    const due = Math.floor(((i + 1) * kills) / turns) - this.#kills;
    if (due > 0) this.#killing = this.#killSoon(due);
  }

  async #killSoon(times: number): Promise<void> {
    for (let i = 0; i < times; i++) {
      await pause(this.#random.between(20, 900));
      if (this.#kills >= this.options.kills) return;
      this.#kills++;
      // Every other one that begins now dies by itself, right behind an effect.
      await this.#restart(
        this.#kills < this.options.kills && this.#random.chance(0.5) ? this.#random.between(1, 2) : 0,
      );
    }
  }

  /** One restart at a time, whoever wants it. */
  #restart(aim: number): Promise<void> {
    this.#restarting = this.#restarting.then(async () => {
      this.#isDeathMeant = true;
      await this.#server.kill();
      this.#isDeathMeant = false;
      await this.#server.start(aim);
      if (aim === 0) return;
      void this.#server.died.then(() => {
        if (this.#isDeathMeant || this.#over.signal.aborted) return undefined;
        this.#kills++;
        return this.#restart(0);
      });
    });
    return this.#restarting;
  }

  /** @returns what stands in the ledger twice, or not at all */
  #effects(expected: readonly string[]): string[] {
    const times = new Map<string, number>();
    for (const { what } of this.#ledger.effects()) times.set(what, (times.get(what) ?? 0) + 1);
    const wrong = new Set([...expected.filter((what) => times.get(what) !== 1), ...times.keys()]);
    return [...wrong].flatMap((what) => {
      const n = times.get(what) ?? 0;
      const due = expected.includes(what) ? 1 : 0;
      return n === due ? [] : [`${what} was done ${n} times, not ${due}`];
    });
  }
}

function differences(killed: Spent, quiet: Spent): string[] {
  const files =
    JSON.stringify(killed.files) === JSON.stringify(quiet.files) ? [] : ["the MCP servers hold something else"];
  if (equalTranscripts(killed.held, quiet.held)) return files;
  return [...files, `the client ${difference(killed.held, quiet.held)}`];
}

function contentsOf(folder: string): Record<string, string> {
  const names = readdirSync(folder).sort();
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name), "utf8")]));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
