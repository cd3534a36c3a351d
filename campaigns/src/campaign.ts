/**
 * A campaign: conversations of all scripts, twenty at a time, with a server that is killed in the middle of them, or over connections that are
 * cut, until enough was; then each is driven to its end and judged.
 *
 * - duplicate: an effect stands in the ledger more than once
 * - lost: a conversation that has not ended 10 s after the last start, that waits for what its script does not expect, or whose effect is missing
 * - wrong: a client that refuses what it is sent, or holds another transcript than one who talked to a server that nobody killed
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createRuntime, serve } from "perdure";
import type { HeldByClient } from "perdure/log";
import { agentsOf, scripts } from "./agents.ts";
import { bundleServer } from "./bundle.ts";
import { kinds } from "./clients.ts";
import { Conversation, type ConversationOptions, Fault, type FaultKind, unnamed } from "./conversation.ts";
import { CuttingProxy } from "./cutting-proxy.ts";
import { Ledger } from "./ledger.ts";
import { Random } from "./random.ts";
import { ServerProcess } from "./server-process.ts";

export interface CampaignOptions {
  readonly kind: "chaos" | "cuts";
  /** `chaos` ends after so many runs that a kill has caught, `cuts` after so many cut connections. */
  readonly count: number;
  /** And not before so many kills. */
  readonly kills?: number;
  readonly seed: string;
  /** A name of `breaks`: the campaign then ends with the first fault. */
  readonly broken?: string;
}

export interface Found {
  readonly kind: FaultKind;
  readonly conversation: string;
  readonly message: string;
}

export interface Report {
  readonly seed: string;
  readonly kills: number;
  /** Runs that lost their connection in the middle; without a proxy it was a kill that caught them. */
  readonly caught: number;
  readonly cuts: number;
  /** Steps about which an operator was asked, because three deaths in a row had caught them. */
  readonly poisoned: number;
  readonly conversations: number;
  readonly effects: number;
  readonly seconds: number;
  readonly faults: readonly Found[];
  /** What the servers have said last, when there are faults. */
  readonly complaints: readonly string[];
}

const IN_FLIGHT = 20;
/** How long a conversation may take after the last start. Milliseconds. */
const PATIENCE = 10_000;

export async function campaign(options: CampaignOptions): Promise<Report> {
  const folder = mkdtempSync(join(tmpdir(), "perdure-campaign-"));
  const program = await bundleServer(options.broken);
  const ledger = new Ledger(join(folder, "ledger"));
  const random = new Random(options.seed);
  const files = { program, store: join(folder, "runs.db"), ledger: join(folder, "ledger") };
  const server = new ServerProcess(files, options.seed);
  const loud = silenceClients();
  try {
    return await new Campaign(options, random, server, ledger, await uninterrupted()).run();
  } finally {
    loud();
    await server.kill();
    ledger.close();
    rmSync(folder, { recursive: true, force: true });
    rmSync(dirname(program), { recursive: true, force: true });
  }
}

class Campaign {
  readonly #begun = performance.now();
  readonly #faults: Found[] = [];
  readonly #over = new AbortController();
  #conversations = 0;
  #kills = 0;
  #caught = 0;
  #cuts = 0;
  #poisoned = 0;
  #hasEnough = false;
  #onKillDue: () => void = () => {};

  constructor(
    private readonly options: CampaignOptions,
    private readonly random: Random,
    private readonly server: ServerProcess,
    private readonly ledger: Ledger,
    private readonly expected: ReadonlyMap<string, HeldByClient>,
  ) {}

