import { once } from "node:events";
import { connect, Socket } from "node:net";
import { pipeline } from "node:stream/promises";
import { errnoOf } from "./listening.ts";

/** sysexits(3). */
const STATUS_USAGE = 64;
const STATUS_UNAVAILABLE = 69;
const STATUS_IO_ERROR = 74;

const PEER_GONE: ReadonlySet<string> = new Set(["EPIPE", "ECONNRESET", "ERR_STREAM_PREMATURE_CLOSE"]);

/**
 * Joins standard input and output (pipes or sockets) to a guest agent's unix socket, byte for byte. The end of the
 * input is passed on and the rest of the answer still arrives; the agent's end ends the bridge. Resolves with the exit
 * status; what failed is told to `complain`. Nothing but the agent's bytes goes to standard output.
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
    // Not process.stdout: its writes to a pipe block, and with them the other direction.
    const input = new Socket({ fd: 0, readable: true, writable: false });
    const output = new Socket({ fd: 1, readable: false, writable: true });
    const sent = pipeline(input, agent);
    const received = pipeline(agent, output);
    // A failure to send is the failure to receive as well, unless the agent has already said all it had to.
    sent.catch(() => undefined);
    await received;
    return 0;
  } catch (error) {
    const errno = errnoOf(error) ?? "unknown error";
    if (PEER_GONE.has(errno)) return 0;
    complain(`bridge: standard input and output must be pipes or sockets, and one of them failed: ${errno}`);
    return STATUS_IO_ERROR;
  }
}
