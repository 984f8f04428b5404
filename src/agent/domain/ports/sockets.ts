import type { ByteReceiver } from "./processes.ts";
import type { Errno } from "./system.ts";

/** A socket could not be connected. */
export class SocketError extends Error {
  override readonly name = "SocketError";
  readonly errno: Errno;

  constructor(errno: Errno) {
    super(errno);
    this.errno = errno;
  }
}

/** Receives what a socket reads. */
export interface SocketReceiver extends ByteReceiver {
  /** Bytes that it takes now, which a chunk may exceed by 64 KiB; none from 0 down, until `resume`. */
  room(): number;
  /** The connection is broken; all bytes that had come were delivered. Called once, perhaps after `end`, and last. */
  failed(errno: Errno): void;
}

/** A connected stream socket. Each of its two directions ends separately. */
export interface StreamSocket {
  /** Starts reading; called once. */
  start(receiver: SocketReceiver): void;
  /** The receiver has room again. */
  resume(): void;
  /** Writes in order. Calls back when the kernel took the bytes, or dropped them; they must not change before. */
  write(bytes: Uint8Array, done: () => void): void;
  /** The peer reads the end, after everything written so far. */
  end(): void;
  /** Closes it and drops what has not been written. Later calls do nothing. */
  close(): void;
  /** The same; over TCP the peer learns that the connection was broken off. */
  reset(): void;
}

/** From where a listener is reached: only inside the guest, at every address of it, or at one. */
export type ListenerScope = "LOOPBACK" | "ANY" | "ADDRESS";

/** A TCP socket that listens. */
export interface Listener {
  /** Its number, unique among the sockets that are open. */
  readonly inode: number;
  readonly port: number;
  readonly family: 4 | 6;
  /** As text, such as "127.0.0.1". */
  readonly address: string;
  readonly scope: ListenerScope;
  /** `connectPort` leads to it. */
  readonly isReached: boolean;
  /** Of who made it. */
  readonly uid: number;
}

/** The process that holds a socket: of several, the lowest pid. */
export interface SocketHolder {
  readonly pid: number;
  /** The name that it has given itself. */
  readonly command: string;
}

/** What listens in the guest. */
export interface Sockets {
  /**
   * Connects to a port of 127.0.0.1, or of ::1. Rejects with SocketError, or with the signal's reason.
   *
   * @param signal no longer matters once it is connected
   */
  connectPort(family: 4 | 6, port: number, signal: AbortSignal): Promise<StreamSocket>;
  /**
   * Connects to a unix stream socket; "own": this process itself listens there, whatever the path. Waits for a listener
   * whose queue is full. Rejects as `connectPort` does.
   */
  connectPath(path: string, signal: AbortSignal): Promise<StreamSocket | "own">;
  /**
   * Calls back with each TCP socket that listens; with one that did all the time at least once, perhaps twice. False:
   * the kernel does not tell. Never rejects.
   */
  eachListener(take: (listener: Listener) => void): Promise<boolean>;
  /** Who holds sockets, by their inodes; those of whom nobody is found are missing. Looks for new ones only once. */
  holders(inodes: ReadonlySet<number>): Promise<ReadonlyMap<number, SocketHolder>>;
}

/** A connection of a vsock port, as accepted. */
export interface VsockConnection {
  /** Does not block. The receiver owns it. */
  readonly fd: number;
  /** The peer's address (vsock(7)): 2 is the host, 1 and the guest's own CID are processes of this guest. */
  readonly cid: number;
  readonly port: number;
}

/** A vsock port that is listened on. */
export interface VsockListener {
  /** Accepts connections from now on. Calls `failed` when it cannot for a while, with the errno. */
  start(accepted: (connection: VsockConnection) => void, failed: (errno: Errno) => void): void;
  /** Accepts no more connections, and frees the port. */
  close(): void;
}
