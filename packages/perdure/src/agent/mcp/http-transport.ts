import { type JSONRPCMessage, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { STREAM_ENDED } from "./failures.ts";

type SendOptions = Parameters<StreamableHTTPClientTransport["send"]>[1];

/**
 * Streamable HTTP that says when the answer to a request will not come any more: its stream has ended, and could not be resumed. The client
 * itself would wait until the end of time, or of the call's.
 */
export class HttpTransport extends StreamableHTTPClientTransport {
  override async send(message: JSONRPCMessage | JSONRPCMessage[], options?: SendOptions): Promise<void> {
    const id = !Array.isArray(message) && "method" in message && "id" in message ? message.id : undefined;
    if (id === undefined || options?.onRequestStreamEnd !== undefined) return await super.send(message, options);
    await super.send(message, {
      ...options,
      // Also called behind an answer: then nobody waits for this one.
      onRequestStreamEnd: () =>
        this.onmessage?.({
          ...{ jsonrpc: "2.0", id },
          error: { code: -32000, message: "the connection ended before the answer", data: STREAM_ENDED },
        }),
    });
  }
}
