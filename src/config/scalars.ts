import type { LogLevel } from "../domain/index.ts";
import { reservedTransport } from "../transports.ts";
import type { Read } from "./read.ts";

const LOG_LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** Longest path of a unix socket: sun_path is 108 bytes with its terminator (unix(7)). */
const SOCKET_PATH_LIMIT_BYTES = 107;

/** Reads SVC_GUEST_PORT. */
export function readPort(text: string | undefined): Read<number | undefined> {
  if (text === undefined) return { value: undefined, problems: [] };
  const port = /^[0-9]{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65535
    ? { value: port, problems: [] }
    : { value: undefined, problems: ["must be a number from 1 to 65535"] };
}

/** Reads SVC_GUEST_SOCKET or SVC_WORKLOAD_SOCKET. */
export function readSocketPath(path: string | undefined): Read<string | undefined> {
  if (path === undefined) return { value: undefined, problems: [] };
  const reserved = reservedTransport(path);
  if (reserved !== undefined) return { value: path, problems: [reserved] };
  const problems: string[] = [];
  if (!path.startsWith("/")) problems.push("must be an absolute path");
  else if (path.endsWith("/")) problems.push("must name a file, not a directory");
  if (Buffer.byteLength(path) > SOCKET_PATH_LIMIT_BYTES) {
    problems.push(`must not be longer than ${SOCKET_PATH_LIMIT_BYTES} bytes, the limit of a unix socket's path`);
  }
  return { value: path, problems };
}

/** Reads SVC_LOG_LEVEL. Absent: info. */
export function readLogLevel(text = "info"): Read<LogLevel> {
  const level = LOG_LEVELS.find((candidate) => candidate === text);
  return level === undefined
    ? { value: "info", problems: [`must be one of ${LOG_LEVELS.join(", ")}`] }
    : { value: level, problems: [] };
}
