import { lstatSync, unlinkSync } from "node:fs";
import { chmod, lstat, mkdir, rename, stat, unlink } from "node:fs/promises";
import { type AddressInfo, connect, type ListenOptions, type Server } from "node:net";
import { dirname, join } from "node:path";
import { AgentError, errnoOf } from "../domain/index.ts";

/** Room for a path in sockaddr_un, without its NUL (unix(7)). Node would cut a longer one silently. */
const PATH_LIMIT_BYTES = 107;
/** How long a socket's owner may take to accept before it counts as alive. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * Listens on a unix socket. Missing folders are created; a socket that nobody listens on any more is replaced; a live
 * one, and anything that is no socket, is left alone and refused with an AgentError. Returns what removes the socket's path,
 * to be called when the server is closed; that of another process, which has listened there since, is left alone.
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
    await makeFolder(dirname(path));
    await removeStale(path);
    const bound = bindingPath(path);
    await listening(server, { path: bound });
    await chmod(bound, mode);
    const { dev, ino } = await lstat(bound);
    if (bound !== path) await rename(bound, path);
    return () => removeOwn(path, dev, ino);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw socketError(path, error);
  }
}

/** As `mkdir -p`. Node's own says ENOENT for whatever keeps it from making one, a read-only file system for example. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "EEXIST" && (await stat(path)).isDirectory()) return;
    if (errno !== "ENOENT") throw error;
    await makeFolder(dirname(path));
    await makeFolder(path);
  }
}

/**
 * Node removes the path that it bound when the server closes, whoever's it is by then. So it binds another one in the same
 * folder, which becomes the real one once its mode is right too. Only a path with no room for that is bound as it is.
 */
function bindingPath(path: string): string {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  const beside = join(dirname(path), `.svc-${randomBytes(3).toString("hex")}`);
  return Buffer.byteLength(beside) <= PATH_LIMIT_BYTES ? beside : path;
}

function removeOwn(path: string, dev: number, ino: number): void {
  try {
    const present = lstatSync(path);
    if (present.dev === dev && present.ino === ino) unlinkSync(path);
  } catch (error) {
    // Gone already, or in a folder that has become read-only: the agent leaves all the same.
    if (errnoOf(error) === undefined) throw error;
  }
}

async function removeStale(path: string): Promise<void> {
  const existing = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  });
  if (existing === undefined) return;
  if (!existing.isSocket()) throw taken(path, "is there already and is no socket");
  if (await isAlive(path)) throw taken(path, "is in use: another process listens on it");
  await unlink(path);
}

/** A full queue (EAGAIN) has an owner as well; only a refusal means that there is none. */
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
    // Without an address, Node needs neither its resolver nor its parser of addresses, which take 8 ms to set up.
    await listening(server, { port });
    // Node falls back to IPv4 whatever keeps it from IPv6: a port in use there must not be passed over.
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
