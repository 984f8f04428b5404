import { closeSync, openSync } from "node:fs";
import type { WatchArrivals } from "../domain/index.ts";
import { type Addon, READABLE } from "../native/index.ts";

/**
 * Detects connections that are lost because accept(2) failed for lack of descriptors. Watches a duplicate of the
 * listener's descriptor, because epoll(7) accepts each descriptor only once. If the watch fails, lost connections are
 * not reported.
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

/**
 * Returns the errno if the agent cannot open files at present. dup(2) would not suffice for this test, because it
 * succeeds even if the guest's file limit is reached (ENFILE).
 */
function whyNoDescriptor(): string | undefined {
  try {
    closeSync(openSync("/", "r"));
    return undefined;
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : "unknown";
  }
}
