import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { GUEST_ARCHITECTURE } from "./architecture.ts";

const PARENT_CHECK_MS = 500;

/**
 * Starts QEMU, whose complaints go to a file. Ends with this process, however that ends: the kernel kills a QEMU whose
 * starter is gone (PR_SET_PDEATHSIG).
 */
export function startQemu(args: readonly string[], complaints: string): ChildProcess {
  endWithParent();
  const log = openSync(complaints, "w");
  try {
    return spawn("setpriv", ["--pdeathsig", "KILL", GUEST_ARCHITECTURE.qemu.name, ...args], {
      stdio: ["ignore", "ignore", log],
    });
  } finally {
    closeSync(log);
  }
}

let watching = false;

/** A killed runner cannot tell its test files: they notice that they have another parent. */
function endWithParent(): void {
  if (watching) return;
  watching = true;
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) process.exit(1);
  }, PARENT_CHECK_MS).unref();
}
