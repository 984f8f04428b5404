import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { modules, writeInitramfs } from "./initramfs.ts";
import { Machine } from "./machine.ts";
import { ask } from "./oracle.ts";
import { buildGuestProgram, provideBusybox, provideKernel } from "./provision.ts";
import { MOUNT_POINTS } from "./sandbox.ts";

/** A guest that has not booted by then will not: /dev/kvm may be there and still boot nothing. */
const PROBE_LIMIT_MS = 8_000;

/** What guests run on, and why. */
export interface Accelerator {
  readonly name: "kvm" | "tcg";
  readonly reason: string;
}

/** KVM where a guest really boots with it, else emulation (TCG): found out by booting one. */
export async function probeAccelerator(): Promise<Accelerator> {
  if (!existsSync("/dev/kvm")) return { name: "tcg", reason: "there is no /dev/kvm" };
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  try {
    const initramfs = smallestGuest(folder);
    const { image } = provideKernel("6.1");
    await using machine = await Machine.start({ kernelImage: image, initramfs, accelerator: "kvm" });
    await ask(machine.oraclePort, ["clocks"], PROBE_LIMIT_MS);
    return { name: "kvm", reason: "a guest booted with it" };
  } catch (error) {
    const said = error instanceof Error ? error.message.replaceAll("\n", "; ") : "";
    return { name: "tcg", reason: `no guest booted with /dev/kvm: ${said}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** An initramfs with init, the oracle, and an entrypoint that does nothing; returns its path. */
export function smallestGuest(folder: string): string {
  const initramfs = join(folder, "initramfs");
  writeInitramfs(initramfs, MOUNT_POINTS, [
    ...modules(provideKernel("6.1").modulesFolder, ["virtio_pci", "virtio_net"]),
    { path: "init", content: readFileSync(buildGuestProgram("init", folder)) },
    { path: "oracle", content: readFileSync(buildGuestProgram("oracle", folder)) },
    { path: "sandbox/busybox", content: readFileSync(provideBusybox()) },
    { path: "agent.args", content: "/busybox\nsleep\n1000000\n" },
    { path: "substrate.args", content: "/busybox\nsleep\n1000000\n" },
  ]);
  return initramfs;
}
