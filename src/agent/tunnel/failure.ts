import { AgentError, type Failure, FileSystemError, FileSystemHung, SocketError } from "../domain/index.ts";

const REFUSED: Failure = [
  "FAILED_PRECONDITION",
  "PORT_REFUSED",
  "connection refused: nothing listens there; start the server, or wait for it",
];
const NO_SUCH_SOCKET: Failure = ["NOT_FOUND", "PATH_NOT_FOUND", "the socket does not exist"];

/** Failures by the errno of a socket call (errno(3)). */
const FAILURES: Readonly<Record<string, Failure>> = {
  ECONNREFUSED: REFUSED,
  EPROTOTYPE: ["FAILED_PRECONDITION", "PORT_REFUSED", "the socket is a datagram socket, not a stream socket"],
  ENOTSOCK: ["FAILED_PRECONDITION", "PORT_REFUSED", "it is not a socket"],
  ETIMEDOUT: ["FAILED_PRECONDITION", "PORT_UNREACHABLE", "the server did not accept the connection in time"],
  ENETUNREACH: [
    "FAILED_PRECONDITION",
    "PORT_UNREACHABLE",
    "the guest's loopback interface is down; bring it up (`ip link set lo up`), as an init does",
  ],
  EACCES: ["PERMISSION_DENIED", "PATH_PERMISSION_DENIED", "permission denied"],
  ENOENT: NO_SUCH_SOCKET,
  ENOTDIR: NO_SUCH_SOCKET,
  ELOOP: NO_SUCH_SOCKET,
};
const UNREACHABLE: Failure = ["FAILED_PRECONDITION", "PORT_UNREACHABLE", "no route to the address in the guest"];
const HUNG: Failure = [
  "FAILED_PRECONDITION",
  "FILE_SYSTEM_HUNG",
  "its file system does not respond; try again when it does",
];

/**
 * Returns the error for a port that cannot be reached. If `error` is not from the socket or the file system, returns
 * `error` itself.
 */
export function portFailure(error: unknown, port: number, hint = ""): unknown {
  return failure(error, `port ${port}`, { port: String(port) }, hint);
}

/**
 * The error for a port on which no server listened in time. A server may listen on `otherAddress`, which tunnels do not
 * reach.
 */
export function notListening(port: number, limitMs: number, otherAddress: string | undefined): AgentError {
  const message = `nothing listened on port ${port} of the guest's loopback interface within ${limitMs} ms${otherAddressHint(otherAddress)}`;
  return new AgentError("DEADLINE_EXCEEDED", "PORT_NOT_LISTENING", message, { port: String(port) });
}

/** A hint if a server listens on the port, but only on an address that tunnels do not reach; otherwise empty. */
export function otherAddressHint(address: string | undefined): string {
  return address === undefined ? "" : `; a server listens only on ${address}: make it listen on 127.0.0.1, too`;
}

/** The error if the kernel does not provide the list of listening ports. */
export function portsNotKnown(): AgentError {
  const message = "the guest has no /proc/net/tcp, which lists listening sockets; mount /proc";
  return new AgentError("FAILED_PRECONDITION", "PORTS_NOT_KNOWN", message);
}

/**
 * Returns the error for a unix socket that cannot be reached. If `error` is not from the socket or the file system,
 * returns `error` itself.
 */
export function pathFailure(error: unknown, path: string): unknown {
  return failure(error, JSON.stringify(path), { path });
}

/** The error for a connection that the server in the guest reset. */
export function resetFailure(errno: string): AgentError {
  const message = `the connection was reset by the server in the guest (${errno})`;
  return new AgentError("ABORTED", "PORT_RESET", message, { errno });
}

function failure(error: unknown, place: string, metadata: Readonly<Record<string, string>>, hint = ""): unknown {
  if (!(error instanceof SocketError || error instanceof FileSystemError)) return error;
  const { errno } = error;
  const [status, reason, problem] = error instanceof FileSystemHung ? HUNG : (FAILURES[errno] ?? UNREACHABLE);
  return new AgentError(
    status,
    reason,
    `cannot connect to ${place}: ${problem} (${errno})${hint}`,
    { ...metadata, errno },
    error,
  );
}
