// The tools of MCP servers.
export { McpConnectionError } from "./agent/mcp/failures.ts";
export { FENCE_META, KEY_META, type McpServer, mcp } from "./agent/mcp/mcp.ts";
export type {
  HttpServer,
  McpCommonOptions,
  McpOptions,
  McpToolOptions,
  McpToolOverride,
  OtherServer,
  StdioServer,
} from "./agent/mcp/options.ts";
