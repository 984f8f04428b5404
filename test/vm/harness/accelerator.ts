import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { modules, writeInitramfs } from "./initramfs.ts";
import { Machine } from "./machine.ts";
import { ask } from "./oracle.ts";
import { buildGuestProgram, provideKernel, provideQemu } from "./provision.ts";

/** A guest that has not booted by then will not: /dev/kvm may be there and still boot nothing. */
const PROBE_LIMIT_MS = 8_000;

/** "kvm" where a guest really boots with it, else "tcg": found out by booting one. */
export async function probeAccelerator(): Promise<"kvm" | "tcg"> {
  if (!existsSync("/dev/kvm") || provideQemu() !== undefined) return "tcg";
  const kernel = provideKernel("6.1");
  if (kernel === undefined) return "tcg";
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  try {
    const initramfs = join(folder, "initramfs");
    writeInitramfs(
      initramfs,
      ["proc", "sandbox/proc", "sandbox/sys", "sandbox/dev", "sandbox/tmp", "sandbox/run"],
      [
        ...modules(kernel.modulesFolder, ["virtio_pci", "virtio_net"]),
        { path: "init", content: readFileSync(buildGuestProgram("init", folder)) },
        { path: "oracle", content: readFileSync(buildGuestProgram("oracle", folder)) },
        { path: "sandbox/busybox", content: readFileSync("/usr/bin/busybox") },
        { path: "agent.args", content: "/busybox\nsleep\n1000\n" },
      ],
    );
    await using machine = await Machine.start({ kernelImage: kernel.image, initramfs, accelerator: "kvm" });
    await ask(machine.oraclePort, ["clocks"], PROBE_LIMIT_MS);
    return "kvm";
  } catch {
    return "tcg";
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
