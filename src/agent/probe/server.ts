import { createServer, type Server, type Socket } from "node:net";
import { errnoOf } from "../../shared/errors.ts";
import type { Log } from "../domain/index.ts";
import { listenUnix } from "../listening/index.ts";

/** Only the agent's own user may connect: a workload that runs as another user cannot use the socket. */
const SOCKET_MODE = 0o600;

/**
 * Answers each connection to SVC_PROBE_SOCKET with one line, `alive ready` or `alive not-ready`, and closes it. Reads
 * nothing, and needs no token. Used by `guest-agent probe`, for probes of Kubernetes and health checks of Docker.
 */
export class ProbeServer {
  readonly #isReady: () => boolean;
  readonly #server: Server;
  #isShuttingDown = false;
  #removePath: () => void = () => {};

  constructor(isReady: () => boolean, log: Log) {
    this.#isReady = isReady;
    this.#server = createServer((socket) => this.#answer(socket));
    this.#server.on("error", (error) => log.warn("accept_failed", { listener: "probe", errno: errnoOf(error) }));
  }

  /** Listens on the unix socket `path`. Throws AgentError on failure. */
  async listen(path: string): Promise<void> {
    this.#removePath = await listenUnix(this.#server, path, SOCKET_MODE);
  }

  /** Answers "not-ready" from now on, because the agent is shutting down. */
  shutDown(): void {
    this.#isShuttingDown = true;
  }

  /** Closes the listener and removes its socket. Open connections end by themselves. */
  close(): void {
    this.#server.close();
    this.#removePath();
  }

  #answer(socket: Socket): void {
    // Errors are ignored, because the client may already have disconnected.
    socket.on("error", () => {});
    // The kernel buffers the whole line at once, so the connection closes even if the client never reads.
    socket.write(this.#isReady() && !this.#isShuttingDown ? "alive ready\n" : "alive not-ready\n", () =>
      socket.destroy(),
    );
  }
}
