/** Those who answer a random agent: in any order, here and there, each who he is, again, too late, and sometimes not the truth. */
import fc from "fast-check";
import type { Reply } from "../../src/emit/types.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Principal } from "../../src/protocol/words.ts";
import type { Others, Said, Send } from "../../src/testing/play.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import { posts } from "./asking.ts";
import { callsOf, type NamedCall, type Plan, rowOf } from "./random-agents.ts";
import { RandomWorld } from "./random-world.ts";
import type { World } from "./world.ts";

/** The scope that some approvals ask for. */
export const OFFICER = "officer";

const PEOPLE = {
  user: { tenant: "local", subject: "local", scopes: ["*"] },
  admin: { tenant: "local", subject: "admin", scopes: ["*"] },
  officer: { tenant: "local", subject: "officer", scopes: ["answer", OFFICER] },
  reader: { tenant: "local", subject: "local", scopes: [] },
  stranger: { tenant: "local", subject: "stranger", scopes: ["answer"] },
  foreigner: { tenant: "elsewhere", subject: "local", scopes: ["*"] },
} satisfies { readonly [name: string]: Principal };
type Who = keyof typeof PEOPLE;

const isKnown = (who: string): who is Who => Object.hasOwn(PEOPLE, who);

export function authorize(request: Request): Principal | null {
  const who = request.headers.get("x-who") ?? "user";
  return isKnown(who) ? PEOPLE[who] : null;
}

/** Somebody's word beside the one that counts. */
interface Aside {
  readonly who: "user" | "admin" | "reader" | "stranger" | "foreigner";
  readonly says: "the same" | "the opposite" | "nonsense";
  readonly at: "inbox" | "resume";
  readonly when: "before" | "after";
}

/** One who answers. */
interface Human {
  /** Who says it first, and where: the client, another tab of the same user, or somebody in the inbox. */
  readonly first: "client" | "tab" | "user" | "admin" | "officer";
  readonly cannotTell: boolean;
  /** Waits until a write has ended before he says anything about it. */
  readonly isPatient: boolean;
  readonly lies: boolean;
  readonly asides: readonly Aside[];
  /** Turns of the event loop before he says it. */
  readonly turns: number;
}

/** For each question, by its id; and whether those of one time are answered in their order. */
export interface Crowd {
  readonly humans: readonly Human[];
  readonly isBackwards: boolean;
}

export const frankHuman: Human = {
  ...{ first: "client", cannotTell: false, isPatient: true, lies: false, turns: 0, asides: [] },
};

const rarely = fc.nat(5).map((n) => n === 0);

const human: fc.Arbitrary<Human> = fc.record({
  first: fc.constantFrom("client", "client", "tab", "user", "admin", "officer"),
  cannotTell: rarely,
  isPatient: fc.boolean(),
  lies: rarely,
  asides: fc.array(
    fc.record({
      who: fc.constantFrom("user", "admin", "reader", "stranger", "foreigner"),
      says: fc.constantFrom("the same", "the opposite", "nonsense"),
      at: fc.constantFrom("inbox", "resume"),
      when: fc.constantFrom("before", "after"),
    }),
    { maxLength: 3 },
  ),
  turns: fc.nat(12),
});

export const randomCrowd: fc.Arbitrary<Crowd> = fc.record({
  humans: fc.array(human, { minLength: 1, maxLength: 6 }),
  isBackwards: fc.boolean(),
});

export function humanFor({ crowd: { humans } }: Pick<Plan, "crowd">, { interrupt }: ScriptQuestion): Human {
  const sum = Array.from(interrupt.id).reduce((hash, char) => (hash * 31 + char.charCodeAt(0)) % 9973, 7);
  return humans[sum % humans.length] ?? frankHuman;
}

