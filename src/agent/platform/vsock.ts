import { closeSync } from "node:fs";
import { constants } from "node:os";
import type { VsockListener } from "../domain/index.ts";
import { type Addon, errnoName, type FdWatch, READABLE } from "../native/index.ts";

/** Number of connections to accept per tick of the event loop. */
const ACCEPTED_PER_TICK = 16;
/** Pause after a failed accept(2), for example for lack of descriptors. Without it, accept would be retried at once. */
const PAUSE_MS = 1_000;

/**
 * Accepts connections on a listening socket that was opened with `Addon.listenVsock`. Takes ownership of the
 * descriptor.
 */
export function vsockListener(addon: Pick<Addon, "FdWatch" | "acceptVsock">, fd: number): VsockListener {
  let watch: FdWatch | undefined;
  let pause: NodeJS.Timeout | undefined;
  let isClosed = false;
  return {
    start: (accepted, failed) => {
      watch = new addon.FdWatch(fd, () => {
        for (let count = 0; count < ACCEPTED_PER_TICK; count++) {
          const result = addon.acceptVsock(fd);
          if (typeof result !== "number") {
            const [connection, cid, port] = result;
            accepted({ fd: connection, cid, port });
            continue;
          }
          // The peer disconnected before it was accepted.
          if (result === -constants.errno.ECONNABORTED) continue;
          if (result === -constants.errno.EAGAIN) return;
          watch?.set(0);
          pause = setTimeout(() => watch?.set(READABLE), PAUSE_MS).unref();
          failed(errnoName(result));
          return;
        }
      });
      watch.set(READABLE);
    },
    close: () => {
      if (isClosed) return;
      isClosed = true;
      clearTimeout(pause);
      if (watch === undefined) closeSync(fd);
      else watch.close();
    },
  };
}
