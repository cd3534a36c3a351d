/** The page: one thread, shown as it is. A reload, or a server that was killed, changes nothing. */
import { ResumableHttpAgent } from "perdure/client";

interface List {
  items: string[];
  bought: boolean;
}

const threadId = sessionStorage.getItem("thread") ?? crypto.randomUUID();
sessionStorage.setItem("thread", threadId);

const client = new ResumableHttpAgent<List>({
  url: `${location.origin}/agents/shopping-list`,
  threadId,
  reconnect: { initialDelayMs: 50, maxDelayMs: 500, maxAttempts: 100 },
  onReconnect: () => show("reconnecting"),
  onReconnected: () => show("running"),
});

function element<E extends HTMLElement>(id: string): E {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as E;
}
const text = element<HTMLInputElement>("text");
const items = element<HTMLInputElement>("items");

/** Draws everything: messages, state and questions are what the client holds. */
function show(status?: string): void {
  if (status !== undefined) element("status").textContent = status;
  element("messages").replaceChildren(
    ...client.messages.flatMap(({ id, role, content }) => {
      if (typeof content !== "string" || content === "" || role === "tool") return [];
      const line = document.createElement("li");
      line.dataset.role = role;
      line.dataset.id = id;
      line.textContent = content;
      return [line];
    }),
  );
  if (document.activeElement !== items) items.value = (client.state.items ?? []).join(" ");
  element("questions").replaceChildren(
    ...client.openInterrupts.map(({ id, message = "" }) => {
      const question = document.createElement("p");
      const button = (label: string, approved: boolean): HTMLButtonElement => {
        const made = document.createElement("button");
        made.textContent = label;
        made.onclick = () => void answer(id, approved);
        return made;
      };
      question.append(message, " ", button("Approve", true), button("Reject", false));
      return question;
    }),
  );
}

const drawing = { onEvent: () => void setTimeout(show), onMessagesChanged: () => show(), onStateChanged: () => show() };

/** Does something that streams, and says how it went. */
async function run(what: () => Promise<unknown>): Promise<void> {
  show("running");
  try {
    await what();
    show("idle");
  } catch (error) {
    show(error instanceof Error ? error.message : String(error));
  }
}

const connect = (): Promise<void> => run(() => client.connectAgent({}, drawing));

async function answer(interrupt: string, approved: boolean): Promise<void> {
  await client.answer(interrupt, { status: "resolved", payload: { approved } });
  await connect();
}

element("say").onsubmit = (event) => {
  event.preventDefault();
  client.addMessage({ id: crypto.randomUUID(), role: "user", content: text.value });
  text.value = "";
  void run(() => client.runAgent({}, drawing));
};
element("cancel").onclick = () => void client.cancel();
items.onchange = () => {
  client.state = { ...client.state, items: items.value.split(" ").filter((item) => item !== "") };
};

void connect();
