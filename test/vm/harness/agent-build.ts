import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { buildNative } from "../../../scripts/build-native.ts";
import { bundle } from "../../../scripts/package/bundle.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { type GuestFile, withLibraries } from "./initramfs.ts";
import { type Patch, patches } from "./patches.ts";

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

/** The same program from changed sources, as a script beside Node and the addon. Never shipped. */
export async function patchedAgent(changes: readonly Patch[]): Promise<AgentBuild> {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  try {
    const script = join(folder, "agent.cjs");
    const node = join(folder, "node");
    await bundle(join(ROOT, "src", "agent", "main.ts"), script, [patches(ROOT, changes)]);
    execFileSync("strip", ["-s", "-o", node, process.execPath]);
    return {
      files: [
        { path: "node", content: readFileSync(node) },
        { path: "agent.cjs", content: readFileSync(script) },
        { path: "agent.node", content: readFileSync(buildNative()) },
      ],
      inImage: withLibraries(process.execPath),
      command: [`${AGENT_FOLDER}/node`, `${AGENT_FOLDER}/agent.cjs`],
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
