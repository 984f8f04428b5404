import { constants } from "node:os";
import { join } from "node:path";
import { messageOf } from "../../shared/errors.ts";
import type { Addon } from "./addon.ts";

/** Name of the addon's file. */
export const ADDON_FILE = "agent.node";

/** Where `npm run build:native` puts the addon, given the project's root directory. */
export function builtAddonDirectory(projectRoot: string): string {
  return join(projectRoot, "dist", "native", `linux-${process.arch}`);
}

/** Directory of the bundle, which holds the addon; the launcher names it. Undefined: started without the launcher. */
export function bundleDirectory(environment: NodeJS.ProcessEnv): string | undefined {
  return environment["GUEST_AGENT_DIR"];
}

/** The addon could not be loaded: says from where, why, and what to do. */
export class AddonError extends Error {
  override readonly name = "AddonError";
}

/** Whatever the file exports: the build makes it from the sources beside these. */
function open(file: string): Addon {
  const module = { exports: {} as Addon };
  process.dlopen(module, file, constants.dlopen.RTLD_NOW);
  return module.exports;
}

/** Loads the first addon that works, by process.dlopen: `require` of a single executable cannot. Throws AddonError. */
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
