import type { Json } from "../protocol/json.ts";
import type { ForkOptions } from "../runtime/fork.ts";
import { usage } from "./command-error.ts";

/** What the fork is to be, as it stands on a command line. */
export interface ForkFlags {
  readonly at?: number;
  readonly instructions?: string;
  readonly model?: string;
  readonly input?: string;
  readonly state?: string;
  readonly agent?: string;
  readonly thread?: string;
  readonly acknowledge?: readonly string[];
}

/** @throws CommandError for a state that is no JSON */
export function forkOptions({ instructions, model, input, state, ...options }: ForkFlags): ForkOptions {
  const edits = {
    ...(instructions !== undefined && { instructions }),
    ...(model !== undefined && { model }),
    ...(input !== undefined && { input }),
    ...(state !== undefined && { state: parsed(state) }),
  };
  return { ...options, ...(Object.keys(edits).length > 0 && { edits }) };
}

function parsed(state: string): Json {
  try {
    return JSON.parse(state) as Json;
  } catch {
    throw usage(`--state is not JSON: ${state}`);
  }
}
