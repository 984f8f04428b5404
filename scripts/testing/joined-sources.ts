import { chmodSync, copyFileSync, globSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { ADDON_FILE } from "../../src/agent/native/index.ts";
import { buildNative } from "../build-native.ts";
import { readyDescriptors } from "../package/agent/descriptors/plugin.ts";
import { bundle } from "../package/bundle.ts";
import { makeGuestctl } from "../package/guestctl.ts";
import { JOINED, SOURCES_VARIABLE } from "./compiled.ts";
import { joinPackages } from "./joined-packages.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Longer than any run takes. */
const LONGEST_RUN_MS = 24 * 60 * 60 * 1_000;

/**
 * Bundles the sources of each program for one run, which a run within it shares; disposing of the result removes them.
 * Tests start hundreds of agents and commands. A start takes 0.10 s of CPU from a bundle, and 0.20 s from the sources
 * (0.42 s without the cache of COMPILED_ONCE).
 */
export async function joinSources(): Promise<Disposable> {
  if (process.env[SOURCES_VARIABLE] !== undefined) return { [Symbol.dispose]: () => {} };
  removeKilled(join(ROOT, "dist"));
  // Not in the temporary folder: some machines mount it noexec, and load no addon from there.
  const folder = mkdtempSync(join(ROOT, "dist", ".test-sources-"));
  // Tests run agents as other users.
  chmodSync(folder, 0o755);
  await bundle(join(ROOT, "src/agent/main.ts"), join(folder, JOINED["agent/main.ts"]), [readyDescriptors()]);
  copyFileSync(buildNative(), join(folder, ADDON_FILE));
  await joinPackages(folder);
  await makeGuestctl(ROOT, join(folder, dirname(JOINED["node/guestctl/main.ts"])));
  process.env[SOURCES_VARIABLE] = folder;
  return { [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Removes the folders of runs that were killed from the folder of all that is built. */
function removeKilled(dist: string): void {
  for (const name of globSync(".test-sources-*", { cwd: dist })) {
    const folder = join(dist, name);
    const madeMs = statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
    if (madeMs < Date.now() - LONGEST_RUN_MS) rmSync(folder, { recursive: true, force: true });
  }
}
