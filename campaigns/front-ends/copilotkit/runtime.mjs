/**
 * CopilotKit's runtime in front of a Perdure server, in a process of its own. It says where it is, and dies with its parent.
 *
 * RUNNER=own is how its documentation begins: an HttpAgent, and the runner that it has by default.
 */
import { createServer } from "node:http";
import process from "node:process";
import { HttpAgent } from "@ag-ui/client-0.0.59";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { ResumableHttpAgent } from "perdure/client";
import { PerdureRunner } from "./perdure-runner.mjs";

const { PERDURE_URL, AGENTS = "", RUNNER, PORT = "0" } = process.env;
const isOwn = RUNNER === "own";
const AgentClass = isOwn ? HttpAgent : ResumableHttpAgent;
const agents = Object.fromEntries(
  AGENTS.split(",").map((name) => [name, new AgentClass({ url: `${PERDURE_URL}/agents/${name}` })]),
);
const runtime = new CopilotRuntime({ agents, ...(!isOwn && { runner: new PerdureRunner(PERDURE_URL) }) });

process.stdin.on("end", () => process.exit(1)).resume();
const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" }));
server.listen(Number(PORT), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/api/copilotkit`));
