import type { AskedOfModel } from "../log/fixture.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import type { Hash, Path } from "../protocol/words.ts";
import { type ReplayDifference, textDiff } from "./replay-report.ts";

interface Sides {
  readonly was?: Json;
  readonly is?: Json;
  /** The line in the code. */
  readonly at?: string | null;
}

/** What a model step was asked, and would be. */
interface AskedTwice {
  /** As far as the fixture knows. */
  readonly was: AskedOfModel | undefined;
  readonly is: AskedOfModel;
  /** What the log says of it. */
  readonly recorded: { readonly instructions: Hash; readonly tools: Hash; readonly settings: Json };
  /** The same of now. */
  readonly described: { readonly instructions: Hash; readonly tools: Hash };
  readonly settings: Json;
  readonly at?: string | null;
}

/** Each once: what differs in the same way at a later step is the same difference. */
export class Differences {
  readonly all: ReplayDifference[] = [];
  readonly #told = new Set<string>();

  add(path: Path, what: ReplayDifference["what"], message: string, { was, is, at = null }: Sides = {}): void {
    const diff = was === undefined || is === undefined ? undefined : textDiff(was, is);
    const known = `${what}\n${message}\n${diff ?? path}`;
    if (this.#told.has(known)) return;
    this.#told.add(known);
    this.all.push({ step: path, what, message, ...(diff !== undefined && { diff }), ...(at !== null && { at }) });
  }

  ofModel(path: Path, { was: asked, is: asks, recorded, described, settings, at = null }: AskedTwice): void {
    if (asked !== undefined) {
      const [then, now] = [parts(asked), parts(asks)];
      for (const what of ["instructions", "messages", "tools", "settings"] as const) {
        const [was, is] = [then[what], now[what]];
        if (!jsonEqual(was, is)) this.add(path, what, `the model is given other ${what}`, { was, is, at });
      }
      return;
    }
    // The export did not know any more what had been asked.
    for (const what of ["instructions", "tools"] as const) {
      if (described[what] === recorded[what]) continue;
      this.add(
        path,
        what,
        `the model is given other ${what}; what they were is not in the fixture: export it with the agent as it was`,
        { at },
      );
    }
    if (!jsonEqual(recorded.settings, settings)) {
      this.add(path, "settings", "the model is asked with other settings", {
        ...{ was: recorded.settings, is: settings, at },
      });
    }
  }
}

/** Instructions are the messages at the front, as providers take them. */
function parts({ prompt, tools, settings }: AskedOfModel) {
  const messages = Array.isArray(prompt) ? (prompt as readonly Json[]) : [];
  const isSystem = (message: Json): boolean => isJsonObject(message) && message.role === "system";
  return {
    instructions: messages
      .filter(isSystem)
      .map((message) => (isJsonObject(message) ? (message.content ?? null) : null)),
    messages: messages.filter((message) => !isSystem(message)),
    tools,
    settings,
  } satisfies Record<string, Json>;
}
