/**
 * Plays a conversation with an agent to its end, while its process dies as often as it is told to.
 *
 * What is played is the real runtime behind its HTTP handler, and a front end that sends its request again whenever it was cut off.
 */

import type { Reply } from "../emit/types.ts";
import type { RuntimeOptions } from "../http/create-runtime.ts";
import type { Entry } from "../log/entries.ts";
import type { HeldByClient } from "../log/equal-transcripts.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Message, ResumeEntry } from "../protocol/events.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Agent } from "../runtime/agent-definition.ts";
import type { EventStore, Run } from "../store/store.ts";
import { type EndOfLife, type Fate, Life, nameOf } from "./life.ts";
import type { Commit } from "./mortal-store.ts";
import { type Disk, Outside } from "./outside.ts";
import { patiently } from "./patience.ts";
import type { Body, Place } from "./places.ts";
import {
  callOf,
  type Look,
  type MatrixScript,
  questionOf,
  replyTo,
  resultOf,
  type ScriptQuestion,
  type ScriptTurn,
} from "./script.ts";
import {
  type Asked,
  type Fetch,
  type Ran,
  ReducingClient,
  RequestRefused,
  type ScriptClient,
} from "./script-client.ts";
import { Signaller, unsent } from "./signaller.ts";

/** The world of one play. */
export interface Stage<W> {
  readonly world: W;
  /** The agent as the next process has it. */
  agent(): Agent | Promise<Agent>;
  /** What has happened, in order. */
  effects(): readonly string[];
  dispose(): void | Promise<void>;
}

/** What the client's user has said. */
export interface Said {
  readonly question: ScriptQuestion;
  readonly reply: Reply;
}

/** Sends a request until a server has answered it. */
export type Send = (path: string, init: RequestInit) => Promise<Response>;

/** Whoever has a say in a play beside the client's user. */
export interface Others {
  /** The client shows these, and its user has not made up his mind. @param say - what he would say now */
  before?(questions: readonly ScriptQuestion[], say: (question: ScriptQuestion) => Reply, send: Send): Promise<void>;
  /** He has said it. */
  after?(said: readonly Said[], send: Send): Promise<void>;
}

/** A conversation that can be played again and again. */
export interface Story<W> {
  readonly script: MatrixScript<W>;
  stage(): Stage<W> | Promise<Stage<W>>;
  readonly disk: () => Disk;
  readonly others?: (world: W) => Others;
  /** Default: everybody is the one local principal. */
  readonly authorize?: RuntimeOptions["authorize"];
  /** Who plays the front end. Default: a client of our own. */
  readonly client?: (agent: string, fetch: Fetch) => ScriptClient;
  /** How long nothing may happen, and how long a body may outlive its process. Milliseconds. */
  readonly patience: number;
  /** Bodies that are known to outlive their process for ever; they are not waited for again. */
  readonly hopeless: Set<string>;
}

export interface Ended<W = unknown> {
  readonly world: W;
  readonly effects: readonly string[];
  /** The runs of the thread, oldest first, and their logs. */
  readonly runs: readonly Run[];
  readonly logs: readonly (readonly Entry[])[];
  /** The runs that those have begun, and what they have begun, in the order of their beginning; and their logs. */
  readonly children: readonly { readonly run: Run; readonly log: readonly Entry[] }[];
  /** What the client holds that was there all the time. */
  readonly client: HeldByClient;
  /** What one holds that comes when all is over. */
  readonly late: HeldByClient;
  readonly openQuestions: number;
  readonly inbox: number;
  readonly deaths: readonly EndOfLife[];
  readonly visits: readonly { readonly place: Place; readonly times: number }[];
  /** Commits of the life that lived on. */
  readonly commits: readonly Commit[];
  /** Bodies that went on after their process had died, and did not end. */
  readonly leftBehind: readonly Body[];
  /** What the last process reported. */
  readonly reported: readonly unknown[];
}

/** A play came to no end. */
export class PlayStuckError extends PerdureError {
  override readonly name = "PlayStuckError";
  constructor(
    message: string,
    readonly deaths: readonly EndOfLife[],
    /** What was running then. */
    readonly running: readonly Body[],
    options?: ErrorOptions,
  ) {
    super("PLAY_STUCK", message, options);
  }
}

/** How often a front end sends one request. */
const TRIES = 40;

export async function play<W>(story: Story<W>, fates: readonly Fate[] = []): Promise<Ended<W>> {
  const stage = await story.stage();
  const disk = story.disk();
  const playing = new Play(story, stage, disk, fates);
  try {
    return await playing.orStuck(playing.signalled());
  } catch (error) {
    throw await playing.explained(error);
  } finally {
    playing.leave();
    await playing.orStuck(disk.remove());
    await playing.orStuck(Promise.resolve(stage.dispose()));
  }
}

