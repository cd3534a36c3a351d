import type { Agent } from "../runtime/agent-definition.ts";
import { boundaryOf, type StepNames, stepNames } from "./boundary.ts";
import { type Difference, differencesOf, givenUp } from "./compare.ts";
import type { EndOfLife, Fate } from "./life.ts";
import { type Disk, memoryDisk } from "./outside.ts";
import { type Ended, PlayStuckError, play, type Story } from "./play.ts";
import { type Boundary, CrashReport, type Played } from "./report.ts";
import type { MatrixScript } from "./script.ts";

/** How {@link crashMatrix} plays an agent, and what it looks at. */
export interface CrashMatrixOptions<W = undefined> {
  /** What the outside does. Default: one message, "go", and nobody to answer. */
  readonly script?: MatrixScript<W>;
  /**
   * Makes the world outside of the processes, anew for each play: the fakes of the services that the tools call. It stays while processes die.
   * With fakes that are there once for all, empty them here.
   */
  readonly world?: () => W | Promise<W>;
  /**
   * What has happened in the world, in order, as the fakes have noted it: one text for each time that something happened. Equal texts are the
   * same effect happening again, so a text names all that matters: `refund A-1001 3000`.
   */
  readonly effects: (world: W) => Iterable<string>;
  /** Lets go of a world. */
  readonly dispose?: (world: W) => void | Promise<void>;
  /** Where the log is kept. Default: {@link memoryDisk}. */
  readonly disk?: () => Disk;
  /** Whether a run may fail where nobody dies. Default: that is a finding, and nothing is cut, because every play might fail alike. */
  readonly mayFail?: boolean;
  /** Which places to cut at. Default: all. */
  readonly cuts?: (boundary: Boundary) => boolean;
  /** At most so many cuts, spread evenly over all. */
  readonly limit?: number;
  /**
   * How many processes may die in one play. With 2, each cut is followed by a second one after each commit of the process that recovers: that
   * is the square of the plays. Default 1.
   */
  readonly deaths?: number;
  /**
   * How long nothing may happen in a play, and how long a body may outlive its process, before that is a finding; ten times that is how long a
   * play may last at all. Milliseconds; default 5,000.
   */
  readonly patience?: number;
  /**
   * How many plays go on at once. More than one saves time where bodies wait, for example for a back-off, and needs a `world` that shares nothing
   * with any other. Default 1.
   */
  readonly concurrency?: number;
  /** Called after each play. `total` grows with `deaths`. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void;
}

/** An agent; or what makes one for each process, so that nothing that it remembers survives its death. */
export type MatrixAgent<W> = Agent | ((world: W) => Agent | Promise<Agent>);

const PATIENCE = 5_000;
/** After so many plays without an end the rest would only cost time. */
const STUCK_ENOUGH = 5;

/**
 * Runs an agent through a conversation and kills its process everywhere: before and after every commit to the store, and in each body (the
 * tools' `call`, `resume`, `reconcile` and `approval`, the model, and the code of a custom loop) before its first line, at each operation on its `ctx`, at each
 * {@link cutHere} and after its last line. After each cut another process opens the store and goes on, the front end asks again, and what came
 * of it is held against two plays that were not cut: the effects in the world, the facts in the log, and what the client shows.
 *
 * Processes are played in this one: clock, randomness and run ids are injected, the store stops doing what a dead process asks for, and what
 * it emits is dropped. A kill fires no signal, so a body that was running goes on; the next process begins when it has ended, or has come to a
 * `cutHere()`, behind which a dead process does nothing. A body that does neither in time is a finding.
 *
 * ```ts
 * const report = await crashMatrix((bank: Bank) => desk(bank), {
 *   world: () => new Bank(),
 *   effects: (bank) => bank.transfers.map(({ order, cents }) => `refund ${order} ${cents}`),
 *   script: { answers: [{ kind: "approval", reply: { status: "resolved", payload: { approved: true } } }] },
 * });
 * report.assertNoFindings();
 * ```
 *
 * The world is one object that `world()` makes for each play, because an effect counts only if it outlives the process that had it, and must
 * not outlive the play. The agent is best a function of it: then each process gets a new one, as a real one does. How often an effect happened
 * is read off the world alone; the log is not asked.
 *
 * @param agent - one with a `model`, or one with a `run(ctx)`, which is cut at each operation on its context, too
 * @throws {@link MatrixScriptError} when the script does not even get through without a cut, `RequestRefused` when the server refuses it
 */
export async function crashMatrix<W = undefined>(
  agent: MatrixAgent<W>,
  options: CrashMatrixOptions<W>,
): Promise<CrashReport> {
  const {
    script = {},
    world = () => undefined as W,
    effects,
    dispose,
    disk = memoryDisk,
    patience = PATIENCE,
  } = options;
  const story: Story<W> = {
    ...{ script, disk, patience, hopeless: new Set<string>() },
    async stage() {
      const made = await world();
      return {
        world: made,
        agent: async () => (typeof agent === "function" ? await agent(made) : agent),
        effects: () => [...effects(made)],
        dispose: async () => await dispose?.(made),
      };
    },
  };
  return await matrixOf(story, options);
}

type Choice = Pick<CrashMatrixOptions, "mayFail" | "cuts" | "limit" | "deaths" | "concurrency" | "onProgress">;

/** What came of a play, and how many commits its last process made. */
interface Outcome {
  readonly played: Played;
  readonly commits: number;
}

/** {@link crashMatrix} of a story. */
export async function matrixOf<W>(story: Story<W>, choice: Choice = {}): Promise<CrashReport> {
  return await new Matrix(story, choice).report();
}

class Matrix<W> {
  readonly #story: Story<W>;
  readonly #choice: Choice;
  readonly #played: Played[] = [];
  #done = 0;
  #stuck = 0;
  #total = 2;
  #skipped = 0;

