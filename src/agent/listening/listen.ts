import { chmodSync, lstatSync, renameSync, unlinkSync } from "node:fs";
import { type AddressInfo, connect, type ListenOptions, type Server } from "node:net";
import { dirname, join } from "node:path";
import { AgentError, type Reason, SOCKET_PATH_LIMIT_BYTES, type StatusName } from "../domain/index.ts";
import { listeningHandle } from "../internals/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { makeDirectory } from "../../shared/make-directory.ts";

/** If a test connection to a socket takes longer than this, a process is assumed to listen on the socket. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * Listens on a unix socket at `path`. If a socket on which no process listens any more is there, replaces it. Throws
 * AgentError if the socket is in use, or if the path is not a socket. Call the returned function after the server is
 * closed: it removes the path, unless another process listens there now.
 *
 * The file system calls are synchronous, because promises of node:fs would delay the workload's start.
 *
 * @param path must not be longer than SOCKET_PATH_LIMIT_BYTES, because Node silently truncates a longer path
 */
export async function listenUnix(server: Server, path: string, mode: number): Promise<() => void> {
  try {
    makeDirectory(dirname(path));
    await removeStale(path);
    const bound = temporaryPath(path);
    await listening(server, { path: bound });
    chmodSync(bound, mode);
    const { dev, ino } = lstatSync(bound);
    if (bound !== path) renameSync(bound, path);
    return () => removeOwn(path, dev, ino);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw listenError(`the socket path ${path}`, { path }, errnoOf(error), error);
  }
}

/**
 * Creates the directory of a socket path, and removes a socket on which no process listens. Throws AgentError if the
 * socket is in use, or if the path is not a socket.
 */
export async function checkUnix(path: string): Promise<void> {
  try {
    makeDirectory(dirname(path));
    await removeStale(path);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw listenError(`the socket path ${path}`, { path }, errnoOf(error), error);
  }
}

/**
 * Returns a temporary path to bind, which the caller then renames to `path`. The server must not bind `path` itself:
 * when a server closes, Node removes the path that it bound, even if another process uses this path by then. Exception:
 * if the temporary path would be too long, returns `path`.
 *
 * Math.random is used because a random name of node:crypto would delay the workload by 4 ms.
 */
function temporaryPath(path: string): string {
  const temporary = join(dirname(path), `.svc-${Math.random().toString(36).slice(2, 8)}`);
  return Buffer.byteLength(temporary) <= SOCKET_PATH_LIMIT_BYTES ? temporary : path;
}

function removeOwn(path: string, dev: number, ino: number): void {
  try {
    const present = lstatSync(path);
    if (present.dev === dev && present.ino === ino) unlinkSync(path);
  } catch (error) {
    // For example, the path was already removed, or the directory has become read-only. During shutdown, no such error
    // matters.
    if (errnoOf(error) === undefined) throw error;
  }
}

async function removeStale(path: string): Promise<void> {
  const existing = lstatSync(path, { throwIfNoEntry: false });
  if (existing === undefined) return;
  if (!existing.isSocket()) throw pathInUse(path, "already exists and is not a socket");
  if (await isAlive(path)) throw pathInUse(path, "is in use: another process listens on it");
  unlinkSync(path);
}

/**
 * Whether a process listens on the socket. Only ECONNREFUSED and ENOENT show that no process listens. EAGAIN, for
 * example, means that the listener's queue is full.
 */
function isAlive(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    const settle = (alive: boolean): void => {
      probe.destroy();
      resolve(alive);
    };
    probe.setTimeout(PROBE_TIMEOUT_MS, () => settle(true));
    probe.once("connect", () => settle(true));
    probe.once("error", (error) => settle(!["ECONNREFUSED", "ENOENT"].includes(errnoOf(error) ?? "")));
  });
}

function pathInUse(path: string, problem: string): AgentError {
  return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", `the socket path ${path} ${problem}`, { path });
}

type ListenProblem = readonly [status: StatusName, reason: Reason, problem: string];

const FORBIDDEN: ListenProblem = ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", "cannot be used: permission denied"];
/** The error if a parent directory is a file or a dangling symlink, or cannot be created (as in /proc). */
const NO_DIRECTORY: ListenProblem = [
  "FAILED_PRECONDITION",
  "FILE_ERROR",
  "cannot be created: a parent in its path is not a directory; choose another path",
];
const PROBLEMS: Readonly<Record<string, ListenProblem>> = {
  EADDRINUSE: ["ALREADY_EXISTS", "ALREADY_EXISTS", "is in use"],
  EACCES: FORBIDDEN,
  EPERM: FORBIDDEN,
  EAFNOSUPPORT: [
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "cannot be listened on: this kernel does not support such sockets; load the kernel module for them, or unset the variable",
  ],
  EROFS: ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", "is on a read-only file system"],
  EEXIST: NO_DIRECTORY,
  ENOTDIR: NO_DIRECTORY,
  ENOENT: NO_DIRECTORY,
};

/** Returns the error for an address on which the agent cannot listen, with advice that depends on the errno. */
export function listenError(
  what: string,
  place: Readonly<Record<string, string>>,
  errno: string = "unknown error",
  cause?: unknown,
): AgentError {
  const [status, reason, problem] = PROBLEMS[errno] ?? ["INTERNAL", "INTERNAL", `cannot be listened on: ${errno}`];
  return new AgentError(status, reason, `${what} ${problem}`, { ...place, errno }, cause);
}

/** A TCP port on all addresses (0: any free port), or the descriptor of a socket that already listens. */
export type TcpAddress = number | { readonly fd: number };

/** Listens on all addresses, IPv6 and IPv4 if the guest has both. Returns the port. Throws AgentError on failure. */
export async function listenTcp(server: Server, place: TcpAddress): Promise<number> {
  if (typeof place !== "number") {
    await listening(server, place);
    return addressOf(server).port;
  }
  const port = place;
  try {
    // No address is given: with an address, Node would load its resolver and its address parser, which takes 8 ms.
    await listening(server, { port });
    // After any error on IPv6, Node silently listens on IPv4 only, even if the error is that the port is in use on
    // IPv6. listenExplicitly() tries IPv6 again and reports such an error.
    if (addressOf(server).family === "IPv4") await listenExplicitly(server, port);
  } catch (error) {
    throw listenError(`TCP port ${port}`, { port: String(port) }, errnoOf(error), error);
  }
  return addressOf(server).port;
}

/** Accepts connections on a listening vsock socket. Takes ownership of the descriptor. Throws AgentError on failure. */
export async function listenVsock(server: Server, fd: number): Promise<void> {
  const handle = listeningHandle(fd);
  if (handle === undefined) throw listenError("the vsock port", {}, "this version of Node does not support vsock");
  await listening(server, handle);
}

async function listenExplicitly(server: Server, port: number): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
  try {
    await listening(server, { host: "::", port, ipv6Only: false });
  } catch (error) {
    if (!["EAFNOSUPPORT", "EADDRNOTAVAIL"].includes(errnoOf(error) ?? "")) throw error;
    await listening(server, { host: "0.0.0.0", port });
  }
}

function addressOf(server: Server): AddressInfo {
  return server.address() as AddressInfo;
}

/** Resolves when the server listens; rejects with Node's error if it cannot. */
function listening(server: Server, options: ListenOptions | object): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
