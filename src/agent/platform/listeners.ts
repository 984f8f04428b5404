import { close, open, opendirSync, read, readdir, readlinkSync } from "node:fs";
import { SocketAddress } from "node:net";
import { promisify } from "node:util";
import { type Listener, type SocketHolder, yieldToEventLoop } from "../domain/index.ts";
import { readProc } from "./proc.ts";

/**
 * A line of /proc/net/tcp (proc_net(5)): number, local and remote address, state, three columns of queues and timers,
 * uid, timeout, inode.
 */
const LINE = /^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ ([0-9A-F]{2}) \S+ \S+ \S+ +(\d+) +\d+ (\d+) /;
/** TCP_LISTEN of the kernel's tcp_states.h. */
const LISTENING = "0A";
const READ_BYTES = 16 * 1024;
/** Addresses of listeners that accept connections to 127.0.0.1 or ::1. */
const LOOPBACK_REACHES: ReadonlySet<string> = new Set(["0.0.0.0", "127.0.0.1", "::", "::1"]);

const [openFile, readFile, closeFile, namesOf] = [
  promisify(open),
  promisify(read),
  promisify(close),
  promisify(readdir),
];

/** Implements `Sockets.eachListener`. */
export async function eachListener(take: (listener: Listener) => void): Promise<boolean> {
  const tables = await Promise.all([readTable("/proc/net/tcp", 4, take), readTable("/proc/net/tcp6", 6, take)]);
  return tables.includes(true);
}

/**
 * Reads the listening sockets of a table, in which they come before all other sockets. If this takes several read(2)
 * calls, the whole table is read a second time. The reason is that a read can skip a socket if another socket was
 * closed since the previous read.
 */
async function readTable(file: string, family: 4 | 6, take: (listener: Listener) => void): Promise<boolean> {
  const fd = await openFile(file, "r").catch(() => undefined);
  if (fd === undefined) return false;
  const bytes = Buffer.alloc(READ_BYTES);
  try {
    for (let time = 0, pages = 0; time < 2 && (time === 0 || pages > 1); time++) {
      let rest = "";
      for (let position = 0, isLast = false; !isLast;) {
        const { bytesRead } = await readFile(fd, bytes, 0, bytes.length, position);
        position += bytesRead;
        isLast = bytesRead === 0;
        const lines = (rest + bytes.toString("latin1", 0, bytesRead)).split("\n");
        rest = lines.pop() ?? "";
        const listeners = lines.flatMap((line) => listenerOf(line, family));
        pages += listeners.length > 0 ? 1 : 0;
        for (const listener of listeners) {
          if (listener === undefined) isLast = true;
          else take(listener);
        }
      }
    }
    return true;
  } catch {
    return false;
  } finally {
    await closeFile(fd);
  }
}

/**
 * Parses a line of /proc/net/tcp. Returns `[listener]` for a listening socket, `[undefined]` for any other socket, and
 * an empty list for the header.
 */
function listenerOf(line: string, family: 4 | 6): (Listener | undefined)[] {
  const [, address, port = "", state, uid, inode] = LINE.exec(line) ?? [];
  if (address === undefined) return [];
  if (state !== LISTENING) return [undefined];
  return [{ port: Number.parseInt(port, 16), ...placeOf(address, family), uid: Number(uid), inode: Number(inode) }];
}

/** Parses an address, which consists of 32-bit words in this machine's (little-endian) byte order. */
function placeOf(hex: string, family: 4 | 6): Pick<Listener, "family" | "address" | "scope" | "isReached"> {
  const bytes = hex.match(/.{8}/g)?.flatMap((word) => word.match(/../g)?.toReversed() ?? []) ?? [];
  const address =
    family === 4
      ? bytes.map((byte) => Number.parseInt(byte, 16)).join(".")
      : new SocketAddress({ family: "ipv6", address: bytes.join("").replaceAll(/.{4}(?!$)/g, "$&:") }).address;
  // A dual-stack socket shows IPv4 addresses as ::ffff:a.b.c.d.
  const plain = address.replace(/^::ffff:(?=.*\.)/, "");
  const isLoopback = plain === "::1" || plain.startsWith("127.");
  const scope = isLoopback ? "LOOPBACK" : LOOPBACK_REACHES.has(plain) ? "ANY" : "ADDRESS";
  return { family, address, scope, isReached: LOOPBACK_REACHES.has(plain) };
}

/** Largest number of descriptors that one search for the holders of sockets examines. */
const DESCRIPTORS_LIMIT = 32_768;
/** Number of descriptors to examine per tick of the event loop. */
const DESCRIPTORS_PER_TICK = 256;

interface Held extends SocketHolder {
  readonly fd: string;
}

/** Reads /proc/PID/fd to find the processes that hold given sockets open. */
export class SocketHolders {
  /**
   * The holder of each socket, by the socket's inode, as found by the last search. The value is undefined if no holder
   * was found.
   */
  #known: ReadonlyMap<number, Held | undefined> = new Map();

  /** Implements `Sockets.holders`. Checking a known holder costs one readlink and one small read. */
  async of(inodes: ReadonlySet<number>): Promise<ReadonlyMap<number, SocketHolder>> {
    const held = new Map<number, Held | undefined>();
    let isNew = false;
    for (const inode of inodes) {
      const before = this.#known.get(inode);
      held.set(inode, before && inodeAt(before) === inode ? named(before) : undefined);
      isNew ||= held.get(inode) === undefined && (before !== undefined || !this.#known.has(inode));
    }
    if (isNew) await find(held);
    this.#known = held;
    return new Map([...held].flatMap(([inode, holder]) => (holder === undefined ? [] : [[inode, holder]])));
  }
}

/** Searches for the holders of the sockets whose holder is still unknown, by ascending pid. */
async function find(held: Map<number, Held | undefined>): Promise<void> {
  let missing = [...held.values()].filter((holder) => holder === undefined).length;
  let looked = 0;
  const pids = (await namesOf("/proc").catch(() => [])).map(Number).filter((pid) => pid > 0);
  for (const pid of pids.toSorted((one, other) => one - other)) {
    for (const fd of descriptorsOf(pid)) {
      if (missing === 0 || looked === DESCRIPTORS_LIMIT) return;
      looked += 1;
      if (looked % DESCRIPTORS_PER_TICK === 0) await yieldToEventLoop();
      const inode = fd === undefined ? undefined : inodeAt({ pid, fd });
      if (fd === undefined || inode === undefined || !held.has(inode) || held.get(inode) !== undefined) continue;
      held.set(inode, named({ pid, fd }));
      missing -= 1;
    }
  }
}

/**
 * Yields undefined once, and then the number of each descriptor of the process. The caller limits how many values it
 * takes. Because of the undefined, a process whose descriptors cannot be read also counts towards this limit.
 */
function* descriptorsOf(pid: number): Generator<string | undefined> {
  yield undefined;
  let directory;
  try {
    directory = opendirSync(`/proc/${pid}/fd`);
    for (let entry; (entry = directory.readSync()) !== null;) yield entry.name;
  } catch {
    // The process has ended or belongs to another user.
  } finally {
    directory?.closeSync();
  }
}

function inodeAt({ pid, fd }: Pick<Held, "pid" | "fd">): number | undefined {
  try {
    const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
    return inode === undefined ? undefined : Number(inode);
  } catch {
    return undefined;
  }
}

function named({ pid, fd }: Pick<Held, "pid" | "fd">): Held {
  return { pid, fd, command: readProc(`/proc/${pid}/comm`).replace(/\n$/, "") };
}