class Play<W> {
  readonly #story: Story<W>;
  readonly #stage: Stage<W>;
  readonly #outside: Outside;
  readonly #fates: Fate[];
  readonly #deaths: EndOfLife[] = [];
  readonly #leftBehind = new Map<string, Body>();
  readonly #look: Look<W>;
  readonly #others: Others;
  #signaller: Signaller<W> | undefined;
  #life: Life | undefined;
  #name = "";
  #isOver = false;

  constructor(story: Story<W>, stage: Stage<W>, disk: Disk, fates: readonly Fate[]) {
    this.#story = story;
    this.#stage = stage;
    this.#outside = new Outside(disk);
    this.#fates = [...fates];
    this.#others = story.others?.(stage.world) ?? {};
    const { signals } = story.script;
    this.#look = {
      world: stage.world,
      effects: () => stage.effects(),
      happened: (effect) => stage.effects().includes(effect),
    };
    if (signals === undefined) return;
    this.#signaller = new Signaller(signals, this.#look, () => this.#life);
    this.#outside.beforeJump = () => this.#signaller?.pass() ?? Promise.resolve(false);
  }

  /** To its end, with the signals of its script. */
  signalled(): Promise<Ended<W>> {
    const ended = this.#toTheEnd();
    return this.#signaller?.during(ended) ?? ended;
  }

  async #toTheEnd(): Promise<Ended<W>> {
    await this.#alive();
    const { turns = ["go"] } = this.#story.script;
    const client = this.#newClient();
    const own: Message[] = [];
    const add = (message: Message): void => {
      own.push(message);
      client.add(message);
    };
    let asked: Asked | undefined;
    for (const [i, given] of turns.entries()) {
      const turn: ScriptTurn = typeof given === "string" ? { says: given } : given;
      add({ id: i === 0 ? "u" : `u${i + 1}`, role: "user", content: turn.says ?? "go" });
      asked = await this.#turn(client, turn, i + 1, asked, add);
    }
    if (asked === undefined)
      throw new PerdureError("MATRIX_SCRIPT", "the script has no turn; leave `turns` out, or say something");

    const late = this.#newClient();
    const last = asked;
    await this.#untilWhole(() => late.join(own, last));
    const ended = await this.#ended(client.held, late.held);
    const life = await this.#alive();
    // A body that is running would be waited for.
    if (life.running.length === 0) await life.runtime.close();
    return ended;
  }

  /** Nothing of it goes on from now. What hangs would hang closing, too; so what is left dies. */
  leave(): void {
    this.#isOver = true;
    this.#signaller?.stop();
    this.#life?.mortal.die();
    this.#life?.mortal.bury();
  }

  #newClient(): ScriptClient {
    const fetch: Fetch = (url, init) => this.#alive().then((life) => life.fetch(url, init));
    return this.#story.client?.(this.#name, fetch) ?? new ReducingClient(this.#name, fetch);
  }

  /** The process, or the next one where it has died. */
  async #alive(): Promise<Life> {
    for (;;) {
      const before = this.#life;
      if (before !== undefined) {
        if (!before.mortal.isDead) return before;
        await this.#bury(before);
      }
      const agent = await this.#stage.agent();
      if (this.#isOver) throw this.#stuck("the play is over");
      this.#name = agent.name;
      const life = new Life(this.#outside, this.#fates.shift() ?? null, agent, this.#story.authorize);
      this.#life = life;
      await life.open();
    }
  }

  async #bury(life: Life): Promise<void> {
    const { end } = life;
    if (end !== undefined) this.#deaths.push(end);
    this.#outside.progress += 1;
    const { patience, hopeless } = this.#story;
    for (const body of await life.bodiesEnded(patience, hopeless)) {
      this.#leftBehind.set(nameOf(body), body);
      hopeless.add(nameOf(body));
    }
    life.mortal.bury();
  }

  /** One turn, with all that is asked in it. @returns its last request */
  async #turn(
    client: ScriptClient,
    turn: ScriptTurn,
    ordinal: number,
    before: Asked | undefined,
    add: (message: Message) => void,
  ): Promise<Asked> {
    const { script } = this.#story;
    const { tools = [] } = script;
    let number = before === undefined ? 1 : Number(before.runId.slice(1)) + 1;
    let said: readonly Said[] = [];
    for (;;) {
      let asked: Asked = { runId: `r${number}`, resume: said.map(entryOf), tools, turn };
      const { questions, calls } = await this.#untilWhole(
        () => client.run(asked),
        async () => {
          const now = await this.#saidNow(said);
          said = now ?? said;
          asked = { ...asked, resume: said.map(entryOf) };
          return now !== undefined;
        },
      );
      if (said.length > 0) await this.#others.after?.(said, this.#send);
      if (questions.length === 0 && calls.length === 0) return asked;
      if (number > TRIES * ordinal) throw this.#stuck(`the client was asked ${TRIES} times in one turn`);
      number += 1;
      const { messages } = client.held;
      const asking = questions.map((interrupt) => questionOf(interrupt, messages));
      if (asking.length > 0) await this.#others.before?.(asking, (question) => this.#reply(question).reply, this.#send);
      const replies = asking.map((question) => ({ question, ...this.#reply(question) }));
      if (replies.some(({ cancelsRun }) => cancelsRun)) await this.#cancel();
      said = replies;
      for (const { question, reply } of said) {
        if (script.inInbox?.(question, this.#look)) await this.#post(inboxOf(question), reply);
      }
      for (const id of calls) {
        const call = callOf(messages, id);
        if (call === undefined) throw this.#stuck(`the client was left a call (${id}) that it does not hold`);
        add({ id: `result-of-${id}`, role: "tool", toolCallId: id, content: resultOf(script, call, this.#look) });
      }
    }
  }

  /**
   * Sends a request until its answer has an end.
   *
   * @param reconsider - called when it was refused @returns whether something else is to be sent now
   */
  async #untilWhole(send: () => Promise<Ran>, reconsider?: () => Promise<boolean>): Promise<Exclude<Ran, "cut">> {
    let refused: RequestRefused | undefined;
    for (let tries = 0; tries < TRIES; tries++) {
      const life = await this.#alive();
      refused = undefined;
      const ran = await send().catch((error: unknown) => {
        if (!(error instanceof RequestRefused)) throw error;
        refused = error;
        return "cut" as const;
      });
      if (ran !== "cut") {
        await this.#alive();
        return ran;
      }
      // Else the request failed although its server lives.
      if (life.mortal.isDead || (await this.#letGoOn(life)) || (await reconsider?.())) continue;
      throw refused ?? this.#stuck("a request failed while its server lived", life.reported);
    }
    throw refused ?? this.#stuck(`the client has sent one request ${TRIES} times and is not done`);
  }

  /** The operator has found out what took three processes down. @returns whether he was asked */
  async #letGoOn({ mortal }: Life): Promise<boolean> {
    const { items } = await mortal.below.questions({ tenant: "local" });
    const poisoned = items.filter(({ interrupt }) => interrupt.kind === "poisoned");
    for (const { interrupt, uid } of poisoned) {
      await this.#post(`/inbox/${encodeURIComponent(interrupt.id)}`, {
        status: "resolved",
        payload: { action: "go-on" },
      });
      await this.#until(async (store) => (await store.inbox(uid)).length === 0);
    }
    return poisoned.length > 0;
  }

  /**
   * What is to be said of questions, some of which something else may have closed: a write that ended after all closes its own. Whoever says
   * that a write was not done while it still runs looks again when it has ended. Undefined when nothing like that has happened.
   */
  async #saidNow(said: readonly Said[]): Promise<readonly Said[] | undefined> {
    // What has just ended is not written down yet.
    await new Promise((resolve) => setImmediate(resolve));
    for (const { question, reply } of said) if (saysNo(reply)) await this.#hasEnded(question);
    const closed = new Set<Said>();
    for (const one of said) if (await this.#isClosed(one.question)) closed.add(one);
    const isNews = said.some((one) => (closed.has(one) ? one.reply.status !== "cancelled" : saysNo(one.reply)));
    if (!isNews) return undefined;
    // All of them in one look, so that nothing ends between it and their being sent.
    return said.map((one) => {
      if (closed.has(one)) return { question: one.question, reply: { status: "cancelled" } };
      return saysNo(one.reply) ? { question: one.question, ...this.#reply(one.question) } : one;
    });
  }

  #reply(question: ScriptQuestion): { readonly reply: Reply; readonly cancelsRun: boolean } {
    const reply = replyTo(this.#story.script, question, this.#look);
    const cancelsRun = reply === "cancel-run";
    return { reply: cancelsRun ? { status: "cancelled" } : reply, cancelsRun };
  }

  async #isClosed({ interrupt }: ScriptQuestion): Promise<boolean> {
    const asked = await (await this.#alive()).mortal.below.question(interrupt.id);
    return asked !== null && asked.closed !== null;
  }

  /** Resolves when no body runs that a question is about. */
  async #hasEnded({ interrupt }: ScriptQuestion): Promise<void> {
    const asked = await (await this.#alive()).mortal.below.question(interrupt.id);
    if (asked === null) return;
    const runs = ({ running }: Life): boolean => running.some(({ step }) => step === asked.interrupt.path);
    while (runs(await this.#alive())) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Until a server that lives has taken it. */
  async #post(path: string, body: object): Promise<void> {
    const headers = { "content-type": "application/json" };
    const response = await this.#send(path, { method: "POST", headers, body: JSON.stringify(body) });
    if (!response.ok) throw this.#stuck(`the server refuses ${path}: ${response.status} ${await response.text()}`);
  }

  readonly #send: Send = async (path, init) => {
    for (let tries = 0; tries < TRIES; tries++) {
      const life = await this.#alive();
      const response = await life.fetch(`http://localhost${path}`, init).catch((error: unknown) => {
        if (!life.mortal.isDead) throw error;
      });
      if (response !== undefined && !life.mortal.isDead) return response;
    }
    throw this.#stuck(`${path} was asked for ${TRIES} times`);
  };

  async #cancel(): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const life = await this.#alive();
      const posted = life.fetch(`http://localhost/runs/${(await newestOf(life.mortal.below))?.uid}/cancel`, {
        method: "POST",
      });
      const status = await posted.then(
        (response) => response.status,
        () => null,
      );
      if (status === null) continue;
      await this.#until(async (store) => (await newestOf(store))?.outcome !== null);
      return;
    }
  }

  /** Over as many processes as it takes. */
  async #until(isSo: (store: EventStore) => Promise<boolean>): Promise<void> {
    while (!(await isSo((await this.#alive()).mortal.below))) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Gives up when nothing has happened for too long, or too much. */
  async orStuck<T>(going: Promise<T>): Promise<T> {
    return await patiently(going, {
      patience: this.#story.patience,
      progress: () => this.#outside.progress,
      stuck: (why) => this.#stuck(why, this.#life?.reported),
    });
  }

  /** What the script, or the world, has thrown, with the place where the play was cut, and what nobody has signalled. */
  async explained(error: unknown): Promise<PlayStuckError> {
    const why = error instanceof Error ? error.message : String(error);
    const store = this.#life?.mortal.below;
    const waits = store === undefined ? "" : await unsent(store, this.#story.script.signals).catch(() => "");
    if (error instanceof PlayStuckError && waits === "") return error;
    const known = error instanceof PlayStuckError ? error : undefined;
    return new PlayStuckError(`${why}${waits}`, this.#deaths, known?.running ?? [], {
      cause: known === undefined ? error : known.cause,
    });
  }

  #stuck(why: string, causes: readonly unknown[] = []): PlayStuckError {
    const running = this.#life?.running ?? [];
    const where = running.map(({ tool, phase, step }) => `\`${tool}\` (${phase}, step ${step})`).join(", ");
    const message = where === "" ? why : `${why}; what runs: ${where}`;
    const options = causes.length === 0 ? {} : { cause: new AggregateError(causes, "what the process reported") };
    return new PlayStuckError(message, this.#deaths, running, options);
  }

  async #ended(client: HeldByClient, late: HeldByClient): Promise<Ended<W>> {
    const { mortal, reported, commits } = await this.#alive();
    const { below } = mortal;
    const all = [...(await below.runs({ tenant: "local", limit: 500 })).items];
    const runs = all.filter(({ parent }) => parent === null).sort((a, b) => a.turn - b.turn);
    let inbox = 0;
    const logOf = async ({ uid }: Run): Promise<Entry[]> => {
      const log: Entry[] = [];
      for await (const entry of below.read(uid, -1)) log.push(entry);
      inbox += (await below.inbox(uid)).length;
      return log;
    };
    const logs: Entry[][] = [];
    for (const run of runs) logs.push(await logOf(run));
    const children: { run: Run; log: Entry[] }[] = [];
    for (const run of all.toReversed()) if (run.parent !== null) children.push({ run, log: await logOf(run) });
    return {
      ...{ world: this.#stage.world, effects: [...this.#stage.effects()], runs, logs, children },
      ...{ client, late, inbox, reported },
      openQuestions: (await below.questions({ tenant: "local" })).items.length,
      deaths: this.#deaths,
      visits: this.#outside.visits,
      commits,
      leftBehind: [...this.#leftBehind.values()],
    };
  }
}

/** The newest run of the thread. */
async function newestOf(store: EventStore): Promise<Run | undefined> {
  return (await store.runs({ tenant: "local", limit: 500 })).items.find(({ parent }) => parent === null);
}

function entryOf({ question, reply: { status, payload } }: Said): ResumeEntry {
  return { interruptId: question.interrupt.id, status, ...(payload !== undefined && { payload }) };
}

/** That a write was not done. */
function saysNo({ payload }: Reply): boolean {
  return isJsonObject(payload) && payload.did === "no";
}

function inboxOf({ interrupt }: ScriptQuestion): string {
  return `/inbox/${encodeURIComponent(interrupt.id)}`;
}
