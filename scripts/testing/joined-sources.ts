import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { ADDON_FILE } from "../../src/agent/native/index.ts";
import { buildNative } from "../build-native.ts";
import { readyDescriptors } from "../package/agent/descriptors/plugin.ts";
import { bundle } from "../package/bundle.ts";
import { makeGuestctl } from "../package/guestctl.ts";
import { JOINED, SOURCES_VARIABLE } from "./compiled.ts";
import { joinPackages, removeUnused } from "./joined-packages.ts";

const ROOT = join(import.meta.dirname, "../..");

/**
 * Bundles the sources of each program for one run, which a run within it shares; disposing of the result removes them.
 * Tests start hundreds of agents and commands. A start takes 0.10 s of CPU from a bundle, and 0.20 s from the sources
 * (0.42 s without the cache of COMPILED_ONCE).
 */
export async function joinSources(): Promise<Disposable> {
  if (process.env[SOURCES_VARIABLE] !== undefined) return { [Symbol.dispose]: () => {} };
  removeUnused(join(ROOT, "dist"));
  // Not in the temporary folder: some machines mount it noexec, and load no addon from there.
  const folder = mkdtempSync(join(ROOT, "dist", ".test-sources-"));
  // Tests run agents as other users.
  chmodSync(folder, 0o755);
  await bundle(join(ROOT, "src/agent/main.ts"), join(folder, JOINED["agent/main.ts"]), [readyDescriptors()]);
  copyFileSync(buildNative(), join(folder, ADDON_FILE));
  copyFileSync(await joinPackages(), join(folder, "packages.json"));
  await makeGuestctl(ROOT, join(folder, dirname(JOINED["node/guestctl/main.ts"])));
  process.env[SOURCES_VARIABLE] = folder;
  return { [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}