  constructor(story: Story<W>, choice: Choice) {
    this.#story = story;
    this.#choice = choice;
  }

  async report(): Promise<CrashReport> {
    const agent = await this.#agentName();
    const reference = await this.#reference();
    if (reference !== undefined) await this.#cut(reference);
    return new CrashReport(agent, this.#played, this.#skipped, reference?.effects ?? []);
  }

  async #agentName(): Promise<string> {
    const stage = await this.#story.stage();
    const { name } = await stage.agent();
    await stage.dispose();
    return name;
  }

  /** Two plays without a cut: what differs between them no cut has done, nor that it fails. */
  async #reference(): Promise<Ended | undefined> {
    try {
      const [first, second] = [await play(this.#story), await play(this.#story)];
      const failures = this.#choice.mayFail === true ? [] : failuresOf(first);
      const differences = failures.length > 0 ? failures : differencesOf(first, second);
      this.#note({ cut: [], differences: [], gaveUp: false }, { cut: [], differences, gaveUp: false });
      return differences.length === 0 ? first : undefined;
    } catch (error) {
      if (!(error instanceof PlayStuckError)) throw error;
      // What is wrong with the script is no finding.
      if (error.cause instanceof Error && !(error.cause instanceof AggregateError)) throw error.cause;
      this.#note({ cut: [], differences: [noEnd(error)], gaveUp: false });
      return undefined;
    }
  }

  async #cut(reference: Ended): Promise<void> {
    const { deaths = 1, limit = Number.POSITIVE_INFINITY } = this.#choice;
    let left = limit;
    let due = this.#firstCuts(reference);
    for (let depth = 1; depth <= deaths && due.length > 0; depth++) {
      const chosen = spread(due, left);
      left -= chosen.length;
      this.#total += chosen.length;
      this.#skipped += due.length - chosen.length;
      const outcomes = await this.#playEach(reference, chosen);
      due = [];
      for (const [i, fates] of chosen.entries()) {
        const outcome = outcomes[i];
        if (outcome === undefined) {
          this.#skipped += 1;
          continue;
        }
        this.#played.push(outcome.played);
        for (let nth = 1; depth < deaths && nth <= outcome.commits; nth++)
          due.push([...fates, { when: "after", commits: nth }]);
      }
      if (this.#stuck >= STUCK_ENOUGH) return;
    }
  }

  /** @returns what came of each, in their order; nothing of those that were not played any more */
  async #playEach(reference: Ended, chosen: readonly (readonly Fate[])[]): Promise<readonly (Outcome | undefined)[]> {
    const outcomes: (Outcome | undefined)[] = chosen.map(() => undefined);
    const left = chosen.entries();
    const playing = Array.from({ length: this.#choice.concurrency ?? 1 }, async () => {
      try {
        for (const [i, fates] of left) {
          outcomes[i] = await this.#play(reference, fates);
          this.#tell();
          if (this.#stuck >= STUCK_ENOUGH) return;
        }
      } catch (error) {
        for (const _ of left); // nothing more is begun
        throw error;
      }
    });
    for (const ended of await Promise.allSettled(playing)) if (ended.status === "rejected") throw ended.reason;
    return outcomes;
  }

  #firstCuts(reference: Ended): (readonly Fate[])[] {
    const names = stepNames(reference);
    const { cuts = () => true } = this.#choice;
    const wanted = (end: EndOfLife): boolean => cuts(boundaryOf(end, names));
    const appends = reference.commits.flatMap((commit, i) =>
      (["before", "after"] as const).flatMap((when): Fate[] =>
        wanted({ commit, when, nth: i + 1 }) ? [{ when, commits: when === "before" ? i : i + 1 }] : [],
      ),
    );
    const places = reference.visits.flatMap(({ place, times }) =>
      Array.from({ length: times }, (_, i) => i + 1).flatMap((nth): Fate[] =>
        wanted({ place, nth }) ? [{ at: place.key, nth }] : [],
      ),
    );
    return [...appends, ...places].map((fate) => [fate]);
  }

