import { close, closeSync, open, read } from "node:fs";
import { constants } from "node:os";
import { promisify } from "node:util";
import { BufferPool, SocketError, type Sockets, unlessAborted } from "../domain/index.ts";
import { type Addon, errnoName } from "../native/index.ts";
import { FdSocket, SOCKET_BUFFERS } from "./streams/socket.ts";

/** Pause between two attempts to enter a listener's full queue: the kernel does not signal room in it. */
const FULL_QUEUE_PAUSE_MS = 50;

/** Sockets of this process's own network namespace. */
export function guestSockets(addon: Addon): Sockets {
  const pool = new BufferPool(SOCKET_BUFFERS);
  const enterQueue = async (path: Buffer, signal: AbortSignal): Promise<number> => {
    const connecting = addon.connectPath(path);
    return unlessAborted(connecting, signal).catch((error: unknown) => {
      // Its file system may hang; the connection may then succeed much later.
      void connecting.then((fd) => fd >= 0 && closeSync(fd));
      throw error;
    });
  };
  const socketOver = (fd: number): FdSocket => {
    try {
      return new FdSocket(addon, pool, fd);
    } catch (error) {
      // Nobody owns the descriptor if it cannot be watched.
      closeSync(fd);
      throw error;
    }
  };
  return {
    connectPort: async (family, port, signal) => {
      const fd = addon.connectPort(family, port);
      if (fd < 0) throw new SocketError(errnoName(fd));
      const socket = socketOver(fd);
      try {
        const errno = await unlessAborted(socket.connected(), signal);
        if (errno !== undefined) throw new SocketError(errno);
        return socket;
      } catch (error) {
        // It may be connected all the same; without a reset its peer would see an empty stream.
        socket.reset();
        throw error;
      }
    },
    connectPath: async (path, signal) => {
      const bytes = Buffer.from(path);
      let fd = await enterQueue(bytes, signal);
      while (fd === -constants.errno.EAGAIN) {
        await new Promise((resolve) => setTimeout(resolve, FULL_QUEUE_PAUSE_MS));
        fd = await enterQueue(bytes, signal);
      }
      if (fd < 0) throw new SocketError(errnoName(fd));
      const socket = socketOver(fd);
      if (addon.peerProcess(fd) !== process.pid) return socket;
      socket.close();
      return "own";
    },
    listeningPorts: async () => {
      const tables = await Promise.all([TABLE_V4, TABLE_V6].map((table) => listenersIn(table)));
      const known = tables.filter((ports) => ports !== undefined);
      return known.length === 0 ? undefined : new Set(known.flat());
    },
  };
}

/**
 * A table of sockets (proc(5)): its file, and the addresses, as it writes them, at which listeners are reached from
 * here.
 */
interface Table {
  readonly file: string;
  readonly addresses: ReadonlySet<string>;
}

const TABLE_V4: Table = { file: "/proc/net/tcp", addresses: new Set(["00000000", "0100007F"]) };
const TABLE_V6: Table = {
  file: "/proc/net/tcp6",
  addresses: new Set([
    "00000000000000000000000000000000",
    "00000000000000000000000001000000",
    // IPv4's, as a socket of both families has them.
    "0000000000000000FFFF000000000000",
    "0000000000000000FFFF00000100007F",
  ]),
};

/** Its number, local and remote address, and state. */
const LINE = /^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ ([0-9A-F]{2}) /;
/** State of a socket that listens (TCP_LISTEN of the kernel's tcp_states.h). */
const LISTENS = "0A";
const TABLE_READ_BYTES = 16 * 1024;

const openFile = promisify(open);
const readFile = promisify(read);
const closeFile = promisify(close);

/**
 * Ports of a table. Those that listen come first: the others, perhaps thousands, are not read. Undefined: there is no
 * table.
 */
async function listenersIn({ file, addresses }: Table): Promise<number[] | undefined> {
  const fd = await openFile(file, "r").catch(() => undefined);
  if (fd === undefined) return undefined;
  const ports: number[] = [];
  try {
    const bytes = Buffer.alloc(TABLE_READ_BYTES);
    let rest = "";
    for (;;) {
      const { bytesRead } = await readFile(fd, bytes, 0, bytes.length, null);
      const lines = (rest + bytes.toString("latin1", 0, bytesRead)).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const [, address = "", port = "", state] = LINE.exec(line) ?? [];
        if (state === LISTENS && addresses.has(address)) ports.push(Number.parseInt(port, 16));
        if (state !== undefined && state !== LISTENS) return ports;
      }
      if (bytesRead === 0) return ports;
    }
  } catch {
    return undefined;
  } finally {
    await closeFile(fd);
  }
}
