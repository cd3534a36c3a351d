import { type Encoded, type Entry, entryAt } from "../log/entries.ts";
import type { Uid } from "../protocol/words.ts";
import type { Hint, Topic } from "./store.ts";

/** What a transaction has to tell: that there is something new about a topic, or what was appended to a run's log. */
export type News = Topic | Append;
interface Append {
  readonly appendedTo: Uid;
  /** The place of the first one. */
  readonly seq: number;
  readonly at: number;
  readonly entries: readonly Encoded[];
}

const SETTLED = Promise.resolve();

/** Who wants to be told about what. Telling is not part of any transaction: a hint that throws harms nobody but its owner. */
export class Hints {
  /** By what they are about; a run's by its uid alone, because it is looked up for every frame. */
  readonly #byTopic = new Map<string, Set<Hint>>();

  watch(topic: Topic, hint: Hint): () => void {
    const name = nameOf(topic);
    const one: Hint = (appended) => hint(appended); // the same function may watch twice, and each ends by itself
    const set = this.#byTopic.get(name) ?? new Set();
    this.#byTopic.set(name, set.add(one));
    return () => {
      set.delete(one);
      if (set.size === 0 && this.#byTopic.get(name) === set) this.#byTopic.delete(name);
    };
  }

  tell(news: readonly News[]): void {
    if (this.#byTopic.size === 0) return;
    for (const one of news) if (isAppend(one)) this.#push(one);
    const topics = news.filter((one): one is Topic => !isAppend(one));
    if (topics.length === 0) return;
    for (const name of new Set(topics.map(nameOf))) {
      for (const hint of this.#byTopic.get(name) ?? []) void SETTLED.then(() => hint());
    }
  }

  #push({ appendedTo, seq, at, entries }: Append): void {
    const hints = this.#byTopic.get(appendedTo);
    if (hints === undefined) return;
    const appended: Entry[] = entries.map(({ entry }, i) => entryAt(entry, seq + i, at));
    for (const hint of hints) void SETTLED.then(() => hint(appended));
  }

  clear(): void {
    this.#byTopic.clear();
  }
}

function isAppend(news: News): news is Append {
  return typeof news === "object" && "appendedTo" in news;
}

function nameOf(topic: Topic): string {
  if (topic === "claimable") return topic;
  if ("run" in topic) return topic.run;
  if ("inbox" in topic) return `inbox ${topic.inbox}`;
  const { tenant, subject, agent, thread } = topic.thread;
  return `thread ${JSON.stringify([tenant, subject, agent, thread])}`;
}
