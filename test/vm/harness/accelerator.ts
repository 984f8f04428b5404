import { existsSync } from "node:fs";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { Guest } from "./guest.ts";
import { ask } from "./oracle.ts";

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
  try {
    using guest = await Guest.prepare({ accelerator: "kvm" });
    await using machine = await guest.start();
    await ask(machine.oraclePort, ["clocks"], PROBE_LIMIT_MS);
    return { name: "kvm", reason: "a guest booted with it" };
  } catch (error) {
    const said = error instanceof Error ? error.message.replaceAll("\n", "; ") : "";
    return { name: "tcg", reason: `no guest booted with /dev/kvm: ${said}` };
  }
}