/** What is said of a question by those who decide it. */
export function answerTo(plan: Plan, question: ScriptQuestion, world: World): Reply {
  const name = question.tool;
  const call = callsOf(plan).find((one) => one.name === name);
  if (question.kind === "unknown-write") {
    RandomWorld.of(world).answered.add(name);
    return { status: "resolved", payload: didIt(plan, question, world, call) };
  }
  if (question.kind !== "approval") return { status: "resolved", payload: { ok: name } };
  if (call?.approval === "reject") return { status: "resolved", payload: { approved: false, reason: "no" } };
  const edited = call?.approval === "edit" ? { editedArgs: { name, note: "edited" } } : {};
  return { status: "resolved", payload: { approved: true, ...edited } };
}

function didIt(plan: Plan, question: ScriptQuestion, world: World, call: NamedCall | undefined): Json {
  const lives = RandomWorld.of(world);
  const human = humanFor(plan, question);
  const name = question.tool;
  const isDone = world.count(rowOf(name)) > 0;
  const yes = { did: "yes", output: { ok: name } };
  if (human.cannotTell) return { did: "unknown" };
  // He might wait for ever for one that does not end.
  if (!isDone && lives.isHanging(name)) return { did: "unknown" };
  // A lie about what another end would have brought tells another story, so only such are told that do not.
  const isHarmless = call?.suspends === "no" && call.fails !== "for ever" && !lives.isRunning(name);
  if (!human.lies || !isHarmless) return isDone ? yes : { did: "no" };
  if (!isDone) {
    lives.invented.add(name);
    return yes;
  }
  lives.lied(name, question.interrupt.id);
  return { did: "no" };
}

/** Whether a human says of this unknown write that nobody can tell: then its step ends so, in whatever order things happened. */
export function isGivenUp(plan: Plan, question: ScriptQuestion): boolean {
  const call = callsOf(plan).find(({ name }) => name === question.tool);
  return humanFor(plan, question).cannotTell || call?.outruns?.ends === "never";
}

