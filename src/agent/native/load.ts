import { constants } from "node:os";
import { join } from "node:path";
import { messageOf } from "../../shared/errors.ts";
import type { Addon } from "./addon.ts";

export const ADDON_FILE = "agent.node";

/** Output directory of `npm run build:native` in a project. */
export function builtAddonDirectory(projectRoot: string): string {
  return join(projectRoot, "dist", "native", `linux-${process.arch}`);
}

/**
 * Directory of the bundle, which contains the addon. The launcher sets it. Undefined if the agent was started without
 * the launcher.
 */
export function bundleDirectory(environment: NodeJS.ProcessEnv): string | undefined {
  return environment["GUEST_AGENT_DIR"];
}

/** The addon could not be loaded. The message has the files, the reasons and the next step. */
export class AddonError extends Error {
  override readonly name = "AddonError";
}

/** The exports are not checked at run time: the addon is built from the sources in this directory. */
function open(file: string): Addon {
  const module = { exports: {} as Addon };
  process.dlopen(module, file, constants.dlopen.RTLD_NOW);
  return module.exports;
}

/**
 * Loads the first addon that works. Uses process.dlopen, because a single-executable application cannot `require` an
 * addon. Throws AddonError.
 */
export function loadAddon(directories: readonly string[]): Addon {
  const failures: string[] = [];
  for (const directory of directories) {
    const file = join(directory, ADDON_FILE);
    try {
      return open(file);
    } catch (error) {
      failures.push(messageOf(error));
    }
  }
  throw new AddonError(
    `the native addon cannot be loaded; build it with: npm run build:native (${failures.join("; ")})`,
  );
}
