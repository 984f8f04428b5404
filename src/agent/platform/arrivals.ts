import { closeSync, openSync } from "node:fs";
import type { WatchArrivals } from "../domain/index.ts";
import { type Addon, READABLE } from "../native/index.ts";

/**
 * Watches a duplicate of the descriptor, since epoll(7) takes each only once. Where it cannot, losses go unnoticed: the
 * listener works all the same.
 */
export function arrivalsWatcher(addon: Pick<Addon, "FdWatch" | "duplicate">): WatchArrivals {
  return (fd, onLost) => {
    const own = addon.duplicate(fd);
    if (own < 0) return () => {};
    const look = (): void => {
      const errno = whyNoDescriptor();
      if (errno !== undefined) onLost(errno);
    };
    try {
      const watch = new addon.FdWatch(own, look);
      watch.set(READABLE);
      return () => watch.close();
    } catch {
      closeSync(own);
      return () => {};
    }
  };
}

/** Tries to open a path that always exists. dup(2) would not notice when the whole guest has no file left (ENFILE). */
function whyNoDescriptor(): string | undefined {
  try {
    closeSync(openSync("/", "r"));
    return undefined;
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : "unknown";
  }
}
