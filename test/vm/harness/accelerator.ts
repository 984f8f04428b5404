import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeDisk } from "./disks.ts";
import { modules, writeInitramfs } from "./initramfs.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { Machine, type MachineOptions } from "./machine.ts";
import { ask } from "./oracle.ts";
import { buildGuestProgram, provideBusybox, provideKernel } from "./provision.ts";
import { FOLDERS, MODULES } from "./sandbox.ts";

/** A guest that has not booted by then never will: /dev/kvm may exist and boot nothing. */
const PROBE_LIMIT_MS = 8_000;

/** The accelerator of the guests, and the reason. */
export interface Accelerator {
  readonly name: "kvm" | "tcg";
  readonly reason: string;
}

/** KVM if a guest really boots with it, else emulation (TCG). */
export async function probeAccelerator(): Promise<Accelerator> {
  const { name: arch } = GUEST_ARCHITECTURE;
  if (arch !== process.arch) return { name: "tcg", reason: `the guests are ${arch}, and this machine is not` };
  if (!existsSync("/dev/kvm")) return { name: "tcg", reason: "there is no /dev/kvm" };
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  try {
    await using machine = await Machine.start({ ...smallestGuest(folder), accelerator: "kvm" });
    await ask(machine.oraclePort, ["clocks"], PROBE_LIMIT_MS);
    return { name: "kvm", reason: "a guest booted with it" };
  } catch (error) {
    const said = error instanceof Error ? error.message.replaceAll("\n", "; ") : "";
    return { name: "tcg", reason: `no guest booted with /dev/kvm: ${said}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A guest with init, the oracle, and an empty entrypoint; makes its files in the folder. */
function smallestGuest(folder: string): Pick<MachineOptions, "kernelImage" | "initramfs" | "disk"> {
  const initramfs = join(folder, "initramfs");
  const disk = join(folder, "empty-disk");
  const { image: kernelImage, modulesFolder } = provideKernel(GUEST_ARCHITECTURE.series[0]);
  const program = (name: string): Buffer => readFileSync(buildGuestProgram(name, folder));
  writeDisk(disk, []);
  writeInitramfs(initramfs, FOLDERS, [
    ...modules(modulesFolder, MODULES),
    { path: "init", content: program("init") },
    { path: "oracle", content: program("oracle") },
    ...["sh", "sleep"].map((name) => ({ path: `image/bin/${name}`, content: readFileSync(provideBusybox()) })),
    { path: "image/substrate", content: program("substrate") },
    { path: "entrypoint", content: "exec sleep 1000000\n" },
    { path: "substrate.args", content: "/substrate\n" },
  ]);
  return { kernelImage, initramfs, disk };
}
