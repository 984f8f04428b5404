/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/clock.vm.ts`; in emulated arm64
 * machines with `--arch arm64`. Provides QEMU, the guest kernels and the built agent, and runs two machines at a time.
 * Prints each case with its time; ends with those that failed and the line `N passed, N failed, N skipped`.
 */
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { runScript, UsageError } from "../../../scripts/machine/script.ts";
import { machinesFolder } from "./machines-folder.ts";

const USAGE = `usage: npm run test:vm [-- [--arch arm64] [--whole] FILE...]
  FILE           a file of tests, as test/vm/clock.vm.ts; default: all
  --arch arm64   in emulated arm64 machines
  --whole        twenty snapshots of a session that is hard to freeze, instead of two (test/vm/hard-freeze.vm.ts)`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    options: { arch: { type: "string" }, whole: { type: "boolean" } },
    allowPositionals: true,
  });
  const { arch, whole } = values;
  if (arch !== undefined && arch !== "x64" && arch !== "arm64") {
    throw new UsageError(`--arch is x64 or arm64, not "${arch}"`);
  }
  const absent = positionals.find((file) => !existsSync(file));
  if (absent !== undefined) throw new UsageError(`${absent}: no such file`);
  process.env["TMPDIR"] = folder.path;
  if (whole === true) process.env["GUEST_VM_WHOLE"] = "1";
  if (arch !== undefined) process.env["GUEST_VM_ARCH"] = arch;
  // The guests' modules read the architecture when they load.
  const { runVmTests } = await import("./run.ts");
  return runVmTests(positionals);
}

// Snapshots are large: removes those of aborted cases too.
await using folder = await machinesFolder();
await runScript("test:vm", USAGE, main);
