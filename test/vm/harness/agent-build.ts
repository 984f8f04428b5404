import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { buildNative } from "../../../scripts/build-native.ts";
import { bundle } from "../../../scripts/package/bundle.ts";
import { type GuestFile, withLibraries } from "./initramfs.ts";
import { type Patch, patches } from "./patches.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const DISTRIBUTION = join(ROOT, "dist", "linux-x64");

/** An agent as it stands in the guest. */
export interface AgentBuild {
  readonly files: readonly GuestFile[];
  /** The command that starts it. */
  readonly command: readonly string[];
}

/** The distribution as it is shipped, with its launcher: dist/linux-x64. */
export function shippedAgent(): AgentBuild {
  const files = globSync("**/*", { cwd: DISTRIBUTION, exclude: ["LICENSES"], withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({
      path: join("sandbox/opt/guest-agent", relative(DISTRIBUTION, path)),
      content: readFileSync(path),
      mode: statSync(path).mode & 0o777,
    }));
  return { files, command: ["/opt/guest-agent/guest-agent"] };
}

/** The same program, made with changed sources, as a script beside Node and the addon. Never shipped. */
export async function patchedAgent(changes: readonly Patch[]): Promise<AgentBuild> {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  try {
    const script = join(folder, "agent.cjs");
    const node = join(folder, "node");
    await bundle(join(ROOT, "src", "main.ts"), script, { target: "node26", plugins: [patches(ROOT, changes)] });
    execFileSync("strip", ["-s", "-o", node, process.execPath]);
    return {
      files: [
        { path: "sandbox/opt/guest-agent/node", content: readFileSync(node) },
        { path: "sandbox/opt/guest-agent/agent.cjs", content: readFileSync(script) },
        { path: "sandbox/opt/guest-agent/agent.node", content: readFileSync(buildNative()) },
        ...withLibraries(process.execPath, "sandbox"),
      ],
      command: ["/opt/guest-agent/node", "/opt/guest-agent/agent.cjs"],
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
