/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/clock.vm.ts`; in emulated arm64
 * machines with `--arch arm64`. Provides QEMU, the guest kernels and the built agent, and runs two machines at a time. Ends
 * with a table of cases with their times and the line `N passed, N failed, N skipped`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

// Snapshots are large: whatever a case that was cut short left behind goes with the run.
const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
try {
  const { values, positionals } = parseArgs({ options: { arch: { type: "string" } }, allowPositionals: true });
  process.env["TMPDIR"] = folder;
  if (values.arch !== undefined) process.env["GUEST_VM_ARCH"] = values.arch;
  // Everything of the guests looks at the architecture as soon as it is loaded.
  const { runVmTests } = await import("./vm/run.ts");
  process.exitCode = await runVmTests(positionals);
} catch (error) {
  console.error(`test:vm: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
