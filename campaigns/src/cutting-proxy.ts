import { connect, createServer, type Server, type Socket } from "node:net";

/** Passes bytes between a client and the server, and cuts each connection after so many bytes of the answer. */
export class CuttingProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #port = 0;

  /**
   * @param budget - asked for each connection: after how many bytes it is cut; `Infinity`: never
   * @param onCut - called for each connection that was cut, not for those that ended by themselves
   */
  constructor(
    private readonly upstreamPort: () => number,
    private readonly budget: () => number,
    private readonly onCut: () => void = () => {},
  ) {
    this.#server = createServer((client) => this.#pass(client));
  }

  get port(): number {
    return this.#port;
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    const address = this.#server.address();
    this.#port = typeof address === "object" && address !== null ? address.port : 0;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(client: Socket): void {
    const upstream = connect(this.upstreamPort(), "127.0.0.1");
    let left = this.budget();
    const end = (): void => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", end);
      socket.on("close", () => {
        this.#sockets.delete(socket);
        end();
      });
    }
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", (bytes) => {
      if (bytes.length < left) {
        left -= bytes.length;
        client.write(bytes);
        return;
      }
      upstream.removeAllListeners("data");
      upstream.destroy();
      client.end(bytes.subarray(0, left), () => client.destroy());
      this.onCut();
    });
    client.on("end", end);
  }
}
