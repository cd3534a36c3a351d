import type { Message } from "../protocol/events.ts";
import { HeldMessages } from "../protocol/held-messages.ts";
import { newWire } from "../protocol/verify.ts";
import { LogError } from "./log-error.ts";
import type { RunState } from "./run-state.ts";
import { NOTHING_SPENT } from "./spending.ts";

type MapName = "steps" | "running" | "interrupts" | "answers" | "subagents" | "children";
export type Maps = Pick<RunState, MapName>;
/** What is neither a map of things nor reduced when asked for. */
export type Scalars = { -readonly [K in Exclude<keyof RunState, MapName | "messages" | "run">]: RunState[K] } & {
  run: RunState["run"] | undefined;
};

export function blank(messages: readonly Message[]): Scalars {
  return {
    run: undefined,
    head: -1,
    leg: null,
    lastLeg: null,
    legs: 0,
    request: null,
    finished: null,
    parked: null,
    cancelled: false,
    abandoned: false,
    spending: NOTHING_SPENT,
    memos: {},
    committed: {},
    shown: {},
    before: HeldMessages.of(messages),
    brought: [],
    held: HeldMessages.of(messages),
    wire: newWire({ messages, strict: true }),
  };
}

/** Written out, here and in {@link Folded}: a state is made for every frame that a model streams, and spreading takes ten times as long. */
export function scalarsOf(state: Scalars | RunState): Scalars {
  return {
    run: state.run,
    head: state.head,
    leg: state.leg,
    lastLeg: state.lastLeg,
    legs: state.legs,
    request: state.request,
    finished: state.finished,
    parked: state.parked,
    cancelled: state.cancelled,
    abandoned: state.abandoned,
    spending: state.spending,
    memos: state.memos,
    committed: state.committed,
    shown: state.shown,
    before: state.before,
    brought: state.brought,
    held: state.held,
    wire: state.wire,
  };
}

export class Folded implements RunState {
  readonly run: RunState["run"];
  readonly head: RunState["head"];
  readonly leg: RunState["leg"];
  readonly lastLeg: RunState["lastLeg"];
  readonly legs: RunState["legs"];
  readonly request: RunState["request"];
  readonly finished: RunState["finished"];
  readonly parked: RunState["parked"];
  readonly cancelled: RunState["cancelled"];
  readonly abandoned: RunState["abandoned"];
  readonly spending: RunState["spending"];
  readonly memos: RunState["memos"];
  readonly committed: RunState["committed"];
  readonly shown: RunState["shown"];
  readonly before: RunState["before"];
  readonly brought: RunState["brought"];
  readonly held: RunState["held"];
  readonly wire: RunState["wire"];
  readonly steps: Maps["steps"];
  readonly running: Maps["running"];
  readonly interrupts: Maps["interrupts"];
  readonly answers: Maps["answers"];
  readonly subagents: Maps["subagents"];
  readonly children: Maps["children"];

  constructor(now: Scalars, maps: Maps) {
    if (now.run === undefined) throw new LogError(null, "the log", "it has no entry");
    this.run = now.run;
    this.head = now.head;
    this.leg = now.leg;
    this.lastLeg = now.lastLeg;
    this.legs = now.legs;
    this.request = now.request;
    this.finished = now.finished;
    this.parked = now.parked;
    this.cancelled = now.cancelled;
    this.abandoned = now.abandoned;
    this.spending = now.spending;
    this.memos = now.memos;
    this.committed = now.committed;
    this.shown = now.shown;
    this.before = now.before;
    this.brought = now.brought;
    this.held = now.held;
    this.wire = now.wire;
    this.steps = maps.steps;
    this.running = maps.running;
    this.interrupts = maps.interrupts;
    this.answers = maps.answers;
    this.subagents = maps.subagents;
    this.children = maps.children;
  }

  get messages(): readonly Message[] {
    return this.held.messages;
  }
}
