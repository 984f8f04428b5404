import { lstat, unlink } from "node:fs/promises";
import { connect, createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { errnoOf, messageOf } from "../../../shared/errors.ts";
import { fromArguments } from "../arguments.ts";
import { failure, type GuestError, invalidOption } from "../errors.ts";
import type { ConnectOptions } from "../link/link.ts";
import type { TunnelOpener } from "./opener.ts";
import { LargeReads } from "../internals/large-reads.ts";
import type { GuestTunnel } from "./tunnel.ts";

/**
 * What waits for a local socket before its tunnel does: what comes in one tick of the event loop, to be written at
 * once.
 */
const QUEUE_BYTES = 1024 * 1024;

/** The address that stands for both of the loopback. */
const LOCALHOST = "localhost";
/** Errnos of listen(2) without IPv6. */
const NO_ADDRESS: ReadonlySet<string> = new Set(["EADDRNOTAVAIL", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EINVAL"]);
const FREE_PORT_TRIES = 10;

/** Options of `forward`. */
export interface ForwardOptions {
  /** TCP port in the guest; or give a path. */
  readonly port?: number | undefined;
  /** Absolute path of a unix socket in the guest. */
  readonly path?: string | undefined;
  /** TCP port to listen on here, or the path of a unix socket. Default: 0, any port that is free. */
  readonly listen?: number | string | undefined;
  /** Address to listen on. Default: "localhost", which is 127.0.0.1 and, where this machine has it, ::1. */
  readonly host?: string | undefined;
  /**
   * Address and credentials, which a restore may change. Called when a connection failed in a way in which reconnecting
   * may help (`isTransient`). Default: the client's.
   */
  readonly connectOptions?: (() => ConnectOptions | Promise<ConnectOptions>) | undefined;
  /** Called for each connection that failed in the guest or on its way there; the forwarding goes on. */
  readonly onError?: ((error: GuestError) => void) | undefined;
  /** Called for each connection that was opened in the guest. */
  readonly onConnect?: (() => void) | undefined;
  /** Aborting closes it. */
  readonly signal?: AbortSignal | undefined;
}

/** A local port or unix socket that is forwarded into the guest. */
export interface Forwarding extends AsyncDisposable {
  /** The port that is listened on; 0 for a unix socket. */
  readonly port: number;
  /** Stops listening and breaks off what is connected. Resolves when all is closed. */
  close(): Promise<void>;
}

/** Names of the options. */
export const FORWARD_NAMES: Readonly<Record<keyof ForwardOptions, true>> = {
  port: true,
  path: true,
  listen: true,
  host: true,
  connectOptions: true,
  onError: true,
  onConnect: true,
  signal: true,
};

/**
 * Listens here, and connects each client to the guest.
 *
 * @throws GuestError where it cannot listen
 */
export async function forward(
  { port, path, listen = 0, host = LOCALHOST, onError, onConnect, signal }: ForwardOptions,
  opener: TunnelOpener,
): Promise<Forwarding> {
  const target = port ?? path;
  if (target === undefined || (port !== undefined && path !== undefined)) {
    throw invalidOption("port", "forward requires a port or a path");
  }
  const sockets = new Set<Socket>();
  const reads = new LargeReads();
  const accept = (socket: Socket): void => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    const open = async (gone: AbortSignal): Promise<GuestTunnel> => {
      const tunnel = await opener.open(target, gone);
      onConnect?.();
      return tunnel;
    };
    void carry(socket, reads, open, onError);
  };
  const make = (): Server => createServer({ allowHalfOpen: true, noDelay: true, highWaterMark: QUEUE_BYTES }, accept);
  const { servers, port: bound } = await listening(make, listen, host);
  // Such as EMFILE of accept(2): the others go on, and without a listener it would end this process.
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

/** Carries bytes both ways. Each side sees how the other ended: normally, or broken off. */
async function carry(
  socket: Socket,
  reads: LargeReads,
  open: (signal: AbortSignal) => Promise<GuestTunnel>,
  onError: ForwardOptions["onError"],
): Promise<void> {
  const gone = new AbortController();
  const fail = (error: unknown): void => {
    if (gone.signal.aborted) return;
    // A unix socket cannot be reset.
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
      // What a broken tunnel has not sent may still be on its way.
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

/** What listens, and its port. */
interface Listening {
  readonly servers: readonly Server[];
  /** 0 for a unix socket. */
  readonly port: number;
}

/** A stale socket, on which nobody listens, is replaced. Rejects with GuestError. */
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

/** `localhost` has both addresses, and programs differ in which they try (RFC 6761, 6.3). */
async function onLoopback(make: () => Server, listen: number): Promise<Listening> {
  for (let tries = 1; ; tries += 1) {
    const { servers, port } = await onAddress(make, listen, "127.0.0.1");
    try {
      const second = await onAddress(make, port, "::1", " (127.0.0.1 is free: 127.0.0.1:PORT listens only there)");
      return { servers: [...servers, ...second.servers], port };
    } catch (error) {
      // A machine without IPv6.
      if (NO_ADDRESS.has(errnoOf((error as GuestError).cause) ?? "")) return { servers, port };
      await Promise.all(servers.map(closed));
      // A port that is free at one address need not be free at the other.
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
    // Later errors, of single connections, change nothing.
    server.on("error", (error: NodeJS.ErrnoException) => {
      const status = error.code === "EADDRINUSE" ? "ALREADY_EXISTS" : "FAILED_PRECONDITION";
      reject(failure(status, "LISTEN_FAILED", `cannot listen on ${where}: ${messageOf(error)}`, error));
    });
    fromArguments("the options of forward are not valid", () => server.listen(at));
    server.once("listening", () => {
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : 0);
    });
  });
}

/** Whether a path is a unix socket on which nobody listens. Nothing else may be removed. */
async function isStale(path: string): Promise<boolean> {
  // A regular file refuses connections as well.
  if (!(await lstat(path)).isSocket()) return false;
  return new Promise((resolve) => {
    const probe = connect(path, () => {
      probe.destroy();
      resolve(false);
    });
    probe.on("error", (error) => resolve(errnoOf(error) === "ECONNREFUSED"));
  });
}
