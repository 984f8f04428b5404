import { chmodSync, lstatSync, mkdirSync, renameSync, statSync, unlinkSync } from "node:fs";
import { type AddressInfo, connect, type ListenOptions, type Server } from "node:net";
import { dirname, join } from "node:path";
import { AgentError, errnoOf } from "../domain/index.ts";

/** Room for a path in sockaddr_un, without its NUL (unix(7)). Node would cut a longer one silently. */
const PATH_LIMIT_BYTES = 107;
/** A socket whose owner has not answered after this time counts as alive. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * Listens on a unix socket. Creates missing folders and replaces a socket on which nobody listens any more. Throws
 * AgentError for a live socket and for anything else at the path. Returns a function that removes the path, for when the
 * server is closed; it leaves the socket of another process that has listened there since. Looks at the folder synchronously:
 * the workload waits for this, promises of node:fs would take longer, and bind(2) waits for the file system anyway.
 */
export async function listenUnix(server: Server, path: string, mode: number): Promise<() => void> {
  const sizeBytes = Buffer.byteLength(path);
  if (sizeBytes > PATH_LIMIT_BYTES) {
    throw new AgentError(
      "INVALID_ARGUMENT",
      "INVALID_FIELD",
      `the socket path ${path} has ${sizeBytes} bytes; at most ${PATH_LIMIT_BYTES} fit`,
      { path },
    );
  }
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
    throw socketError(path, error);
  }
}

/** As `mkdir -p`. Node's own reports ENOENT for any failure, for example on a read-only file system. */
function makeFolder(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "EEXIST" && statSync(path).isDirectory()) return;
    if (errno !== "ENOENT") throw error;
    makeFolder(dirname(path));
    makeFolder(path);
  }
}

/**
 * When the server closes Node removes the path that it bound, even if another process owns it by then. So bind another
 * path in the same folder and rename it once its mode is right. A path that leaves no room for that is bound directly.
 * The name must only differ from what is there: for a random one of node:crypto the workload would wait 4 ms.
 */
function bindingPath(path: string): string {
  const beside = join(dirname(path), `.svc-${Math.random().toString(36).slice(2, 8)}`);
  return Buffer.byteLength(beside) <= PATH_LIMIT_BYTES ? beside : path;
}

function removeOwn(path: string, dev: number, ino: number): void {
  try {
    const present = lstatSync(path);
    if (present.dev === dev && present.ino === ino) unlinkSync(path);
  } catch (error) {
    // Removed already, or in a folder that became read-only: the agent still leaves.
    if (errnoOf(error) === undefined) throw error;
  }
}

async function removeStale(path: string): Promise<void> {
  const existing = lstatSync(path, { throwIfNoEntry: false });
  if (existing === undefined) return;
  if (!existing.isSocket()) throw taken(path, "is there already and is no socket");
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

function socketError(path: string, cause: unknown): AgentError {
  const errno = errnoOf(cause) ?? "unknown error";
  const metadata = { path, errno };
  if (errno === "EADDRINUSE") return taken(path, "is in use");
  if (errno === "EACCES" || errno === "EPERM" || errno === "EROFS") {
    return new AgentError(
      "PERMISSION_DENIED",
      "PATH_PERMISSION_DENIED",
      `the socket ${path} cannot be created: ${errno}`,
      metadata,
      cause,
    );
  }
  // mkdir(2) and bind(2): a part of the folder's path is a file, or nothing (a link that dangles).
  if (errno === "EEXIST" || errno === "ENOTDIR" || errno === "ENOENT") {
    return new AgentError(
      "FAILED_PRECONDITION",
      "FILE_ERROR",
      `the socket ${path} cannot be created: a part of its folder's path is no folder (${errno}); name another`,
      metadata,
      cause,
    );
  }
  return new AgentError("INTERNAL", "INTERNAL", `cannot listen on the socket ${path}: ${errno}`, metadata, cause);
}

/** Listens on all addresses, IPv6 and IPv4 where the guest has both. Port 0: any free one. Returns the port. */
export async function listenTcp(server: Server, port: number): Promise<number> {
  try {
    // Without an address Node loads neither its resolver nor its address parser, which take 8 ms.
    await listening(server, { port });
    // Node falls back to IPv4 for any failure of IPv6, also where the port is in use there: find out.
    if (addressOf(server).family === "IPv4") await listenExplicitly(server, port);
  } catch (error) {
    throw portError(port, error);
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

function portError(port: number, cause: unknown): AgentError {
  const errno = errnoOf(cause) ?? "unknown error";
  const metadata = { port: String(port), errno };
  switch (errno) {
    case "EADDRINUSE":
      return new AgentError("ALREADY_EXISTS", "ALREADY_EXISTS", `TCP port ${port} is in use`, metadata, cause);
    case "EACCES":
      return new AgentError(
        "PERMISSION_DENIED",
        "PATH_PERMISSION_DENIED",
        `TCP port ${port} may not be used by this user`,
        metadata,
        cause,
      );
    default:
      return new AgentError("INTERNAL", "INTERNAL", `cannot listen on TCP port ${port}: ${errno}`, metadata, cause);
  }
}

/** Resolves once the server listens; rejects with Node's error when it cannot. */
function listening(server: Server, options: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
