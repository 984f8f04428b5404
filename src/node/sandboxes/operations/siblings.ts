import { SandboxError } from "../substrate/index.ts";
import { type Needs, type SandboxEntry } from "../node/index.ts";

/**
 * Starts a sandbox from memory: a sleeping one, or a fork of that or of a snapshot. Rejects with SIBLING_RUNNING, a
 * cause that the daemon does not report. Under QEMU such a fork keeps the number of its origin's vsock device, and no
 * two with one number can run (hypeman 8853445: lib/instances/snapshot.go:461, lib/hypervisor/qemu/diagnostics.go:22).
 * Siblings have the same number; a fork of a running source leaves it to the fork, and gives the source another
 * (fork.go:72).
 */
export async function besideSiblings<Value>(
  node: Needs<"journal" | "instances">,
  entry: SandboxEntry,
  start: () => Promise<Value>,
): Promise<Value> {
  const { name, hypervisor } = entry;
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof SandboxError) || error.code !== "SUBSTRATE_FAILED" || !hypervisor.startsWith("qemu"))
      throw error;
    const siblings = node.journal
      .all()
      .filter((other) => other.kind === "sandbox")
      .filter((other) => vsockOf(other) === vsockOf(entry) && other.name !== name);
    const states = await Promise.all(siblings.map((other) => node.instances.find(other).catch(() => undefined)));
    const running = siblings.filter((_, index) => states[index]?.state === "Running").map((other) => other.name);
    if (running.length === 0) throw error;
    const names = running.join(", ");
    const message = `${name} could not be started beside ${names}, which ${running.length === 1 ? "has" : "have"} the same origin: ${error.message}`;
    const nextStep = `under QEMU only one of them can run at a time: put ${names} to sleep or remove it, and try again`;
    throw new SandboxError("SIBLING_RUNNING", message, error, { nextStep });
  }
}

function vsockOf({ vsock, volumeId }: SandboxEntry): string {
  return vsock ?? volumeId;
}
