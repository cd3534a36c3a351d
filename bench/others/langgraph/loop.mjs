/**
 * LangGraph.js as its documentation builds an agent: a node that asks the model, one that runs its calls, and a checkpointer. There is no model
 * in it, only what one would have said, which costs nothing. Its SQLite checkpointer wants better-sqlite3, which has to be compiled; it gets
 * the driver that we use instead, under the members that it asks for.
 */
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";

/**
 * @param {new (file: string) => any} Driver
 * @param {string} file
 * @param {{ steps: number, synchronous: "FULL" | "NORMAL" }} options
 */
export function langGraph(Driver, file, { steps, synchronous }) {
  const db = new Driver(file);
  const nulls = (values) => values.map((value) => value ?? null);
  const run = (statement) => ({
    get: (...values) => statement.get(...nulls(values)) ?? undefined,
    all: (...values) => statement.all(...nulls(values)),
    run: (...values) => statement.run(...nulls(values)),
  });
  const saver = new SqliteSaver({
    pragma: (text) => db.exec(`PRAGMA ${text}`),
    exec: (sql) => db.exec(sql),
    prepare: (sql) => run(db.prepare(sql)),
    transaction:
      (work) =>
      (...args) => {
        db.exec("BEGIN");
        try {
          work(...args);
          db.exec("COMMIT");
        } catch (error) {
          db.exec("ROLLBACK");
          throw error;
        }
      },
  });
  db.exec(`PRAGMA synchronous=${synchronous}`);
  const add = tool(({ n }) => String(n + 1), {
    name: "add",
    description: "Adds one.",
    schema: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
  });
  const asked = ({ messages }) => messages.filter((message) => message.getType() === "ai").length;
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("model", (state) => {
      const n = asked(state);
      const call = { id: `call_${n}`, name: "add", args: { n }, type: "tool_call" };
      return { messages: [n === steps ? new AIMessage("Done.") : new AIMessage({ content: "", tool_calls: [call] })] };
    })
    .addNode("tools", new ToolNode([add]))
    .addEdge(START, "model")
    .addConditionalEdges("model", (state) => (state.messages.at(-1)?.tool_calls?.length ? "tools" : END))
    .addEdge("tools", "model")
    .compile({ checkpointer: saver });
  let threads = 0;
  return {
    /** One run of all steps. @returns how many messages there are then */
    async run() {
      const config = { configurable: { thread_id: `t${threads++}` }, recursionLimit: 2 * steps + 5 };
      const { messages } = await graph.invoke({ messages: [new HumanMessage("Go.")] }, config);
      if (messages.at(-1)?.content !== "Done.") throw new Error("the run does not end");
      return messages.length;
    },
    close: () => db.close(),
  };
}
