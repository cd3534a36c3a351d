import { event } from "../protocol/events.ts";
import { openItems } from "../protocol/verify.ts";
import { HandleClosedError } from "./errors.ts";
import { type Abandonable, Emitter, metadataOf, type Scope } from "./handle.ts";
import type { BlockOptions, StepHandle } from "./types.ts";

export class StepBlock<S> extends Emitter<S> implements StepHandle<S>, Abandonable {
  readonly name: string;
  #ended = false;

  constructor(scope: Scope, name: string, options: BlockOptions = {}) {
    super(scope);
    this.check("step()");
    this.name = freeName(scope, name);
    this.send(event("STEP_STARTED", { stepName: this.name, ...metadataOf(options, `step "${name}"`) }));
    scope.lane.enterStep(this);
  }

  get id(): string {
    return this.name;
  }

  protected override check(operation: string): void {
    super.check(operation);
    if (this.#ended) throw new HandleClosedError(`step "${this.name}"`, operation);
  }

  end(last?: BlockOptions): void {
    if (this.#ended) return;
    super.check("end()");
    const finished = event("STEP_FINISHED", { stepName: this.name, ...metadataOf(last, `step "${this.name}"`) });
    this.scope.lane.leaveStep(this);
    this.#ended = true;
    this.scope.outlet.sendClosing(this.scope.lane.path, finished);
  }

  abandon(): void {
    if (this.#ended) return;
    for (const inner of this.scope.lane.stepsInside<StepBlock<S>>(this)) inner.abandon();
    try {
      this.end();
    } catch {
      // The leg is over: it has closed the step itself.
      this.#ended = true;
    }
  }

  [Symbol.dispose](): void {
    this.abandon();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `<step "${this.name}" ${this.#ended ? "ended" : "open"}>`;
  }
}

/** Clients die of a step name that is open already, whichever lane opened it, so a second one is numbered. */
function freeName({ outlet }: Scope, name: string): string {
  const open = new Set(openItems(outlet.wire).flatMap((item) => (item.kind === "step" ? [item.id] : [])));
  let free = name;
  for (let n = 2; open.has(free); n++) free = `${name}#${n}`;
  return free;
}
