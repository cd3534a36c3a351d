import type { Topic } from "./store.ts";

/** Who wants to be told about what. Telling is not part of any transaction: a hint that throws harms nobody but its owner. */
export class Hints {
  readonly #byTopic = new Map<string, Set<() => void>>();

  watch(topic: Topic, hint: () => void): () => void {
    const name = nameOf(topic);
    const one = () => hint(); // the same function may watch twice, and each ends by itself
    const set = this.#byTopic.get(name) ?? new Set();
    this.#byTopic.set(name, set.add(one));
    return () => {
      set.delete(one);
      if (set.size === 0 && this.#byTopic.get(name) === set) this.#byTopic.delete(name);
    };
  }

  tell(topics: Iterable<Topic>): void {
    if (this.#byTopic.size === 0) return;
    const names = new Set<string>();
    for (const topic of topics) names.add(nameOf(topic));
    for (const name of names) {
      for (const hint of this.#byTopic.get(name) ?? []) queueMicrotask(hint);
    }
  }

  clear(): void {
    this.#byTopic.clear();
  }
}

function nameOf(topic: Topic): string {
  if (topic === "claimable") return topic;
  if ("run" in topic) return `run ${topic.run}`;
  if ("inbox" in topic) return `inbox ${topic.inbox}`;
  const { tenant, subject, agent, thread } = topic.thread;
  return `thread ${JSON.stringify([tenant, subject, agent, thread])}`;
}
