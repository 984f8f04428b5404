import { closeSync } from "node:fs";
import { constants } from "node:os";
import { BufferPool, SocketError, type Sockets, unlessAborted } from "../domain/index.ts";
import { type Addon, errnoName } from "../native/index.ts";
import { eachListener, SocketHolders } from "./listeners.ts";
import { FdSocket, SOCKET_BUFFERS } from "./streams/socket.ts";

/**
 * Retry interval while a listener's backlog is full: the kernel does not notify the agent when the backlog has room
 * again.
 */
const FULL_QUEUE_PAUSE_MS = 50;

/** Sockets in the agent's own network namespace. */
export function guestSockets(addon: Addon): Sockets {
  const pool = new BufferPool(SOCKET_BUFFERS);
  const holders = new SocketHolders();
  const enterQueue = async (path: Buffer, signal: AbortSignal): Promise<number> => {
    const connecting = addon.connectPath(path);
    return unlessAborted(connecting, signal).catch((error: unknown) => {
      // If the file system of the socket hangs, the connection may be established long after the abort.
      void connecting.then((fd) => fd >= 0 && closeSync(fd));
      throw error;
    });
  };
  const socketOver = (fd: number): FdSocket => {
    try {
      return new FdSocket(addon, pool, fd);
    } catch (error) {
      // If the descriptor could not be watched, FdSocket has not taken ownership of it.
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
        // After an abort, the socket may still have been connected. The reset then reports the failure to the peer,
        // which would otherwise see an empty stream.
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
    eachListener,
    holders: (inodes) => holders.of(inodes),
  };
}
