/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/clock.vm.ts`; in emulated arm64
 * machines with `--arch arm64`. Provides QEMU, the guest kernels and the built agent, and runs two machines at a time.
 * Ends with a table of cases with their times and the line `N passed, N failed, N skipped`.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { runScript, UsageError } from "./machine/script.ts";

const USAGE = `usage: npm run test:vm [-- [--arch arm64] FILE...]
  FILE           a file of tests, as test/vm/clock.vm.ts; default: all
  --arch arm64   in emulated arm64 machines`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({ options: { arch: { type: "string" } }, allowPositionals: true });
  const { arch } = values;
  if (arch !== undefined && arch !== "x64" && arch !== "arm64") {
    throw new UsageError(`--arch is x64 or arm64, not "${arch}"`);
  }
  const absent = positionals.find((file) => !existsSync(file));
  if (absent !== undefined) throw new UsageError(`${absent}: no such file`);
  process.env["TMPDIR"] = folder;
  if (arch !== undefined) process.env["GUEST_VM_ARCH"] = arch;
  // The guests' modules read the architecture when they load.
  const { runVmTests } = await import("./vm/run.ts");
  return runVmTests(positionals);
}

// Snapshots are large: removes those of aborted cases too.
const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
try {
  await runScript("test:vm", USAGE, main);
} finally {
  // Machines of the development substrate outlive the test that was cut short.
  const { qemusBelow } = await import("../test/vm/harness/qemu.ts");
  for (const { pid } of qemusBelow(folder)) process.kill(pid, "SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
