import { close, open, opendirSync, read, readdir, readlinkSync } from "node:fs";
import { SocketAddress } from "node:net";
import { promisify } from "node:util";
import { type Listener, type SocketHolder, yieldToEventLoop } from "../domain/index.ts";
import { readProc } from "./proc.ts";

/** A line of a table (proc_net(5)): number, local and remote address, state, three of queues and timers, uid, inode. */
const LINE = /^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ ([0-9A-F]{2}) \S+ \S+ \S+ +(\d+) +\d+ (\d+) /;
/** State of a socket that listens (TCP_LISTEN of the kernel's tcp_states.h). */
const LISTENS = "0A";
const READ_BYTES = 16 * 1024;
/** Where connections to 127.0.0.1 and ::1 arrive. */
const REACHED: ReadonlySet<string> = new Set(["0.0.0.0", "127.0.0.1", "::", "::1"]);

const [openFile, readFile, closeFile, namesOf] = [
  promisify(open),
  promisify(read),
  promisify(close),
  promisify(readdir),
];

/** See `Sockets`. */
export async function eachListener(take: (listener: Listener) => void): Promise<boolean> {
  const tables = await Promise.all([readTable("/proc/net/tcp", 4, take), readTable("/proc/net/tcp6", 6, take)]);
  return tables.includes(true);
}

/**
 * Reads a table twice if it has more than the one page that a read gives: a socket that closes between two reads may
 * hide another from the second. Those that listen come first: the others, perhaps thousands, are not read.
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

/** None for the title, undefined for a socket that does not listen. */
function listenerOf(line: string, family: 4 | 6): (Listener | undefined)[] {
  const [, address, port = "", state, uid, inode] = LINE.exec(line) ?? [];
  if (address === undefined) return [];
  if (state !== LISTENS) return [undefined];
  return [{ port: Number.parseInt(port, 16), ...placeOf(address, family), uid: Number(uid), inode: Number(inode) }];
}

/** An address: words of 32 bits as this machine's little-endian numbers. */
function placeOf(hex: string, family: 4 | 6): Pick<Listener, "family" | "address" | "scope" | "isReached"> {
  const bytes = hex.match(/.{8}/g)?.flatMap((word) => word.match(/../g)?.toReversed() ?? []) ?? [];
  const address =
    family === 4
      ? bytes.map((byte) => Number.parseInt(byte, 16)).join(".")
      : new SocketAddress({ family: "ipv6", address: bytes.join("").replaceAll(/.{4}(?!$)/g, "$&:") }).address;
  // IPv4's, as a socket of both families has them.
  const plain = address.replace(/^::ffff:(?=.*\.)/, "");
  const isLoopback = plain === "::1" || plain.startsWith("127.");
  const scope = isLoopback ? "LOOPBACK" : REACHED.has(plain) ? "ANY" : "ADDRESS";
  return { family, address, scope, isReached: REACHED.has(plain) };
}

/** Descriptors that are looked at for new sockets, in all and in one tick of the event loop. */
const DESCRIPTORS_LIMIT = 32_768;
const DESCRIPTORS_PER_TICK = 256;

interface Held extends SocketHolder {
  readonly fd: string;
}

/** Processes that hold sockets, as /proc/PID/fd shows them. */
export class SocketHolders {
  /** Undefined: nobody was found. */
  #known: ReadonlyMap<number, Held | undefined> = new Map();

  /** See `Sockets`. A known holder costs one link and one small file. */
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

/** Fills in who is missing, in the order of the pids. */
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

/** First undefined: a process that shows nothing has its price too. */
function* descriptorsOf(pid: number): Generator<string | undefined> {
  yield undefined;
  let folder;
  try {
    folder = opendirSync(`/proc/${pid}/fd`);
    for (let entry; (entry = folder.readSync()) !== null;) yield entry.name;
  } catch {
    // It has ended, or belongs to another user.
  } finally {
    folder?.closeSync();
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
