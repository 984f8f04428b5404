import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { ADDON_FILE } from "../../src/native/index.ts";
import { buildNative } from "../build-native.ts";
import { readyDescriptors } from "../package/agent/descriptors/plugin.ts";
import { bundle } from "../package/bundle.ts";
import { makeGuestctl } from "../package/guestctl.ts";
import { JOINED, SOURCES_VARIABLE } from "./compiled.ts";

const ROOT = join(import.meta.dirname, "../..");

/**
 * Joins the sources of each program into files of a run's own, which go with what is returned; a run within a run uses
 * the same. Tests start hundreds of agents and commands, and each start takes 0.10 s of CPU so, not 0.20 (0.42 without
 * what COMPILED_ONCE keeps).
 */
export async function joinSources(): Promise<Disposable> {
  if (process.env[SOURCES_VARIABLE] !== undefined) return { [Symbol.dispose]: () => {} };
  // Not in the temporary folder, because some machines load no addons from there.
  const folder = mkdtempSync(join(ROOT, "dist", ".test-sources-"));
  // Agents of other users read it too.
  chmodSync(folder, 0o755);
  await bundle(join(ROOT, "src/main.ts"), join(folder, JOINED["main.ts"]), {
    target: "node26",
    plugins: [readyDescriptors()],
  });
  copyFileSync(buildNative(), join(folder, ADDON_FILE));
  await makeGuestctl(ROOT, join(folder, dirname(JOINED["cli/main.ts"])));
  process.env[SOURCES_VARIABLE] = folder;
  return { [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}
