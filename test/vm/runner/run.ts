import { once } from "node:events";
import { globSync } from "node:fs";
import { basename, join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { execaSync } from "execa";
import { probeAccelerator } from "../harness/guest.ts";
import { GUEST_ARCHITECTURE } from "../harness/architecture.ts";
import { newerSeries, provideKernel, provideQemu, provideTools, SERIES } from "../harness/provision.ts";
import { provideVsockBackEnd } from "../harness/vsock.ts";
import { onEndSignal } from "../../../scripts/machine/script.ts";

/** Time for one file, under emulation on a busy machine; most take one minute. */
const FILE_LIMIT_MS = 1_800_000;
/** A guest has one processor, and QEMU needs hardly more. */
const MACHINES_AT_ONCE = Number(process.env["GUEST_VM_CONCURRENCY"] ?? 2);

/** What emulated arm64 machines run; docs/verification.md names the cases. */
const ARM64_FILES = ["test/vm/arm64/*.vm.ts", "test/vm/{clock,kernel-6.12,substrate}.vm.ts"];

/** All files for the guests' architecture; without a newer kernel, without its file. */
function allFiles(kernels: readonly string[]): string[] {
  if (GUEST_ARCHITECTURE.name === "arm64") return globSync(ARM64_FILES).toSorted();
  const files = globSync("test/vm/*.vm.ts");
  return files.filter((file) => !file.includes("newer") || kernels.length > SERIES.length).toSorted();
}

/** Files whose guests have a vsock device. */
function needsVsockDevice(file: string): boolean {
  return basename(file).startsWith("vsock-device");
}

/**
 * Runs the files that are named, else all, and prints their cases.
 *
 * @returns the exit status
 */
export async function runVmTests(chosen: readonly string[]): Promise<number> {
  const problem = provideQemu();
  if (problem !== undefined) {
    console.log(`SKIPPED: ${problem}\n0 passed, 0 failed, 1 skipped`);
    // A machine that can install it must have it.
    return process.env["CI"] === "true" ? 1 : 0;
  }
  provideTools();
  const kernels = [...SERIES, newerSeries()].filter((each) => each !== undefined);
  for (const series of kernels) provideKernel(series);
  console.log(`architecture: ${GUEST_ARCHITECTURE.name}`);
  console.log(`kernels: ${kernels.join(", ")}${kernels.length > SERIES.length ? "" : "; apt has no newer series"}`);
  const build = join(ROOT, "scripts", "build.ts");
  execaSync(process.execPath, [build, GUEST_ARCHITECTURE.name, "--unless-current"], { cwd: ROOT, stdio: "inherit" });
  const accelerator = await probeAccelerator();
  process.env["GUEST_VM_ACCELERATOR"] = accelerator.name;
  console.log(`accelerator: ${accelerator.name} (${accelerator.reason})`);

  let files = chosen.length > 0 ? [...chosen] : allFiles(kernels);
  const backEnd = files.some(needsVsockDevice) ? await provideVsockBackEnd() : undefined;
  if (backEnd !== undefined && "missing" in backEnd) {
    console.log(`SKIPPED: the files vsock-device*: ${backEnd.missing}`);
    if (process.env["CI"] === "true") return 1;
    files = files.filter((file) => !needsVsockDevice(file));
  }
  const stop = new AbortController();
  onEndSignal(() => stop.abort());
  const succeeded = await runCases({
    files,
    concurrency: MACHINES_AT_ONCE,
    timeout: FILE_LIMIT_MS,
    signal: stop.signal,
  });
  return succeeded && !stop.signal.aborted ? 0 : 1;
}

const ROOT = join(import.meta.dirname, "..", "..", "..");

type Options = NonNullable<Parameters<typeof run>[0]>;

/**
 * Runs files of cases, prints each case with its time, and at the end those that failed and the counts. Whether all
 * have passed.
 */
async function runCases(options: Options): Promise<boolean> {
  const began = performance.now();
  const events = run(options);
  let succeeded = false;
  let counted = "no case ran";
  events.on("test:summary", ({ file, success, counts }) => {
    // The others are those of one file.
    if (file !== undefined) return;
    const { tests, passed, skipped } = counts;
    succeeded = success && passed > 0 && passed === tests;
    counted = `${passed} passed, ${tests - passed - skipped} failed, ${skipped} skipped`;
  });
  const printed = events.compose(new spec());
  printed.pipe(process.stdout);
  await once(printed, "end");
  console.log(`\n${Math.round((performance.now() - began) / 1000)} s\n${counted}`);
  return succeeded;
}
