import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..");

/** Builds the agent that goes into the guests, where that has not been done. */
export function prepareAgent(): void {
  if (existsSync(join(ROOT, "dist", "linux-x64", "guest-agent"))) return;
  execFileSync(process.execPath, [join(ROOT, "scripts", "build.ts"), "x64"], { cwd: ROOT, stdio: "inherit" });
}
