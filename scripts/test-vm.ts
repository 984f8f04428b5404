/**
 * Runs the tests in real microVMs: `npm run test:vm`, or `npm run test:vm -- test/vm/clock.vm.ts`. Provides QEMU, the
 * guest kernels and the built agent, and runs two machines at a time. Ends with a table of cases with their times and the
 * line `N passed, N failed, N skipped`.
 */
import { existsSync, globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "node:test";
import { runScript, UsageError, words } from "./machine/script.ts";
import { probeAccelerator } from "../test/vm/harness/accelerator.ts";
import { provideQemu, provideTools, SERIES } from "../test/vm/harness/provision.ts";
import { prepareAgent } from "./vm/agent.ts";
import { prepareKernels } from "./vm/kernels.ts";
import { record, type RunEvent } from "./vm/events.ts";
import { summarize } from "./vm/table.ts";

const USAGE = `usage: npm run test:vm [-- FILE...]
  FILE   a file of tests, as test/vm/clock.vm.ts; default: all`;

/** Of one file, under emulation on a busy machine; most take one minute. */
const FILE_LIMIT_MS = 900_000;
/** A guest has one processor, and QEMU takes hardly more. */
const MACHINES_AT_ONCE = Number(process.env["GUEST_VM_CONCURRENCY"] ?? 2);

/** Those that were asked for, else all; without the one for a newer kernel where there is none. */
function filesFor(kernels: readonly string[]): string[] {
  const chosen = words();
  const absent = chosen.find((file) => !existsSync(file));
  if (absent !== undefined) throw new UsageError(`${absent}: no such file`);
  if (chosen.length > 0) return chosen;
  const files = globSync("test/vm/*.vm.ts").filter((file) => !file.includes("newer") || kernels.length > SERIES.length);
  return files.toSorted(longestFirst);
}

/** The mutants take as long as half of the rest. */
function longestFirst(a: string, b: string): number {
  const rank = (file: string): number => (file.includes("mutations") ? 0 : 1);
  return rank(a) - rank(b) || a.localeCompare(b, "en");
}

async function main(): Promise<number> {
  words();
  const problem = provideQemu();
  if (problem !== undefined) {
    console.log(`SKIPPED: ${problem}\n0 passed, 0 failed, 1 skipped`);
    // Where it can be installed it must be there.
    return process.env["CI"] === "true" ? 1 : 0;
  }
  provideTools();
  const kernels = prepareKernels();
  console.log(`kernels: ${kernels.join(", ")}${kernels.length > SERIES.length ? "" : "; apt has no newer series"}`);
  prepareAgent();
  const accelerator = await probeAccelerator();
  process.env["GUEST_VM_ACCELERATOR"] = accelerator.name;
  console.log(`accelerator: ${accelerator.name} (${accelerator.reason})`);

  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(name, () => stop.abort());
  const files = filesFor(kernels);
  const events: AsyncIterable<RunEvent> = run({
    files,
    concurrency: MACHINES_AT_ONCE,
    timeout: FILE_LIMIT_MS,
    signal: stop.signal,
  });
  const began = performance.now();
  const cases = await record(events);
  const { lines, succeeded } = summarize(cases, (performance.now() - began) / 1000);
  for (const line of lines) console.log(line);
  return succeeded && !stop.signal.aborted ? 0 : 1;
}

// Snapshots are large: whatever a case that was cut short left behind goes with the run.
const folder = mkdtempSync(join(tmpdir(), "guest-agent-vm-"));
process.env["TMPDIR"] = folder;
try {
  await runScript("test:vm", USAGE, main);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
