import { lstat, unlink } from "node:fs/promises";
import { connect, createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { errnoOf, messageOf } from "../../../shared/errors.ts";
import { fromArguments, limitOf, wholeNumber } from "../arguments.ts";
import { failure, type GuestError, invalidOption } from "../errors/errors.ts";
import type { ConnectOptions } from "../grpc/link/link.ts";
import type { TunnelOpener } from "./opener.ts";
import { LargeReads } from "../grpc/internals/large-reads.ts";
import type { GuestTunnel } from "./tunnel.ts";

/**
 * Limit on the write buffer of a local socket. At the limit, the tunnel must wait. The limit is high, so that
 * everything that arrives in one tick of the event loop can be written at once.
 */
const QUEUE_BYTES = 1024 * 1024;

/** The host name that stands for both loopback addresses. */
const LOCALHOST = "localhost";
/** Errors of listen(2) on a machine without IPv6. */
const NO_ADDRESS: ReadonlySet<string> = new Set(["EADDRNOTAVAIL", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EINVAL"]);
const FREE_PORT_TRIES = 10;
const LARGEST_PORT = 65_535;

/** Options of `forward`. */
export interface ForwardOptions {
  /** TCP port in the guest. Give either this or `path`. */
  readonly port?: number | undefined;
  /** Absolute path of a unix socket in the guest. */
  readonly path?: string | undefined;
  /** Local TCP port to listen on, or the path of a local unix socket. Default: 0, any port that is free. */
  readonly listen?: number | string | undefined;
  /** Address to listen on. Default: "localhost", which is 127.0.0.1 and, where this machine has it, ::1. */
  readonly host?: string | undefined;
  /**
   * Returns the current address and credentials, which a restore may have changed. Called for each additional
   * connection, and when a connection fails and reconnecting may help (`isTransient`). Default: the client's address
   * and credentials.
   */
  readonly connectOptions?: (() => ConnectOptions | Promise<ConnectOptions>) | undefined;
  /** Called for each connection that fails in the guest or on the way there. The forwarding continues. */
  readonly onError?: ((error: GuestError) => void) | undefined;
  /** Called for each connection that has been opened in the guest. */
  readonly onConnect?: (() => void) | undefined;
  /**
   * Time limit for opening each connection in the guest, in milliseconds. At the limit, the local connection is reset,
   * and `onError` is called. Default: Infinity, which means no limit.
   */
  readonly requestTimeoutMs?: number | undefined;
  /** When this signal is aborted, the forwarding is closed. */
  readonly signal?: AbortSignal | undefined;
}

/** A local port or unix socket that is forwarded into the guest. */
export interface Forwarding extends AsyncDisposable {
  /** The local TCP port; 0 for a unix socket. */
  readonly port: number;
  /** Stops listening and destroys all connections. Resolves when everything is closed. */
  close(): Promise<void>;
}

export const FORWARD_NAMES: Readonly<Record<keyof ForwardOptions, true>> = {
  port: true,
  path: true,
  listen: true,
  host: true,
  connectOptions: true,
  onError: true,
  onConnect: true,
  requestTimeoutMs: true,
  signal: true,
};

/**
 * Listens locally and connects each client to the guest.
 *
 * @throws GuestError if it cannot listen
 */
export async function forward(
  { port, path, listen = 0, host = LOCALHOST, onError, onConnect, requestTimeoutMs, signal }: ForwardOptions,
  opener: TunnelOpener,
): Promise<Forwarding> {
  const target = port ?? path;
  if (target === undefined || (port !== undefined && path !== undefined)) {
    throw invalidOption("port", "forward requires a port or a path");
  }
  limitOf(requestTimeoutMs, "requestTimeoutMs");
  if (typeof listen === "number") wholeNumber(listen, "listen", LARGEST_PORT);
  const sockets = new Set<Socket>();
  const reads = new LargeReads();
  const accept = (socket: Socket): void => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    const open = async (gone: AbortSignal): Promise<GuestTunnel> => {
      const tunnel = await opener.open(target, gone, requestTimeoutMs);
      onConnect?.();
      return tunnel;
    };
    void carry(socket, reads, open, onError);
  };
  const make = (): Server => createServer({ allowHalfOpen: true, noDelay: true, highWaterMark: QUEUE_BYTES }, accept);
  const { servers, port: bound } = await listening(make, listen, host);
  // Without this listener, an error such as EMFILE of accept(2) would end this process. With it, open connections
  // continue.
  for (const server of servers)
    server.on("error", (error) =>
      onError?.(
        failure(
          "RESOURCE_EXHAUSTED",
          "LISTEN_FAILED",
          `a connection could not be accepted: ${messageOf(error)}`,
          error,
        ),
      ),
    );
  const close = async (): Promise<void> => {
    signal?.removeEventListener("abort", onAbort);
    const ended = servers.map(closed);
    for (const socket of sockets) socket.destroy();
    opener.close();
    await Promise.all(ended);
  };
  const onAbort = (): void => void close();
  signal?.addEventListener("abort", onAbort);
  if (signal?.aborted === true) await close();
  return { port: bound, close, [Symbol.asyncDispose]: close };
}

/**
 * Copies bytes in both directions. If one side ends, the other side also receives EOF. If one side is reset, the other
 * side is reset, too.
 */
async function carry(
  socket: Socket,
  reads: LargeReads,
  open: (signal: AbortSignal) => Promise<GuestTunnel>,
  onError: ForwardOptions["onError"],
): Promise<void> {
  const gone = new AbortController();
  const fail = (error: unknown): void => {
    if (gone.signal.aborted) return;
    // Unix sockets cannot be reset.
    if (socket.remoteFamily === undefined) socket.destroy();
    else socket.resetAndDestroy();
    onError?.(error as GuestError);
  };
  socket.on("error", () => undefined);
  socket.on("close", () => {
    const isOver = socket.readableEnded && socket.writableFinished;
    if (!isOver) gone.abort();
  });
  try {
    const tunnel = await open(gone.signal);
    tunnel.on("error", fail);
    if (tunnel.errored !== null) throw tunnel.errored;
    reads.begin(socket);
    socket.on("data", (bytes: Buffer) => {
      // A tunnel that fails may still use these bytes, so their buffer is not released for reuse.
      const wantsMore = tunnel.write(bytes, (error) => (error ?? tunnel.destroyed) || reads.release(bytes));
      if (!wantsMore) socket.pause();
    });
    tunnel.on("drain", () => socket.resume());
    socket.on("end", () => tunnel.end());
    tunnel.pipe(socket);
  } catch (error) {
    fail(error);
  }
}

/** The servers that listen for local connections, and their port. */
interface Listening {
  readonly servers: readonly Server[];
  /** The port; 0 for a unix socket. */
  readonly port: number;
}

/** Starts listening. Replaces a stale unix socket, on which no process listens. Rejects with GuestError. */
async function listening(make: () => Server, listen: number | string, host: string): Promise<Listening> {
  if (typeof listen === "number") return host === LOCALHOST ? onLoopback(make, listen) : onAddress(make, listen, host);
  const server = make();
  try {
    await listeningOnce(server, { path: listen }, listen);
  } catch (error) {
    if (errnoOf((error as GuestError).cause) !== "EADDRINUSE" || !(await isStale(listen))) throw error;
    await unlink(listen);
    await listeningOnce(server, { path: listen }, listen);
  }
  return { servers: [server], port: 0 };
}

async function onAddress(make: () => Server, listen: number, host: string, hint = ""): Promise<Listening> {
  const server = make();
  const where = `${host}, port ${listen}${hint}`;
  return { servers: [server], port: await listeningOnce(server, { port: listen, host }, where) };
}

/**
 * Listens on both loopback addresses, because `localhost` stands for both, and programs differ in which one they try
 * first (RFC 6761, 6.3).
 */
async function onLoopback(make: () => Server, listen: number): Promise<Listening> {
  for (let tries = 1; ; tries += 1) {
    const { servers, port } = await onAddress(make, listen, "127.0.0.1");
    try {
      const second = await onAddress(
        make,
        port,
        "::1",
        " (the port is free on 127.0.0.1; to listen only there, write 127.0.0.1:PORT)",
      );
      return { servers: [...servers, ...second.servers], port };
    } catch (error) {
      // These errors mean that the machine has no IPv6, so listen on 127.0.0.1 alone.
      if (NO_ADDRESS.has(errnoOf((error as GuestError).cause) ?? "")) return { servers, port };
      await Promise.all(servers.map(closed));
      // A port that is free on 127.0.0.1 may be in use on ::1. In that case, try another port.
      if (listen !== 0 || tries === FREE_PORT_TRIES) throw error;
    }
  }
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}

function listeningOnce(server: Server, at: ListenOptions, where: string): Promise<number> {
  return new Promise((resolve, reject) => {
    // Keep this handler after the server has begun to listen. Without it, a single connection that fails would end the
    // process. The promise is settled by then, so reject() does nothing.
    server.on("error", (error: NodeJS.ErrnoException) => {
      const status = error.code === "EADDRINUSE" ? "ALREADY_EXISTS" : "FAILED_PRECONDITION";
      reject(failure(status, "LISTEN_FAILED", `cannot listen on ${where}: ${messageOf(error)}`, error));
    });
    fromArguments("the options of forward() are not valid", () => server.listen(at));
    server.once("listening", () => {
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : 0);
    });
  });
}

/** Whether a path is a unix socket on which no process listens. Only such a file may be removed. */
async function isStale(path: string): Promise<boolean> {
  // Check the file's type first, because connecting to a regular file fails with ECONNREFUSED, like connecting to an
  // unused socket.
  if (!(await lstat(path)).isSocket()) return false;
  return new Promise((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(false);
    });
    probe.on("error", (error) => resolve(errnoOf(error) === "ECONNREFUSED"));
  });
}
