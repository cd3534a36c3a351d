import { agentsOf } from "./agents.ts";
import { serveUntilKilled } from "./dying-server.ts";

await serveUntilKilled(agentsOf);
