import {
  type ActivityClock,
  AgentError,
  invalidField,
  type ListenerScope,
  NARROW_TUNNEL_WINDOW_BYTES,
  SOCKET_PATH_LIMIT_BYTES,
  SocketError,
  type Sockets,
  type StreamSocket,
  type Timers,
  TUNNEL_CONNECT_LIMIT_MS,
  TUNNEL_LIMIT,
  TUNNEL_WINDOW_PART,
  TUNNEL_WINDOWS_BYTES,
  unlessAborted,
  whenAborted,
} from "../domain/index.ts";
import { otherAddressHint, pathFailure, portFailure } from "./failure.ts";
import type { PortList } from "./port-list.ts";
import { checkPort, PortWatch, type PortWatcher, type WaitRequest } from "./port-watch.ts";
import { OpenTunnel, type TunnelClient } from "./open-tunnel.ts";

export type { TunnelClient, TunnelInput } from "./open-tunnel.ts";

/** The target of a tunnel: a TCP port on the loopback interface, or the path of a unix socket. */
export type TunnelTarget = { readonly port: number } | { readonly path: string };

export interface TunnelsParts {
  readonly sockets: Sockets;
  /** `stat` rejects with FileSystemError on failure, also if the file system of the path does not respond. */
  readonly fileSystem: { stat(path: Uint8Array, noFollow: boolean): Promise<{ readonly type: string }> };
  readonly activity: ActivityClock;
  readonly timers: Timers;
  /** Throws SESSION_FROZEN while the session is frozen, because none of its processes could answer. */
  readonly checkSession: () => void;
  /** The agent's own TCP port. */
  readonly ownPort: number | undefined;
  /** Returns how many times the guest has been restored. */
  readonly generation: () => number;
}

/** Connects clients to listeners inside the guest. All methods throw AgentError. */
export class Tunnels {
  readonly #parts: TunnelsParts;
  readonly #ports: PortWatch;
  readonly #open = new Set<OpenTunnel>();
  /** Number of tunnels that are open or being opened. */
  #count = 0;
  #windowsBytes = 0;
  #shutdownReason: AgentError | undefined;

  constructor(parts: TunnelsParts) {
    this.#parts = parts;
    this.#ports = new PortWatch(parts);
  }

  /** Connects a client to a socket of the guest. Resolves when both sides have ended; rejects if the tunnel failed. */
  async connect(target: TunnelTarget, client: TunnelClient): Promise<void> {
    this.#check(target);
    this.#parts.checkSession();
    if (this.#shutdownReason !== undefined) throw this.#shutdownReason;
    if (this.#count >= TUNNEL_LIMIT) throw tooManyTunnels();
    this.#count += 1;
    const leftBytes = TUNNEL_WINDOWS_BYTES - this.#windowsBytes;
    const windowBytes = Math.max(NARROW_TUNNEL_WINDOW_BYTES, Math.floor(leftBytes * TUNNEL_WINDOW_PART));
    this.#windowsBytes += windowBytes;
    try {
      const { activity } = this.#parts;
      activity.touch();
      const socket = await this.#reach(target, client.signal);
      const tunnel = new OpenTunnel({ socket, client, windowBytes, onBytes: () => activity.touch() });
      this.#open.add(tunnel);
      if (this.#shutdownReason !== undefined) tunnel.shutDown(this.#shutdownReason);
      await tunnel.run().finally(() => this.#open.delete(tunnel));
    } finally {
      this.#count -= 1;
      this.#windowsBytes -= windowBytes;
    }
  }

  /** See `PortWatch.wait`. */
  async waitForPort(request: WaitRequest, signal: AbortSignal): Promise<ListenerScope | undefined> {
    this.#checkNotOwn(request.port);
    if (this.#shutdownReason !== undefined) throw this.#shutdownReason;
    return this.#ports.wait(request, signal);
  }

  /** See `PortWatch.list`. */
  listPorts(): Promise<PortList> {
    return this.#ports.list();
  }

  /** See `PortWatch.watch`. */
  watchPorts(watcher: PortWatcher): Promise<never> {
    return this.#ports.watch(watcher);
  }

  /**
   * Refuses new calls. Ends all calls that wait or watch. Each tunnel ends as soon as the server in the guest has ended
   * its side.
   */
  shutDown(reason: AgentError): void {
    this.#shutdownReason ??= reason;
    this.#ports.shutDown(reason);
    for (const tunnel of this.#open) tunnel.shutDown(reason);
  }

  #check(target: TunnelTarget): void {
    if ("port" in target) {
      checkPort(target.port);
      this.#checkNotOwn(target.port);
      return;
    }
    const { path } = target;
    if (!path.startsWith("/")) throw invalidField("path", "must be absolute");
    if (path.includes("\0")) throw invalidField("path", "contains a NUL byte");
    if (Buffer.byteLength(path) > SOCKET_PATH_LIMIT_BYTES) {
      throw invalidField(
        "path",
        `exceeds ${SOCKET_PATH_LIMIT_BYTES} bytes, the limit for the path of a unix socket; use the shorter path of a symbolic link to the socket`,
      );
    }
  }

  #checkNotOwn(port: number): void {
    if (port === this.#parts.ownPort) throw invalidField("port", "belongs to the agent; call the agent directly");
  }

  /** Connects to the target. Throws AgentError if this takes more than TUNNEL_CONNECT_LIMIT_MS. */
  async #reach(target: TunnelTarget, signal: AbortSignal): Promise<StreamSocket> {
    const stop = new AbortController();
    const cancel = this.#parts.timers.after(TUNNEL_CONNECT_LIMIT_MS, () => stop.abort(new SocketError("ETIMEDOUT")));
    using _listener = whenAborted(signal, () => stop.abort(signal.reason));
    try {
      signal.throwIfAborted();
      return "port" in target
        ? await this.#reachPort(target.port, stop.signal)
        : await this.#reachPath(target.path, stop.signal);
    } finally {
      cancel();
    }
  }

  async #reachPort(port: number, signal: AbortSignal): Promise<StreamSocket> {
    const { sockets } = this.#parts;
    try {
      return await sockets.connectPort(4, port, signal);
    } catch (error) {
      if (!(error instanceof SocketError) || signal.aborted) throw portFailure(error, port);
      return sockets.connectPort(6, port, signal).catch(async (second: unknown) => {
        // If the guest has no IPv6, the error of the IPv6 attempt says nothing about the port, so the IPv4 error is
        // reported.
        const isThere = second instanceof SocketError && (signal.aborted || second.errno === "ECONNREFUSED");
        throw portFailure(
          isThere || !(second instanceof SocketError) ? second : error,
          port,
          otherAddressHint(await this.#ports.otherAddressOf(port)),
        );
      });
    }
  }

  async #reachPath(path: string, signal: AbortSignal): Promise<StreamSocket> {
    const { sockets, fileSystem } = this.#parts;
    try {
      // stat() comes before connect: it detects a file system that does not respond, and whether the path is a socket.
      const { type } = await unlessAborted(fileSystem.stat(Buffer.from(path), false), signal);
      const socket = type === "socket" ? await sockets.connectPath(path, signal) : undefined;
      if (socket === undefined) throw new SocketError("ENOTSOCK");
      if (socket !== "own") return socket;
    } catch (error) {
      throw pathFailure(error, path);
    }
    throw invalidField("path", "refers to a socket of the agent; call the agent directly");
  }
}

function tooManyTunnels(): AgentError {
  const message = `the limit of ${TUNNEL_LIMIT} open tunnels is reached; close one that is not needed`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_TUNNELS", message, { limit: String(TUNNEL_LIMIT) });
}
