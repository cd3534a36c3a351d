/** Sends the signals of a script to code that waits for them: one for each wait, over as many processes as it takes. */
import type { Entry } from "../log/entries.ts";
import type { Path, Uid } from "../protocol/words.ts";
import { signalOf } from "../runtime/body-record.ts";
import type { EventStore, Inbox } from "../store/store.ts";
import type { Life } from "./life.ts";
import { type Look, MatrixScriptError, type ScriptSignals } from "./script.ts";

/** Waits of a run for signals of one name. */
interface Waits {
  readonly uid: Uid;
  /** Whether no driver has the run. */
  readonly rests: boolean;
  readonly name: string;
  /** How many of that name have come so far. */
  readonly come: number;
  /** How many more it takes until nothing waits. */
  readonly due: number;
}

export class Signaller<W> {
  readonly #signals: ScriptSignals<W>;
  readonly #look: Look<W>;
  readonly #life: () => Life | undefined;
  /** By run, its last entry when nothing was due. */
  readonly #quiet = new Map<Uid, number>();
  #last: Promise<boolean> = Promise.resolve(false);
  #isStopped = false;

  /** @param life - the process that is there, dead or alive */
  constructor(signals: ScriptSignals<W>, look: Look<W>, life: () => Life | undefined) {
    this.#signals = signals;
    this.#look = look;
    this.#life = life;
  }

  /** Sends what is waited for until the work has ended. @throws what it throws, and {@link MatrixScriptError} */
  async during<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
    };
    work.then(end, end);
    while (!isOver && !this.#isStopped) {
      await this.pass();
      await new Promise((resolve) => setImmediate(resolve));
    }
    return await work;
  }

  /** Nothing is sent any more. */
  stop(): void {
    this.#isStopped = true;
  }

  /**
   * Sends what is waited for by runs that rest: what came earlier would come at another point of each play.
   *
   * @returns whether anything is waited for, sent or not yet
   * @throws {@link MatrixScriptError}
   */
  pass(): Promise<boolean> {
    // One after the other, or two would send the same.
    const pass = this.#last.then(() => this.#pass());
    this.#last = pass.catch(() => false);
    return pass;
  }

  async #pass(): Promise<boolean> {
    const life = this.#life();
    if (life === undefined || !life.isServing) return false;
    const waits = await signalsDue(life.mortal.below, this.#quiet);
    const known = waits.filter(({ name }) => Object.hasOwn(this.#signals, name));
    for (const { uid, name, come, due, rests } of known) {
      for (let nth = come; rests && life.isServing && nth < come + due; nth++) await this.#send(life, uid, name, nth);
    }
    return known.length > 0;
  }

  /** A process that dies meanwhile has taken it or has not: the next look says which. */
  async #send(life: Life, uid: Uid, name: string, nth: number): Promise<void> {
    const given = this.#signals[name];
    const payload = (typeof given === "function" ? given(this.#look, nth) : given) ?? null;
    const headers = { "content-type": "application/json" };
    const sent = life
      .fetch(`http://localhost/runs/${uid}/signals/${encodeURIComponent(name)}`, {
        ...{ method: "POST", headers, body: JSON.stringify(payload) },
      })
      .catch((error: unknown) => {
        if (!life.mortal.isDead) throw error;
      });
    const response = await Promise.race([sent, life.mortal.died]);
    if (!(response instanceof Response) || life.mortal.isDead || response.ok) return;
    const why = `${response.status} ${await response.text()}`;
    throw new MatrixScriptError(`the signal "${name}" is refused for run ${uid}: ${why}`);
  }
}

/** What a script lacks that runs wait for, as the rest of a sentence. */
export async function unsent(store: EventStore, signals: ScriptSignals<never> = {}): Promise<string> {
  return (await signalsDue(store))
    .filter(({ name }) => !Object.hasOwn(signals, name))
    .map(({ uid, name }) => `; run ${uid} waits for the signal "${name}": add what is sent to the script's \`signals\``)
    .join("");
}

/**
 * What the unfinished runs of a store wait for.
 *
 * @param quiet - by run, its last entry when nothing was due: it is not read again before it has moved
 */
async function signalsDue(store: EventStore, quiet = new Map<Uid, number>()): Promise<readonly Waits[]> {
  const all: Waits[] = [];
  for (const { uid, head, owner, outcome, aside } of (await store.runs({ tenant: "local", limit: 500 })).items) {
    if (outcome !== null || aside !== null || quiet.get(uid) === head) continue;
    // What is taken from the inbox while the log is read counts twice then: less is sent, and the next look sends it.
    const inbox = await store.inbox(uid);
    const log: Entry[] = [];
    for await (const entry of store.read(uid, -1)) log.push(entry);
    const waits = waitsOf(log, inbox).map((wait) => ({ ...wait, uid, rests: owner === null }));
    if (waits.length === 0 && inbox.length === 0) quiet.set(uid, log.at(-1)?.seq ?? -1);
    all.push(...waits);
  }
  return all;
}

function waitsOf(log: readonly Entry[], inbox: readonly Inbox[]): readonly Omit<Waits, "uid" | "rests">[] {
  const open = new Map<Path, string>();
  /** By name: what has come, and nobody has received. */
  const [come, left] = [new Map<string, number>(), new Map<string, number>()];
  const count = (counts: Map<string, number>, name: string, by: number) =>
    counts.set(name, (counts.get(name) ?? 0) + by);
  const comes = (name: string): void => {
    for (const counts of [come, left]) count(counts, name, 1);
  };
  for (const entry of log) {
    if (entry.kind === "step.started" && entry.step === "signal") open.set(entry.path, entry.name);
    const name = entry.kind === "step.finished" ? open.get(entry.path) : undefined;
    if (entry.kind === "step.finished" && name !== undefined) {
      open.delete(entry.path);
      if (entry.status === "ok") count(left, name, -1);
    }
    const signal = signalOf(entry);
    if (signal !== undefined) comes(signal.name);
  }
  for (const item of inbox) {
    if (item.kind !== "signal") continue;
    const signal = signalOf({ kind: "inbox.taken", item: item.kind, payload: item.payload, by: item.by });
    if (signal !== undefined) comes(signal.name);
  }
  const names = [...open.values()];
  return [...new Set(names)].flatMap((name) => {
    const due = names.filter((one) => one === name).length - (left.get(name) ?? 0);
    return due > 0 ? [{ name, come: come.get(name) ?? 0, due }] : [];
  });
}
