/**
 * What every handle shares: it reaches the outlet and the state but never the context, so it cannot open a second block.
 *
 * H1. A handle ends its block exactly once, whichever way it is left: end(), scope exit, or the leg's own end.
 * H2. Disposing never throws: what it could not send, the leg closes at its end.
 */
import type { AGUIEvent, Metadata } from "../protocol/events.ts";
import { toJson } from "../protocol/json.ts";
import { checkShape } from "../protocol/shape.ts";
import { HandleClosedError, LifecycleEventError } from "./errors.ts";
import type { Lane } from "./lane.ts";
import type { Exit } from "./outlet.ts";
import type { Published } from "./published.ts";
import type { BlockOptions, EmittableEvent, Emitting, Handle } from "./types.ts";

const LIFECYCLE: ReadonlySet<string> = new Set(["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"]);

/** What a lane's emitters work on. */
export interface Scope {
  readonly outlet: Exit;
  readonly state: Published;
  readonly lane: Lane;
}

/** The part of the emitting surface that context, handles and steps share. */
export class Emitter<S> implements Emitting<S> {
  constructor(protected readonly scope: Scope) {}

  /** Says no before anything is touched. */
  protected check(_operation: string): void {
    const closed = this.scope.outlet.closed;
    if (closed) throw closed;
  }

  get state(): S {
    this.check("state");
    // The draft has the type of the agent's state: it began as a value that its schema accepted.
    return this.scope.state.draft as S;
  }

  publishState(): void {
    this.check("publishState()");
    this.scope.state.publish(this.send, this.scope.lane.path);
  }

  updateState(change: (draft: S) => void): void {
    change(this.state);
    this.publishState();
  }

  custom(name: string, value: unknown): void {
    this.check("custom()");
    this.send({ type: "CUSTOM", name, value: toJson(value, `value of custom event "${name}"`) });
  }

  emit(event: EmittableEvent): void {
    this.check("emit()");
    // Plain JavaScript can hand over what the type rules out.
    if (LIFECYCLE.has(event.type)) throw new LifecycleEventError(event.type);
    if (event.type === "STATE_SNAPSHOT" || event.type === "STATE_DELTA") {
      // The state takes what the event has in it: one without would empty it on every screen.
      checkShape(event);
      this.scope.state.follow(event, this.send, this.scope.lane.path);
    } else this.send(event);
  }

  protected readonly send = (...events: readonly AGUIEvent[]): void => {
    this.scope.outlet.send(this.scope.lane.path, ...events);
  };
}

/** The metadata of an event, as nobody else's JSON. @throws {@link NotJsonError} */
export function metadataOf(options: BlockOptions | undefined, label: string): { readonly metadata?: Metadata } {
  if (options?.metadata === undefined) return {};
  // What is an object before it goes through JSON is one behind it.
  return { metadata: toJson(options.metadata, `metadata of ${label}`) as Metadata };
}

/** An open message, reasoning or tool call. */
export abstract class Block<S> extends Emitter<S> implements Handle<S> {
  #ended = false;

  constructor(
    scope: Scope,
    readonly id: string,
    /** How errors name it. */
    protected readonly label: string,
    started: readonly AGUIEvent[],
  ) {
    super(scope);
    super.check("opening");
    scope.lane.open(this, label);
    try {
      this.send(...started);
    } catch (error) {
      scope.lane.close(this);
      throw error;
    }
  }

  protected override check(operation: string): void {
    super.check(operation);
    if (this.#ended) throw new HandleClosedError(this.label, operation);
  }

  /** Sends the block's last events and gives the lane back. */
  protected finish(...events: readonly AGUIEvent[]): void {
    this.scope.outlet.sendClosing(this.scope.lane.path, ...events);
    this.#release();
  }

  #release(): void {
    this.#ended = true;
    this.scope.lane.close(this);
  }

  /**
   * The events that close it; the one that ends what was said carries the metadata.
   *
   * @param isCut - its body threw, so what it shows is not all it should have been
   */
  protected abstract closing(isCut: boolean, metadata?: Metadata): readonly AGUIEvent[];

  end(last?: BlockOptions): void {
    if (this.#ended) return;
    super.check("end()");
    this.finish(...this.closing(false, metadataOf(last, this.label).metadata));
  }

  /** Ends the block on behalf of a body that threw, or of a scope that was left. Never throws (H2). */
  abandon(incomplete: boolean): void {
    if (this.#ended) return;
    for (const event of this.closing(incomplete)) {
      try {
        this.scope.outlet.sendClosing(this.scope.lane.path, event);
      } catch {
        // The leg is over, or the stream already lacks this block: either way its end is the leg's business now.
      }
    }
    this.#release();
  }

  [Symbol.dispose](): void {
    this.abandon(false);
  }

  protected get ended(): boolean {
    return this.#ended;
  }

  /** Kind, id and state; never content, which may be secret. */
  protected describe(): string {
    return `${this.label} ${this.#ended ? "ended" : "open"}`;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `<${this.describe()}>`;
  }
}

/** What ends by itself when its scope is left, and can say that it was left by an exception. */
export interface Abandonable extends Disposable {
  abandon(incomplete: boolean): void;
}

/** Runs a body with a handle and closes the handle on every way out. */
export async function within<H extends Abandonable, T>(handle: H, body: (handle: H) => Promise<T> | T): Promise<T> {
  let threw = true;
  try {
    const result = await body(handle);
    threw = false;
    return result;
  } finally {
    handle.abandon(threw);
  }
}
