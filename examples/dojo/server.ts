import process from "node:process";
import { serve } from "perdure";
import { dojo, features } from "./dojo.ts";

const server = await serve(dojo({ delayMs: 60 }), {
  port: Number(process.env.PORT ?? 8000),
  drainOn: ["SIGINT", "SIGTERM"],
});
const body = { threadId: "t1", runId: "r1", messages: [{ id: "u1", role: "user", content: "Hi" }] };

console.log(`The dojo's features are at ${features.map(({ name }) => `${server.url}/${name}`).join("\n  ")}

Start the AG-UI dojo with SERVER_STARTER_ALL_FEATURES_URL=${server.url}, or try:

curl -N ${server.url}/agentic_chat -H 'content-type: application/json' \\
  -d '${JSON.stringify(body)}'
`);
