// The tools of MCP servers.
export { FENCE_META, KEY_META } from "./agent/mcp/calls.ts";
export { McpConnectionError } from "./agent/mcp/failures.ts";
export { type McpServer, mcp } from "./agent/mcp/mcp.ts";
export type {
  HttpServer,
  McpCommonOptions,
  McpOptions,
  McpToolOptions,
  McpToolOverride,
  OtherServer,
  StdioServer,
} from "./agent/mcp/options.ts";