/** The people of a plan, as a play meets them. */
export function othersOf(plan: Plan, world: World): Others {
  const lives = RandomWorld.of(world);
  let tabs = 0;
  const decided = new Map<string, Reply>();
  const resume = (send: Send, who: Who, { interrupt }: ScriptQuestion, { status, payload }: Reply) => {
    tabs += 1;
    return send(
      "/agents/random",
      from(who, {
        ...{ threadId: "thread", runId: `tab-${tabs}`, messages: [], tools: [], context: [], forwardedProps: {} },
        ...{ state: {}, resume: [{ interruptId: interrupt.id, status, ...(payload !== undefined && { payload }) }] },
      }),
    );
  };
  const inInbox = (send: Send, who: Who, { interrupt }: ScriptQuestion, reply: Reply) =>
    send(`/inbox/${encodeURIComponent(interrupt.id)}`, from(who, reply));

  /** The word that counts. One that comes too early, or too late, the client says in its turn. */
  const decides = async (question: ScriptQuestion, say: (question: ScriptQuestion) => Reply, send: Send) => {
    const { first } = humanFor(plan, question);
    if (first === "client") return;
    const reply = say(question);
    // An officer may answer what asks for one, and nothing else of a user's.
    const asksForOne = callsOf(plan).some(({ name, audience }) => name === question.tool && audience);
    const isHis = question.kind === "approval" && asksForOne;
    const response =
      first === "tab"
        ? await resume(send, "user", question, reply)
        : await inInbox(send, first === "officer" && !isHis ? "user" : first, question, reply);
    const code = response.ok ? null : await codeOf(response);
    if (code === "STILL_RUNNING") lives.hasty += 1;
    else {
      decided.set(question.interrupt.id, reply);
      lives.told.push({ expected: [200, 409], status: response.status, who: `${first}, who decides (${code})` });
    }
    await response.body?.cancel();
  };

  const aside = async (question: ScriptQuestion, reply: Reply, one: Aside, send: Send): Promise<void> => {
    const isFirst = one.when === "before" && !decided.has(question.interrupt.id);
    const isOwner = one.who === "user" || one.who === "admin";
    // Before the word that counts nobody may take its place.
    if (isFirst && isOwner && one.says !== "nonsense") return;
    const given = one.says === "the same" ? reply : one.says === "the opposite" ? opposite(question, reply) : NONSENSE;
    // Another subject's threads are other threads.
    const isInbox = one.at === "inbox" || PEOPLE[one.who].subject !== "local" || one.who === "foreigner";
    const response = await (isInbox ? inInbox : resume)(send, one.who, question, given);
    lives.told.push({
      expected: expected(one, isFirst),
      status: response.status,
      who: `${one.who} with ${one.says} ${isInbox ? "in the inbox" : "by resume"} ${one.when}`,
    });
    await response.body?.cancel();
  };

  const inOrder = <T>(all: readonly T[]) => (plan.crowd.isBackwards ? [...all].reverse() : all);
  const asides = async (all: readonly Said[], when: Aside["when"], send: Send): Promise<void> => {
    for (const { question, reply } of inOrder(all)) {
      const said = decided.get(question.interrupt.id) ?? reply;
      for (const one of humanFor(plan, question).asides) if (one.when === when) await aside(question, said, one, send);
    }
  };
  /** Whether what he sees is what there is until he has said it. */
  const isSure = ({ tool }: ScriptQuestion): boolean =>
    !lives.isRunning(tool) || lives.isHanging(tool) || lives.turnsLeft(tool) > MARGIN;
  const makesUpHisMind = async (question: ScriptQuestion): Promise<void> => {
    const { isPatient } = humanFor(plan, question);
    const isOver = () => !lives.isRunning(question.tool) || lives.isHanging(question.tool);
    // A body that has died with its process does not end.
    for (let i = 0; i < LONGEST && !(isPatient ? isOver() : isSure(question)); i++) await turns(1);
    // What has just ended is not written down yet.
    if (isPatient) await turns(PATIENCE);
  };
  return {
    async before(questions, say, send) {
      for (const question of inOrder(questions)) {
        await turns(humanFor(plan, question).turns);
        await makesUpHisMind(question);
        await decides(question, say, send);
      }
      await asides(
        questions.map((question) => ({ question, reply: say(question) })),
        "before",
        send,
      );
      for (let i = 0; i < LONGEST && !questions.every(isSure); i++) await turns(1);
    },
    after: (said, send) => asides(said, "after", send),
  };
}

/** Turns of the event loop: until an end is written down, and until what is said is taken. */
const PATIENCE = 60;
const MARGIN = 20;
const LONGEST = 250;

const turns = async (n: number): Promise<void> => {
  for (let i = 0; i < n; i++) await new Promise((resolve) => setImmediate(resolve));
};

function from(who: Who, body: object): RequestInit {
  const headers = new Headers(posts(body).headers);
  headers.set("x-who", who);
  return { ...posts(body), headers };
}

async function codeOf(response: Response): Promise<string> {
  return ((await response.clone().json()) as { error: { code: string } }).error.code;
}

const NONSENSE: Reply = { status: "resolved", payload: "what?" };

/** Another answer that the question would take. */
function opposite({ kind, tool }: ScriptQuestion, { payload }: Reply): Reply {
  const said = (payload ?? {}) as { readonly did?: string; readonly approved?: boolean };
  switch (kind) {
    case "unknown-write":
      return { status: "resolved", payload: said.did === "no" ? { did: "yes", output: { ok: tool } } : { did: "no" } };
    case "approval":
      return { status: "resolved", payload: { approved: said.approved !== true } };
    default:
      return { status: "resolved", payload: { ok: "something else" } };
  }
}

/** The statuses that an aside may get. A question that a late end has closed is in conflict with whatever is said of it. */
function expected({ who, says }: Aside, isFirst: boolean): readonly number[] {
  const isOpen = isFirst;
  if (who === "stranger" || who === "foreigner") return [404];
  if (who === "reader") return isOpen ? [403, 409] : [200, 403, 409];
  if (isOpen) return [422, 409];
  return says === "the same" ? [200, 409] : [409];
}
