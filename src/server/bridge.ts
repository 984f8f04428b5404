import { once } from "node:events";
import { createReadStream, createWriteStream, fstatSync } from "node:fs";
import { connect, Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { errnoOf } from "../domain/index.ts";

/** sysexits(3). */
const STATUS_USAGE = 64;
const STATUS_UNAVAILABLE = 69;
const STATUS_IO_ERROR = 74;

/** EIO: a terminal or port whose other end was closed. */
const PEER_GONE: ReadonlySet<string> = new Set(["EPIPE", "ECONNRESET", "EIO", "ERR_STREAM_PREMATURE_CLOSE"]);

/**
 * Joins standard input and output (pipes, sockets, a virtio-serial port, a raw terminal) to a guest agent's unix socket,
 * byte for byte. The end of the input is passed on and the rest of the answer still arrives; the agent's end ends the
 * bridge. Resolves with the exit status; what failed is told to `complain`. Nothing but the agent's bytes goes to
 * standard output.
 */
export async function bridge(path: string | undefined, complain: (line: string) => void): Promise<number> {
  if (!path) {
    complain("bridge: no socket; name it as the argument or in SVC_GUEST_SOCKET");
    return STATUS_USAGE;
  }
  const agent = connect({ path, allowHalfOpen: true });
  try {
    await once(agent, "connect");
  } catch (error) {
    complain(`bridge: cannot reach the agent at ${path}: ${errnoOf(error) ?? "unknown error"}; does it listen there?`);
    return STATUS_UNAVAILABLE;
  }
  try {
    const sent = pipeline(openInput(), agent);
    const received = pipeline(agent, openOutput());
    // A failure to send is the failure to receive as well, unless the agent has already said all it had to.
    sent.catch(() => undefined);
    // The end of a line is that of both directions; a write to it waits for the next host, so nobody waits for the write.
    const lineEnded = fstatSync(0).isCharacterDevice() ? [sent.catch(() => received)] : [];
    await Promise.race([received, ...lineEnded]);
    return 0;
  } catch (error) {
    const errno = errnoOf(error) ?? "unknown error";
    if (PEER_GONE.has(errno)) return 0;
    complain(`bridge: standard input or output failed: ${errno}`);
    return STATUS_IO_ERROR;
  }
}

function openInput(): Readable {
  return isStream(0) ? new Socket({ fd: 0, readable: true, writable: false }) : createReadStream("", { fd: 0 });
}

/** Not process.stdout: its writes to a pipe or terminal block, and with them the other direction. */
function openOutput(): Writable {
  return isStream(1) ? new Socket({ fd: 1, readable: false, writable: true }) : createWriteStream("", { fd: 1 });
}

/** What Node's event loop can read and write. A device is left to its threads. */
function isStream(fd: number): boolean {
  const status = fstatSync(fd);
  return status.isFIFO() || status.isSocket();
}
