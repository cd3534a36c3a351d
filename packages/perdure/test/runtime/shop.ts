/**
 * A shop whose model makes the calls that its user dictates, in a process of its own over a store that others may have, too: for tests in which
 * runs meet, and in which one deployment goes on with what another one began.
 */
import { agent } from "../../src/agent/agent.ts";
import { createRuntimeFrom } from "../../src/http/create-runtime.ts";
import type { Runtime } from "../../src/index.ts";
import type { Entry, Fact } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { asking, type Reply } from "./asking.ts";

export interface Wish {
  readonly name: string;
  readonly input: Json;
}

export interface ShopOptions {
  readonly approve?: "write";
  readonly now?: () => number;
  readonly newUid?: () => Uid;
}

export class Shop {
  readonly runtime: Runtime;
  readonly reported: unknown[] = [];

  constructor(
    readonly store: EventStore,
    tools: readonly ToolDefinition[],
    { approve, ...options }: ShopOptions = {},
  ) {
    const model = scriptedModel(({ messages, lastUserText }) => {
      const last = messages.at(-1);
      return last?.role === "user" ? { calls: JSON.parse(lastUserText) as Wish[] } : { text: "Done." };
    });
    const shop = agent({ name: "shop", model, tools, ...(approve && { approve }) });
    this.runtime = createRuntimeFrom(
      { random: () => 0, ...options },
      { agents: [shop], store, onError: (error) => this.reported.push(error) },
    );
  }

  async ask(path: string, body?: object): Promise<Reply> {
    return await asking(this.runtime)(path, body);
  }

  /** Makes the calls in a run of its own. Resolves when its leg has ended. @returns the events */
  async wish(thread: string, ...calls: readonly Wish[]): Promise<readonly Event[]> {
    const messages = [{ id: `u-${thread}`, role: "user", content: JSON.stringify(calls) }];
    return events((await this.ask("/agents/shop", { threadId: thread, runId: `r-${thread}`, messages })).text);
  }

  async run(thread: string): Promise<Run> {
    const [run] = (await this.store.runs({ tenant: "local", thread })).items;
    if (run === undefined) throw new Error(`thread ${thread} has no run`);
    return run;
  }

  async log(thread: string): Promise<readonly Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read((await this.run(thread)).uid, -1)) entries.push(entry);
    return entries;
  }

  async facts<K extends Fact["kind"]>(thread: string, kind: K): Promise<readonly Extract<Entry, { kind: K }>[]> {
    return (await this.log(thread)).filter((entry): entry is Extract<Entry, { kind: K }> => entry.kind === kind);
  }

  /** What the calls of a thread came to, as its clients read it. */
  async results(thread: string): Promise<readonly string[]> {
    return fold(await this.log(thread)).messages.flatMap((message) =>
      message.role === "tool" ? [message.content as string] : [],
    );
  }

  async inbox(thread?: string): Promise<readonly Listed[]> {
    const listed = (JSON.parse((await this.ask("/inbox")).text) as { interrupts: Listed[] }).interrupts;
    return thread === undefined ? listed : listed.filter((one) => one.thread === thread);
  }

  async answer(thread: string, payload: Json): Promise<number> {
    const [question] = await this.inbox(thread);
    if (question === undefined) throw new Error(`nothing is asked in thread ${thread}`);
    return (await this.ask(`/inbox/${encodeURIComponent(question.id)}`, { status: "resolved", payload })).status;
  }

  async cancel(thread: string): Promise<void> {
    await this.ask(`/runs/${(await this.run(thread)).uid}/cancel`, {});
  }
}

export interface Listed {
  readonly id: string;
  readonly thread: string;
  readonly kind: string;
  readonly message: string;
}

export type Event = { readonly type: string; readonly [member: string]: Json };

function events(text: string): readonly Event[] {
  return [...text.matchAll(/^data: (.*)$/gm)].map(([, json]) => JSON.parse(json ?? "") as Event);
}

export function codeOf(result: string | undefined): string | undefined {
  const parsed: unknown = result?.startsWith("{") ? JSON.parse(result) : undefined;
  const error = isJsonObject(parsed) ? parsed.error : undefined;
  return isJsonObject(error) && typeof error.code === "string" ? error.code : undefined;
}

/** A door that bodies wait at. */
export class Door {
  /** Resolves when somebody has come to it. */
  readonly reached: Promise<void>;
  readonly #opened: Promise<void>;
  #reach: () => void = () => {};
  #open: () => void = () => {};

  constructor() {
    this.reached = new Promise((resolve) => {
      this.#reach = resolve;
    });
    this.#opened = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  pass(): Promise<void> {
    this.#reach();
    return this.#opened;
  }

  open(): void {
    this.#open();
  }
}
