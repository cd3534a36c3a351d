import { INTERRUPT_EVENT } from "../log/interrupts.ts";
import type { AGUIEvent, Interrupt } from "../protocol/events.ts";
import { isJsonObject } from "../protocol/json.ts";

/**
 * What is asked of a human in a thread, as far as a client was told: at once by CUSTOM `perdure.interrupt`, while the run goes on, and again
 * by the end of a leg that waits.
 */
export class Questions {
  constructor(public open: readonly Interrupt[] = []) {}

  /** @returns the id of the question that the event opens, if it does */
  take(event: AGUIEvent): string | undefined {
    if (event.type === "RUN_FINISHED") this.#end(event.outcome);
    if (event.type !== "CUSTOM" || event.name !== INTERRUPT_EVENT || !isAsked(event.value)) return undefined;
    const { state, ...question } = event.value;
    this.close(question.id);
    if (state !== "open") return undefined;
    this.open = [...this.open, question];
    return question.id;
  }

  close(id: string): void {
    if (this.open.some((question) => question.id === id))
      this.open = this.open.filter((question) => question.id !== id);
  }

  /** Whoever says next what is open says all of it. */
  forget(): void {
    this.open = [];
  }

  /** A run that was cancelled may leave a question about a write; one that succeeds leaves none. */
  #end(outcome: Extract<AGUIEvent, { type: "RUN_FINISHED" }>["outcome"]): void {
    if (outcome?.type === "interrupt") this.open = outcome.interrupts;
    else if (outcome?.type !== "cancelled") this.forget();
  }
}

function isAsked(value: unknown): value is Interrupt & { readonly state: string } {
  return isJsonObject(value) && typeof value.id === "string" && typeof value.state === "string";
}
