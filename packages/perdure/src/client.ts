// A client that comes back by itself.
export {
  AnswerConflictError,
  AnswerForbiddenError,
  ConnectionLostError,
  InterruptNotFoundError,
  InvalidAnswerError,
  RequestError,
} from "./client/errors.ts";
export type { Reconnecting, ReconnectOptions } from "./client/lost.ts";
export {
  type AnswerReply,
  type ConnectParameters,
  type RequestOptions,
  ResumableHttpAgent,
  type ResumableHttpAgentConfig,
  type ResumableOptions,
} from "./client/resumable-http-agent.ts";
export { PerdureError } from "./protocol/errors.ts";
