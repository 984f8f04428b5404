import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { messageOf } from "../../../shared/errors.ts";
import { type DaemonFacts, type Image, SandboxError } from "../substrate/index.ts";

/**
 * Properties that must be the same at a restore as at the suspension. The node checks them, because the substrate
 * compares none of them and stores few of them.
 */
export interface SnapshotKeys {
  /** Digest of the image that the sandbox was created from. */
  readonly template: string;
  /** Hypervisor, version of the daemon, and version of the agent, such as `qemu 1a2b3c4 0.1.0`. */
  readonly bundle: string;
  /** Class of the host's processors. Programs in memory rely on the CPU features that they detected when they started. */
  readonly cpuClass: string;
}

/** What a caller requires or accepts at a restore or fork, such as another version of the agent. */
export interface RestoreChoices {
  /**
   * Restore even if the hypervisor or the agent's version has changed since the suspension. The result then has a
   * warning.
   */
  readonly acceptBundle?: boolean | undefined;
  /**
   * The oldest acceptable agent version. If the agent is older, the operation rejects with AGENT_TOO_OLD before
   * anything wakes up. Default: any version.
   */
  readonly minAgentVersion?: string | undefined;
  /**
   * Allow `env` for a session that was not frozen when it was suspended. Such a session may already have used the
   * secrets that `env` replaces.
   *
   * Default: false. The operation then rejects with NOT_FROZEN before anything is cloned or woken up. Without `env`, or
   * if `freeze` is "off", such a session is always accepted.
   */
  readonly acceptUnfrozen?: boolean | undefined;
}

/** Formats `SnapshotKeys.bundle`. */
export function bundleOf(hypervisor: string, daemonVersion: string, agentVersion: string): string {
  return `${hypervisor} ${daemonVersion} ${agentVersion}`;
}

/**
 * The class of this host's processors: a digest of their sorted CPU flags ("flags" in /proc/cpuinfo, "Features" on
 * arm64). Rejects with SandboxError (CAPABILITY_MISSING) if the kernel does not list them.
 */
export async function hostCpuClass(path = "/proc/cpuinfo"): Promise<string> {
  let text;
  try {
    text = await readFile(path, "latin1");
  } catch (error) {
    throw noCpuClass(`${path} cannot be read: ${messageOf(error)}`);
  }
  const [, flags] = /^(?:flags|Features)\s*:\s*(\S.*)$/m.exec(text) ?? [];
  if (flags === undefined) throw noCpuClass(`${path} does not list the processor's flags`);
  const sorted = [...new Set(flags.trim().split(/\s+/))].toSorted();
  return createHash("sha256").update(sorted.join(" ")).digest("hex").slice(0, 16);
}

function noCpuClass(problem: string): SandboxError {
  return new SandboxError(
    "CAPABILITY_MISSING",
    `the class of this host's processor is not known: ${problem}; set cpuClass`,
  );
}

/**
 * What the node and the sandbox's agent are now, such as the hypervisor and the agent's version. A suspended sandbox
 * can be resumed only if its `SnapshotKeys` match.
 */
export interface Present {
  readonly daemon: DaemonFacts;
  readonly images: readonly Image[];
  readonly hypervisor: string;
  readonly agentVersion: string;
  readonly cpuClass: string;
}

/**
 * Compares the keys of a suspended sandbox with the current values. Throws SandboxError: SNAPSHOT_INVALIDATED,
 * BUNDLE_MISMATCH or CPU_CLASS_MISMATCH. Returns a sentence about a difference that the caller accepted, or that is
 * harmless (another build of the daemon).
 */
export function differences(
  what: string,
  keys: SnapshotKeys,
  present: Present,
  { acceptBundle = false }: RestoreChoices = {},
): string | undefined {
  const { daemon, images, hypervisor, agentVersion, cpuClass } = present;
  if (!images.some(({ digest, status }) => digest === keys.template && status === "ready")) {
    throw new SandboxError("SNAPSHOT_INVALIDATED", `the image ${keys.template} of ${what} is gone`);
  }
  const [oldHypervisor, oldDaemon, oldAgent] = keys.bundle.split(" ");
  const bundle = bundleOf(hypervisor, daemon.version, agentVersion);
  const differs = `${what} was suspended by "${keys.bundle}" (hypervisor, daemon and agent), but would be resumed by "${bundle}"`;
  if (daemon.features?.has(hypervisor) === false) {
    throw new SandboxError(
      "BUNDLE_MISMATCH",
      `${what} was suspended under ${hypervisor}, which the daemon cannot start`,
    );
  }
  const isOther = hypervisor !== oldHypervisor || agentVersion !== oldAgent;
  if (isOther && !acceptBundle) throw new SandboxError("BUNDLE_MISMATCH", differs);
  if (cpuClass !== keys.cpuClass) {
    const message = `${what} was suspended on processors of class ${keys.cpuClass}, but this host's are of class ${cpuClass}`;
    throw new SandboxError("CPU_CLASS_MISMATCH", message);
  }
  const isKnown = oldDaemon !== "unknown" && daemon.version !== "unknown";
  return isOther || (isKnown && daemon.version !== oldDaemon) ? differs : undefined;
}
