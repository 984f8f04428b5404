import type { ByteReceiver } from "./processes.ts";
import type { Errno } from "./system.ts";

export class SocketError extends Error {
  override readonly name = "SocketError";
  readonly errno: Errno;

  constructor(errno: Errno) {
    super(errno);
    this.errno = errno;
  }
}

/** Receives the data of a socket, with backpressure. */
export interface SocketReceiver extends ByteReceiver {
  /**
   * Number of bytes that the receiver accepts now. A chunk may be up to 64 KiB larger than this number. If the number
   * is 0 or less, the socket stops reading until `resume` is called.
   */
  room(): number;
  /**
   * Called when the connection is broken and everything received was delivered. This is the last callback. It is called
   * at most once, possibly after `end`.
   */
  failed(errno: Errno): void;
}

/** A connected stream socket. Each direction ends separately. */
export interface StreamSocket {
  /** Starts reading. Call it once. */
  start(receiver: SocketReceiver): void;
  /** Continues reading. Call it when the receiver has room again. */
  resume(): void;
  /**
   * Writes in order. Calls `done` when the kernel has taken the bytes, or when they were dropped. Until then the caller
   * must not change them.
   */
  write(bytes: Uint8Array, done: () => void): void;
  /** Ends the output after everything written so far: the peer reads EOF. */
  end(): void;
  /** Closes the socket and drops what has not been written. Later calls do nothing. */
  close(): void;
  /** Closes like `close`, but with a reset, so that a TCP peer gets an error (ECONNRESET) and not EOF. */
  reset(): void;
}

/** Where a listener can be reached: only inside the guest, on all addresses of the guest, or on one address. */
export type ListenerScope = "LOOPBACK" | "ANY" | "ADDRESS";

/** A listening TCP socket. */
export interface Listener {
  /** Identifier that is unique among open sockets. */
  readonly inode: number;
  readonly port: number;
  readonly family: 4 | 6;
  /** The IP address as text, such as "127.0.0.1". */
  readonly address: string;
  readonly scope: ListenerScope;
  /** Whether `connectPort` would reach this listener. */
  readonly isReached: boolean;
  /** Id of the user that created the socket. */
  readonly uid: number;
}

/** The process that holds a socket; the lowest pid if there are several. */
export interface SocketHolder {
  readonly pid: number;
  /** The comm name of the process, which the process can change (PR_SET_NAME). */
  readonly command: string;
}

export interface Sockets {
  /**
   * Connects to a port of 127.0.0.1 or ::1. Rejects with SocketError, or with the signal's reason.
   *
   * @param signal stops the attempt to connect; later it has no effect on the socket
   */
  connectPort(family: 4 | 6, port: number, signal: AbortSignal): Promise<StreamSocket>;
  /**
   * Connects to the unix stream socket at `path`. While the queue of its listener is full, waits. Rejects with
   * SocketError, or with the signal's reason. Resolves with "own" if the listener is this process itself, even if
   * `path` is only a link to the listener's path.
   */
  connectPath(path: string, signal: AbortSignal): Promise<StreamSocket | "own">;
  /**
   * Calls back with each listening TCP socket. A socket that listens throughout the call is reported once or twice.
   * Resolves with false if the kernel does not provide the list. Never rejects.
   */
  eachListener(take: (listener: Listener) => void): Promise<boolean>;
  /**
   * Finds the process that holds each socket. The result omits sockets whose holder is unknown. If the previous call
   * found no holder of a socket, this socket alone does not cause another search.
   */
  holders(inodes: ReadonlySet<number>): Promise<ReadonlyMap<number, SocketHolder>>;
}

/**
 * Returns the address of a vsock connection's peer (vsock(7)), or a negative errno if the peer has disconnected. A peer
 * with CID 2 is the host. A peer with CID 1, or with the guest's own CID, is a process in this guest.
 */
export type VsockPeer = (fd: number) => readonly [cid: number, port: number] | number;
