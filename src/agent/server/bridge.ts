import { once } from "node:events";
import { createReadStream, createWriteStream, fstatSync } from "node:fs";
import { connect, Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { errnoOf } from "../../shared/errors.ts";

/** Exit statuses of sysexits(3). */
const STATUS_USAGE = 64;
const STATUS_UNAVAILABLE = 69;
const STATUS_IO_ERROR = 74;

/** Errors that mean that the other end was closed. Terminals and serial ports report EIO. */
const PEER_GONE: ReadonlySet<string> = new Set(["EPIPE", "ECONNRESET", "EIO", "ERR_STREAM_PREMATURE_CLOSE"]);

/**
 * Connects standard input and output to an agent's unix socket. After the end of the input, still delivers the rest of
 * the agent's output. Standard output gets only bytes of the agent; failures are passed to `printError`. Resolves with
 * the exit status.
 */
export async function bridge(path: string | undefined, printError: (line: string) => void): Promise<number> {
  if (!path) {
    printError("bridge: no socket given; pass it as the argument or set SVC_GUEST_SOCKET");
    return STATUS_USAGE;
  }
  const agent = connect({ path, allowHalfOpen: true });
  try {
    await once(agent, "connect");
  } catch (error) {
    printError(
      `bridge: cannot reach the agent at ${path}: ${errnoOf(error) ?? "unknown error"}; check that it listens there`,
    );
    return STATUS_UNAVAILABLE;
  }
  try {
    const sent = pipeline(openInput(), agent);
    const received = pipeline(agent, openOutput());
    // Errors of sending to the agent are ignored. If the connection is lost, receiving fails, too. Otherwise the agent
    // has closed the connection because it has already sent all its output.
    sent.catch(() => undefined);
    // On a serial port, the host closes both directions at once. So the end of the input also ends the bridge: more
    // output could not be written until a host opens the port again.
    const lineEnded = fstatSync(0).isCharacterDevice() ? [sent.catch(() => received)] : [];
    await Promise.race([received, ...lineEnded]);
    return 0;
  } catch (error) {
    const errno = errnoOf(error) ?? "unknown error";
    if (PEER_GONE.has(errno)) return 0;
    printError(`bridge: standard input or output failed: ${errno}`);
    return STATUS_IO_ERROR;
  }
}

function openInput(): Readable {
  return isStream(0) ? new Socket({ fd: 0, readable: true, writable: false }) : createReadStream("", { fd: 0 });
}

/**
 * A stream that replaces process.stdout. If standard output is a pipe or a terminal, a write to process.stdout blocks
 * the thread, and the bridge could not forward any input during that time.
 */
function openOutput(): Writable {
  return isStream(1) ? new Socket({ fd: 1, readable: false, writable: true }) : createWriteStream("", { fd: 1 });
}

/**
 * Whether Node's event loop can read and write the descriptor. For other types of files, such as devices, Node uses
 * threads.
 */
function isStream(fd: number): boolean {
  const status = fstatSync(fd);
  return status.isFIFO() || status.isSocket();
}