  async run(): Promise<Report> {
    await this.server.start();
    const working = Promise.all(Array.from({ length: IN_FLIGHT }, () => this.#work()));
    try {
      await this.#killAgainAndAgain(working);
    } catch (error) {
      // A server that does not start again is waited for by nobody.
      this.#over.abort();
      throw error;
    }
    const patience = setTimeout(() => this.#over.abort(), PATIENCE);
    await working;
    clearTimeout(patience);
    return this.#report();
  }

  /** Until it is enough. Leaves a server that nobody kills any more. */
  async #killAgainAndAgain(working: Promise<unknown>): Promise<void> {
    const random = this.random.fork("kills");
    while (!this.#isEnough()) {
      await Promise.race([this.#killDue(random), this.server.died, working]);
      await this.server.kill();
      this.#kills++;
      await this.server.start(random.chance(0.5) ? random.between(1, 8) : 0);
    }
    // The one that runs now may have an aim.
    await this.server.kill();
    await this.server.start();
  }

  #report(): Report {
    const faults = [...this.#faults, ...this.#duplicates(), ...this.#missing()];
    return {
      ...{ seed: this.options.seed, kills: this.#kills, caught: this.#caught, cuts: this.#cuts, faults },
      poisoned: this.#poisoned,
      conversations: this.#conversations,
      effects: this.ledger.effects().length,
      seconds: (performance.now() - this.#begun) / 1_000,
      complaints: faults.length > 0 ? this.server.complaints : [],
    };
  }

  /** Whether the count is reached; of a broken build, whether it is caught. */
  #isEnough(): boolean {
    const { kind, count, kills = 0, broken } = this.options;
    this.#hasEnough ||= (kind === "chaos" ? this.#caught : this.#cuts) >= count && this.#kills >= kills;
    if (broken !== undefined) this.#hasEnough ||= this.#faults.length > 0 || this.#duplicates().length > 0;
    return this.#hasEnough;
  }

  /** Kills fall at random times; where connections are cut, with some of the cuts. */
  #killDue(random: Random): Promise<void> {
    if (this.options.kind === "chaos") return pause(random.between(20, 1_500));
    return new Promise((resolve) => {
      this.#onKillDue = resolve;
    });
  }

  /** Conversations one after the other. */
  async #work(): Promise<void> {
    while (!this.#isEnough()) {
      const number = this.#conversations++;
      const random = this.random.fork(`conversation ${number}`);
      const proxy = this.options.kind === "cuts" ? await this.#proxy(random.fork("cuts")) : undefined;
      await this.#converse(number, random, proxy);
      proxy?.close();
    }
  }

  async #converse(number: number, random: Random, proxy: CuttingProxy | undefined): Promise<void> {
    const names = Object.entries(scripts);
    const [name, script] = names[number % names.length] ?? names[0] ?? [];
    if (name === undefined || script === undefined) throw new Error("there are no scripts");
    const options: ConversationOptions = {
      ...{ name, script, ledger: this.ledger, over: this.#over.signal },
      isAnsweredElsewhere: () => random.chance(0.2),
      onLost: () => {
        this.#caught++;
      },
      onPoisoned: () => {
        this.#poisoned++;
      },
      order: orderOf(number),
      client: random.pick(kinds),
      ...(proxy !== undefined && random.chance(0.3) && { onlooker: random.pick(kinds) }),
      base: `http://127.0.0.1:${proxy?.port ?? this.server.port}`,
    };
    const conversation = new Conversation(options);
    try {
      await conversation.run();
      const expected = this.expected.get(name);
      if (expected !== undefined) await conversation.judge(expected);
    } catch (error) {
      // What is no fault of the server's is one of this campaign's: it says where.
      const { kind, message } =
        error instanceof Fault
          ? error
          : {
              kind: "wrong" as const,
              message: error instanceof Error ? (error.stack ?? error.message) : String(error),
            };
      this.#faults.push({ kind, conversation: `${options.order} ${name} (${options.client})`, message });
      if (this.#isEnough()) this.#onKillDue();
    }
  }

  async #proxy(random: Random): Promise<CuttingProxy> {
    const kills = random.fork("kills");
    const proxy = new CuttingProxy(
      () => this.server.port,
      // Each size of ten has its share: heads are cut, first frames, and long streams; and some get through whole.
      () => Math.ceil(10 ** (random.next() * 3 + 2)),
      () => {
        this.#cuts++;
        if (kills.chance(1 / 15) || this.#isEnough()) this.#onKillDue();
      },
    );
    await proxy.listen();
    return proxy;
  }

  #duplicates(): Found[] {
    const times = new Map<string, number>();
    for (const { what } of this.ledger.effects()) times.set(what, (times.get(what) ?? 0) + 1);
    return [...times].flatMap(([what, n]): Found[] =>
      n === 1 ? [] : [{ kind: "duplicate", conversation: what, message: `it was done ${n} times` }],
    );
  }

  #missing(): Found[] {
    const done = new Set(this.ledger.effects().map(({ what }) => what));
    const names = Object.values(scripts);
    return Array.from({ length: this.#conversations }, (_, number) => number).flatMap((number) =>
      (names[number % names.length]?.effects(orderOf(number)) ?? [])
        .filter((what) => !done.has(what))
        .map((what): Found => ({ kind: "lost", conversation: what, message: "it was never done" })),
    );
  }
}

/** All of one length, and none a part of another. */
function orderOf(number: number): string {
  return `o${String(number).padStart(5, "0")}`;
}

/** The published clients write to the console whenever a stream is cut or taken back, which is all that happens here. @returns what undoes it */
function silenceClients(): () => void {
  const { error, warn } = console;
  console.error = console.warn = () => {};
  return () => Object.assign(console, { error, warn });
}

/** Each script as a published client sees it on a server that nobody kills. */
async function uninterrupted(): Promise<ReadonlyMap<string, HeldByClient>> {
  const folder = mkdtempSync(join(tmpdir(), "perdure-campaign-"));
  const ledger = new Ledger(join(folder, "ledger"));
  const agents = agentsOf({ ledger, pause: async () => {}, delayMs: 0 });
  const server = await serve(createRuntime({ agents }), { port: 0 });
  const held = new Map<string, HeldByClient>();
  try {
    for (const [name, script] of Object.entries(scripts)) {
      const order = `u${name}`;
      const over = new AbortController().signal;
      const common = { name, order, script, ledger, over, base: server.url } as const;
      const conversation = new Conversation({ ...common, client: "1.0.0" });
      await conversation.run();
      held.set(name, unnamed(conversation.held, order));
    }
  } finally {
    await server.close();
    ledger.close();
    rmSync(folder, { recursive: true, force: true });
  }
  return held;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