  async #play(reference: Ended, fates: readonly Fate[]): Promise<Outcome> {
    try {
      const ended = await play(this.#story, fates);
      const differences = differencesOf(reference, ended);
      const cut = cutOf(ended.deaths, stepNames(ended));
      return {
        played: { cut, differences, gaveUp: givenUp(ended) > givenUp(reference) },
        commits: ended.commits.length,
      };
    } catch (error) {
      if (!(error instanceof PlayStuckError)) throw error;
      this.#stuck += 1;
      const cut = cutOf(error.deaths, stepNames(reference));
      return { played: { cut, differences: [noEnd(error)], gaveUp: false }, commits: 0 };
    }
  }

  #note(...played: readonly Played[]): void {
    this.#played.push(...played);
    this.#tell(played.length);
  }

  #tell(done = 1): void {
    this.#done += done;
    this.#choice.onProgress?.({ done: this.#done, total: this.#total });
  }
}

const cutOf = (deaths: readonly EndOfLife[], names: StepNames): readonly Boundary[] =>
  deaths.map((end) => boundaryOf(end, names));

function noEnd(error: PlayStuckError): Difference {
  const [body] = error.running;
  return {
    ...{ kind: "unexpected", turn: null, step: body?.step ?? null, tool: body?.tool ?? null },
    ...{ what: body === undefined ? "the play" : `${body.phase}`, expected: "comes to an end", found: error.message },
  };
}

function failuresOf({ runs, logs, reported }: Ended): readonly Difference[] {
  return runs.flatMap(({ outcome }, i): Difference[] => {
    if (outcome !== "failed") return [];
    const end = logs[i]?.findLast(({ kind }) => kind === "run.finished");
    const error = end?.kind === "run.finished" ? end.error : undefined;
    const causes = reported.length === 0 ? "" : `; reported: ${reported.map(String).join("; ")}`;
    return [
      {
        ...{ kind: "unexpected", turn: i + 1, step: null, tool: null, what: "the run", expected: "does not fail" },
        found: `it fails: ${error?.message ?? ""} (${error?.code ?? "without a word"})${causes}`,
      },
    ];
  });
}

/** So many of them, evenly spread. */
function spread<T>(items: readonly T[], limit: number): readonly T[] {
  if (items.length <= limit) return items;
  return Array.from({ length: Math.max(0, limit) }, (_, i) => items[Math.floor((i * items.length) / limit)] as T);
}
