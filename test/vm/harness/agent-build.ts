import { globSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import type { GuestFile } from "./initramfs.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const DISTRIBUTION = join(ROOT, "dist", `linux-${GUEST_ARCHITECTURE.name}`);

/** Where the agent's volume is mounted in the sandbox. */
export const AGENT_FOLDER = "/opt/guest-agent";

/** An agent in the form in which a guest has it. */
export interface AgentBuild {
  /** Files of its folder, by relative paths. */
  readonly files: readonly GuestFile[];
  /** Files that it needs in the image, by paths from the image's root. Default: none. */
  readonly inImage?: readonly GuestFile[];
  /** The command that starts it. */
  readonly command: readonly string[];
}

/** The distribution as it is shipped, with its launcher: by default dist/linux-<arch>. */
export function shippedAgent(folder: string = DISTRIBUTION): AgentBuild {
  const files = globSync("**/*", { cwd: folder, exclude: ["LICENSES"], withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({
      path: relative(folder, path),
      content: readFileSync(path),
      mode: statSync(path).mode & 0o777,
    }));
  return { files, command: [`${AGENT_FOLDER}/guest-agent`] };
}
