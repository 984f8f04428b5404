import { execFileSync } from "node:child_process";
import { GUEST_ARCHITECTURE } from "../vm/harness/architecture.ts";
import { probeAccelerator } from "../vm/harness/guest.ts";
import { canBoot } from "./bench.ts";
import type { Programs } from "./field.ts";
import type { Report } from "./report.ts";
import type { Row } from "./row.ts";
import { forkRows, guestCommandRows } from "./rows/micro-vms.ts";
import { resumeRows } from "./rows/resume.ts";

/** Commands of each round. */
const COMMANDS = { full: 300, quick: 50 } as const;

/** Rows of microVMs, and what ran these. */
export interface MicroVms {
  /** The hypervisor with its version, and whether the processor or an emulator ran the guests. */
  readonly hypervisor: string;
  readonly contenders: Report["contenders"];
  readonly rows: readonly Row[];
}

/**
 * Measures what users of microVMs wait for: commands, resumes, and forks. Uses KVM if a guest boots with it, else
 * emulation. Throws if this machine cannot run guests at all.
 */
export async function measureMicroVms(programs: Programs, isQuick: boolean): Promise<MicroVms> {
  if (!canBoot(programs, "microVMs")) throw new Error("this machine cannot run the guests; see the line above");
  const { name, reason } = await probeAccelerator();
  process.env["GUEST_VM_ACCELERATOR"] = name;
  const [version = ""] = execFileSync(GUEST_ARCHITECTURE.qemu.name, ["--version"], { encoding: "utf8" }).split("\n");
  const hypervisor = `${version}, accelerator ${name} (${reason})`;
  programs.say(hypervisor);
  if (name === "tcg") programs.say("these figures say nothing about KVM: the guests are emulated");
  const rows = [
    ...(await guestCommandRows(programs, isQuick ? COMMANDS.quick : COMMANDS.full)),
    ...(await resumeRows(programs)),
    ...(await forkRows(programs)),
  ];
  const contenders = [
    { contender: "ours", description: "a guest with the built agent under its launcher" },
    { contender: "grpc-go", description: "a guest with a server of the same schema in Go" },
  ] as const;
  return { hypervisor, contenders, rows };
}
