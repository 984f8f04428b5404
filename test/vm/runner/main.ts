/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/clock.vm.ts`; in emulated arm64
 * machines with `--arch arm64`. Provides QEMU, the guest kernels and the built agent, and runs two machines at a time.
 * Prints each case with its time; ends with those that failed and the line `N passed, N failed, N skipped`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { runScript, UsageError } from "../../../scripts/machine/script.ts";

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
  process.env["TMPDIR"] = directory.path;
  if (arch !== undefined) process.env["GUEST_VM_ARCH"] = arch;
  // The guests' modules read the architecture when they load.
  const { runVmTests } = await import("./run.ts");
  return runVmTests(positionals);
}

/** Waits for the end of its input, kills every QEMU that runs below the directory, and removes that. */
const REAPER = `cat
for process in /proc/[0-9]*; do
  case $(readlink "$process/cwd") in "$1"/*) ;; *) continue ;; esac
  case $(readlink "$process/exe") in */qemu-system-*) kill -KILL "\${process#/proc/}" ;; esac
done
rm -rf -- "$1"`;

/**
 * Makes a directory whose machines end with this process, however it ends. The development substrate's machines outlive
 * their starter, and a run that a time limit kills can end nothing: a process in its own session does.
 */
async function machinesDirectory(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
  const reaper = spawn("sh", ["-c", REAPER, "reaper", path], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  await once(reaper, "spawn");
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      reaper.stdin.end();
      await once(reaper, "exit");
    },
  };
}

// Snapshots are large: removes those of aborted cases too.
await using directory = await machinesDirectory();
await runScript("test:vm", USAGE, main);
