import { chmodSync, lstatSync, renameSync, unlinkSync } from "node:fs";
import { type AddressInfo, connect, type ListenOptions, type Server } from "node:net";
import { dirname, join } from "node:path";
import { AgentError, type Reason, SOCKET_PATH_LIMIT_BYTES, type StatusName } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { makeFolder } from "../../shared/make-folder.ts";

/** A socket whose owner has not answered after this time counts as alive. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * Listens on a unix socket. Creates missing directories and replaces a socket on which nobody listens any more. Throws
 * AgentError for a live socket and for anything else at the path. Returns a function that removes the path, for when
 * the server is closed; it leaves the socket of another process that has listened there since. Looks at the directory
 * synchronously: the workload waits for this, promises of node:fs would take longer, and bind(2) waits for the file
 * system anyway.
 *
 * @param path of SOCKET_PATH_LIMIT_BYTES at most: Node would cut a longer one silently
 */
export async function listenUnix(server: Server, path: string, mode: number): Promise<() => void> {
  try {
    makeFolder(dirname(path));
    await removeStale(path);
    const bound = bindingPath(path);
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

/** Throws AgentError where `listenUnix` could not listen on a path for what is there already. Makes its directory. */
export async function checkUnix(path: string): Promise<void> {
  try {
    makeFolder(dirname(path));
    await removeStale(path);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw listenError(`the socket path ${path}`, { path }, errnoOf(error), error);
  }
}

/**
 * When the server closes Node removes the path that it bound, even if another process owns it by then. So bind another
 * path in the same directory and rename it once its mode is right. A path that leaves no room for that is bound
 * directly. The name must only differ from what is there: for a random one of node:crypto the workload would wait 4
 * ms.
 */
function bindingPath(path: string): string {
  const beside = join(dirname(path), `.svc-${Math.random().toString(36).slice(2, 8)}`);
  return Buffer.byteLength(beside) <= SOCKET_PATH_LIMIT_BYTES ? beside : path;
}

function removeOwn(path: string, dev: number, ino: number): void {
  try {
    const present = lstatSync(path);
    if (present.dev === dev && present.ino === ino) unlinkSync(path);
  } catch (error) {
    // Removed already, or in a directory that became read-only: the agent still leaves.
    if (errnoOf(error) === undefined) throw error;
  }
}

async function removeStale(path: string): Promise<void> {
  const existing = lstatSync(path, { throwIfNoEntry: false });
  if (existing === undefined) return;
  if (!existing.isSocket()) throw taken(path, "already exists and is not a socket");
  if (await isAlive(path)) throw taken(path, "is in use: another process listens on it");
  unlinkSync(path);
}

/** Only a refusal means that nobody listens: a full queue (EAGAIN) has an owner too. */
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

function taken(path: string, problem: string): AgentError {
  return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", `the socket path ${path} ${problem}`, { path });
}

type ListenProblem = readonly [status: StatusName, reason: Reason, problem: string];

const FORBIDDEN: ListenProblem = ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", "cannot be used: permission denied"];
/** mkdir(2) and bind(2): a part of the directory's path is a file, a link that dangles, or cannot be made (in /proc). */
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
    "cannot be listened on: this kernel does not support such sockets; load the module or remove the variable",
  ],
  EROFS: ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", "is on a read-only file system"],
  EEXIST: NO_DIRECTORY,
  ENOTDIR: NO_DIRECTORY,
  ENOENT: NO_DIRECTORY,
};

/** Why nobody can listen at a place, by the errno. */
export function listenError(
  what: string,
  place: Readonly<Record<string, string>>,
  errno: string = "unknown error",
  cause?: unknown,
): AgentError {
  const [status, reason, problem] = PROBLEMS[errno] ?? ["INTERNAL", "INTERNAL", `cannot be listened on: ${errno}`];
  return new AgentError(status, reason, `${what} ${problem}`, { ...place, errno }, cause);
}

/** A TCP port, on all addresses, 0 for any free one; or the descriptor of a socket that listens already. */
export type TcpPlace = number | { readonly fd: number };

/** Listens on all addresses, IPv6 and IPv4 where the guest has both. Returns the port. Throws AgentError when it cannot. */
export async function listenTcp(server: Server, place: TcpPlace): Promise<number> {
  if (typeof place !== "number") {
    await listening(server, place);
    return addressOf(server).port;
  }
  const port = place;
  try {
    // Without an address Node loads neither its resolver nor its address parser, which take 8 ms.
    await listening(server, { port });
    // Node falls back to IPv4 for any failure of IPv6, even if the port is in use there: find out.
    if (addressOf(server).family === "IPv4") await listenExplicitly(server, port);
  } catch (error) {
    throw listenError(`TCP port ${port}`, { port: String(port) }, errnoOf(error), error);
  }
  return addressOf(server).port;
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

/** Resolves once the server listens; rejects with Node's error when it cannot. */
function listening(server: Server, options: ListenOptions | { readonly fd: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
