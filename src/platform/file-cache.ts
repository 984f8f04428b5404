import type { Addon } from "../native/index.ts";

/** Drops an open file's pages from the kernel's page cache, as far as the kernel is willing. */
export function fileCacheDropper(addon: Addon): (fd: number) => void {
  return (fd) => void addon.dropFileCache(fd);
}
