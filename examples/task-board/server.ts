import { createRuntime, serve } from "perdure";
import { taskBoard } from "./agent.ts";

const server = await serve(createRuntime({ agents: [taskBoard] }), {
  port: Number(process.env.PORT ?? 8787),
  drainOn: ["SIGINT", "SIGTERM"],
});
const url = `${server.url}/agents/task-board`;
const body = { threadId: "t1", runId: "r1", messages: [{ id: "u1", role: "user", content: "add write the docs" }] };

console.log(`The task board listens at ${url}. Try:

curl -N ${url} -H 'content-type: application/json' \\
  -d '${JSON.stringify(body)}'
`);
