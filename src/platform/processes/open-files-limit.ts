import type { Addon } from "../../native/index.ts";

/** What Linux gives the first process. */
const KERNEL_DEFAULT = 1024;

/**
 * The soft RLIMIT_NOFILE for children. Node raised the agent's own to the hard limit, and programs that use select(2) or
 * close every possible descriptor suffer from a high one; whoever started the agent still has what was meant.
 */
export function openFilesLimitForChildren(addon: Addon, parentPid: number): number {
  const limit = addon.openFilesLimitOf(parentPid);
  return limit > 0 ? limit : KERNEL_DEFAULT;
}
