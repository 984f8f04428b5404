import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Addon } from "../native/index.ts";

/** The agent's executable in the bundle's folder. */
const PROGRAM = "agent.bin";

/**
 * Drops from the page cache what the start has read of the agent's executable and nothing uses: 70 of its 118 MB, which
 * would become part of a snapshot. Pages in use stay.
 */
export function dropProgramCache(addon: Pick<Addon, "dropFileCache">, bundleFolder: string): void {
  try {
    const fd = openSync(join(bundleFolder, PROGRAM), "r");
    addon.dropFileCache(fd);
    closeSync(fd);
  } catch {
    // Whoever may run a program need not be allowed to read it; it only takes more room then.
  }
}
