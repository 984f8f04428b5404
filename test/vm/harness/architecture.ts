import type { Program } from "../../../scripts/machine/programs.ts";
import { type Architecture, isArchitecture } from "../../../scripts/package/toolchain.ts";

/** A kind of machine that guests are booted on. */
export interface GuestArchitecture {
  readonly name: Architecture;
  /** Debian's name for it. */
  readonly debian: string;
  /** Series of Debian's cloud kernels that are tested; the last one is the default. */
  readonly series: readonly [string, ...string[]];
  readonly qemu: Program;
  /** QEMU's -machine. */
  readonly board: string;
  /** QEMU's -cpu, under emulation. */
  readonly processor: string;
  /** Kernel arguments; first of all the console. */
  readonly kernelArguments: string;
}

const ARCHITECTURES: Readonly<Record<Architecture, GuestArchitecture>> = {
  x64: {
    name: "x64",
    debian: "amd64",
    series: ["6.1", "6.12"],
    qemu: { name: "qemu-system-x86_64", package: "qemu-system-x86" },
    board: "q35",
    processor: "max",
    // A busy machine that emulates a timer fails the kernel's check of it, and the kernel panics.
    kernelArguments: "console=ttyS0 no_timer_check",
  },
  arm64: {
    name: "arm64",
    debian: "arm64",
    series: ["6.12"],
    qemu: { name: "qemu-system-aarch64", package: "qemu-system-arm" },
    board: "virt",
    // A server's processor. With all that can be emulated the kernel would sign its pointers, which costs most of the
    // time.
    processor: "neoverse-n1",
    kernelArguments: "console=ttyAMA0",
  },
};

const chosen = process.env["GUEST_VM_ARCH"] ?? process.arch;
if (!isArchitecture(chosen)) throw new Error(`GUEST_VM_ARCH is "${chosen}": it has to be x64 or arm64`);
/** Of the guests of this run: GUEST_VM_ARCH, which the runner sets. Default: this machine's. */
export const GUEST_ARCHITECTURE: GuestArchitecture = ARCHITECTURES[chosen];
