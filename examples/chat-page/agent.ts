/** A shopping list: a model that tells stories at length, adds what it is asked for, and asks a human before it buys. */
import { appendFileSync } from "node:fs";
import { agent, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";

const List = z.object({ items: z.array(z.string()), bought: z.boolean() });

/**
 * @param receipts - the file that gets a line for each purchase, so that somebody else can count them
 * @param delayMs - between two pieces of the model's text
 */
export function shoppingList({ receipts, delayMs }: { receipts: string; delayMs: number }) {
  const add = tool({
    name: "add",
    description: "Add something to the list.",
    effect: "idempotent",
    state: List,
    input: z.object({ item: z.string() }),
    idempotencyKey: ({ item }) => ["add", item],
    call: ({ item }) => ({ added: item }),
    reduce(list, _, { item }) {
      list.items.push(item);
    },
  });
  const buy = tool({
    name: "buy",
    description: "Buy what is on the list.",
    effect: "write",
    state: List,
    input: z.object({ items: z.array(z.string()) }),
    approval: ({ items }) => ({ message: `Buy ${items.join(", ")}?` }),
    call({ items }, ctx) {
      appendFileSync(receipts, `${ctx.run} ${items.join(",")}\n`);
      return { bought: items.length };
    },
    reduce(list) {
      list.bought = true;
    },
  });
  return agent<z.infer<typeof List>>({
    name: "shopping-list",
    model: scriptedModel(
      ({ messages, lastUserText }) => {
        if (messages.at(-1)?.role === "tool") return { text: "Done." };
        const [verb, ...rest] = lastUserText.split(" ");
        if (verb === "add") return { text: "Adding.", calls: [{ name: "add", input: { item: rest.join(" ") } }] };
        if (verb === "buy") return { text: "One moment.", calls: [{ name: "buy", input: { items: rest } }] };
        return { text: Array.from({ length: 40 }, (_, i) => `Word ${i + 1}.`).join(" ") };
      },
      { delayMs },
    ),
    tools: [add, buy],
    state: { schema: List, initial: () => ({ items: [], bought: false }) },
  });
}
