/**
 * One invocation of a subagent: SUBAGENT_STARTED … SUBAGENT_FINISHED or SUBAGENT_ERROR, a lane of its own, and a way out that says of
 * everything that passes whose work it is.
 *
 * D1. It ends exactly once, and nothing of its own is open then: blocks, steps and subagents inside it are closed first, the innermost first.
 * D2. After its end nothing of it leaves, whoever still holds its context.
 * D3. Its id is new in the run, and the ids inside it begin with it: clients remember for the whole run who owns an id, also of what was
 *     taken back, so a second try must not make the first one's.
 */
import { attributed } from "../protocol/attribution.ts";
import { subagentError } from "../protocol/closing.ts";
import type { PerdureError } from "../protocol/errors.ts";
import { type AGUIEvent, type AGUIEventOf, event, type Message } from "../protocol/events.ts";
import { toJson } from "../protocol/json.ts";
import { hasSubagent, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import { HandleClosedError, publicError } from "./errors.ts";
import { metadataOf, type Scope } from "./handle.ts";
import { type Lane, shortPrefix } from "./lane.ts";
import { type Leaving, leftovers } from "./leftovers.ts";
import type { Exit } from "./outlet.ts";
import type { SubagentOptions } from "./types.ts";

type Ending = AGUIEventOf<"SUBAGENT_FINISHED" | "SUBAGENT_ERROR">;

export class Subagent {
  readonly id: string;
  readonly name: string;
  readonly lane: Lane;
  readonly exit: SubagentExit;

  constructor(
    private readonly scope: Scope,
    options: SubagentOptions,
    /** As much of a failure as clients may know. */
    private readonly told = publicError,
  ) {
    const { name, description, parentToolCallId, parentMessageId } = options;
    const { outlet, lane } = scope;
    this.name = name;
    this.id = freeId(outlet, lane, options.id);
    // An id that was given is as unique as whoever gave it made it.
    this.lane = lane.delegate(options.id === undefined ? this.id : shortPrefix(`${lane.prefix}:${this.id}`));
    this.exit = new SubagentExit(outlet, this.id, this.label);
    const announced = { name, description, parentToolCallId, parentMessageId, ...metadataOf(options, this.label) };
    outlet.send(this.lane.path, event("SUBAGENT_STARTED", { subagentRunId: this.id, ...announced }));
  }

  get label(): string {
    return `subagent "${this.name}" (${this.id})`;
  }

  get described(): string {
    return `<${this.label} ${this.#ended ? "ended" : "open"}>`;
  }

  get #ended(): boolean {
    return this.exit.ended;
  }

  /** @throws {@link NotJsonError} for a result that JSON cannot hold; it is still open then */
  end(result: unknown): void {
    if (this.#ended) return;
    this.#check();
    const value = result === undefined ? undefined : toJson(result, `result of ${this.label}`);
    this.#end(
      { type: "whole" },
      event("SUBAGENT_FINISHED", { subagentRunId: this.id, result: value, outcome: { type: "success" } }),
    );
  }

  fail(error: unknown): void {
    if (this.#ended) return;
    this.#check();
    const told = this.told(error);
    this.#end({ type: "cut", error: told }, subagentError(this.id, told));
  }

  /** Runs a body and ends with it. */
  async during<H, T>(handle: H, body: (handle: H) => Promise<T> | T): Promise<T> {
    try {
      const result = await body(handle);
      this.end(result);
      return result;
    } catch (error) {
      this.abandon({ failed: error });
      throw error;
    }
  }

  /** Ends it on behalf of a body that threw, or of a scope that was left. Never throws. */
  abandon(how: { readonly failed: unknown } | "whole"): void {
    if (this.#ended) return;
    try {
      if (how === "whole") this.end(undefined);
      else this.fail(how.failed);
    } catch {
      // The leg is over, or the stream refuses: either way its end is the leg's business now.
      this.exit.end();
    }
  }

  #check(): void {
    const { closed } = this.exit;
    if (closed) throw closed;
  }

  #end(leaving: Leaving, ending: Ending): void {
    const { outlet } = this.scope;
    const { path } = this.lane;
    const isOwn = (end: AGUIEvent) =>
      (end.type === "SUBAGENT_FINISHED" || end.type === "SUBAGENT_ERROR") && end.subagentRunId === this.id;
    // The events of what is inside say whose they are. Its own end is among them, in the place that it has to have: the last.
    for (const { event: end, lane } of leftovers(outlet, leaving, path))
      outlet.sendClosing(lane, isOwn(end) ? ending : end);
    this.exit.end();
  }
}

/** Lets pass what the subagent emits, as its own. */
class SubagentExit implements Exit {
  #ended = false;

  constructor(
    private readonly outer: Exit,
    private readonly id: string,
    private readonly label: string,
  ) {}

  get ended(): boolean {
    return this.#ended;
  }

  end(): void {
    this.#ended = true;
  }

  get closed(): PerdureError | undefined {
    return this.outer.closed ?? (this.#ended ? new HandleClosedError(this.label, "what it emits") : undefined);
  }

  get wire(): Wire {
    return this.outer.wire;
  }

  get messages(): readonly Message[] {
    return this.outer.messages;
  }

  send(lane: Path, ...events: readonly AGUIEvent[]): void {
    this.#check();
    this.outer.send(lane, ...events.map((one) => attributed(one, this.id)));
  }

  sendClosing(lane: Path, ...events: readonly AGUIEvent[]): void {
    this.#check();
    this.outer.sendClosing(lane, ...events.map((one) => attributed(one, this.id)));
  }

  #check(): void {
    const { closed } = this;
    if (closed) throw closed;
  }

  drained(): Promise<void> {
    return this.outer.drained();
  }

  flushed(): Promise<void> {
    return this.outer.flushed();
  }

  get congested(): boolean {
    return this.outer.congested;
  }
}

/** The id that was asked for, numbered if this run has had it; else one that no run of the thread has had. */
function freeId({ wire }: Exit, lane: Lane, wanted: string | undefined): string {
  if (wanted === undefined) return lane.mint("subagent", (id) => hasSubagent(wire, id, "ever"));
  let free = wanted;
  for (let n = 2; hasSubagent(wire, free, "in this run"); n++) free = `${wanted}#${n}`;
  return free;
}
