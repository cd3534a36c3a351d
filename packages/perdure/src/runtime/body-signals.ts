import type { NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/run-state.ts";
import type { Path } from "../protocol/words.ts";
import type { Signal } from "./body-record.ts";

/** The ends of the steps that what was signalled ends: by name, the first signal goes to whoever has waited longest. */
export function received(
  { steps }: RunState,
  signals: readonly Signal[],
  isLost: (path: Path) => boolean,
): readonly NewEntry[] {
  if (signals.length === 0) return [];
  const waiting = [...steps.values()].filter(({ started: { step, path } }) => step === "signal" && !isLost(path));
  return [...new Set(signals.map(({ name }) => name))].flatMap((name) => {
    const named = waiting.filter(({ started }) => started.name === name);
    const got = named.filter(({ finished }) => finished?.status === "ok").length;
    const payloads = signals.filter((signal) => signal.name === name).slice(got);
    const open = named.filter(({ finished }) => finished === undefined);
    return open.slice(0, payloads.length).map(
      ({ started: { path } }, i): NewEntry => ({
        ...{ kind: "step.finished", path, via: "answer", status: "ok", patch: [] },
        output: payloads[i]?.payload ?? null,
      }),
    );
  });
}
