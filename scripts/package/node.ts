import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { machinePath } from "../machine/npm.ts";
import { type Architecture, runTool } from "./toolchain.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/** Directory of the npm package that contains Node for an architecture: as installed, or downloaded from npm's registry. */
export function nodePackage(arch: Architecture): string {
  const name = `node-linux-${arch}`;
  const installed = join(ROOT, "node_modules", name);
  return existsSync(join(installed, "bin", "node")) ? installed : fetchPackage(name);
}

/**
 * npm does not install packages for other architectures, so this one is downloaded and checked against
 * package-lock.json.
 */
function fetchPackage(name: string): string {
  const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity: string }>>;
  };
  const locked = lock.packages[`node_modules/${name}`];
  if (locked === undefined) throw new Error(`package-lock.json has no ${name}: run npm install`);
  const { version, integrity } = locked;
  const directory = join(ROOT, "dist", ".base", `${name}-${version}`);
  if (existsSync(directory)) return directory;
  const unfinished = `${directory}.${process.pid}`;
  mkdirSync(unfinished, { recursive: true });
  try {
    const pack = ["pack", "--silent", "--pack-destination", unfinished, `${name}@${version}`];
    runTool("npm", pack, ROOT, { PATH: machinePath() });
    const [archive = ""] = readdirSync(unfinished);
    const digest = createHash("sha512")
      .update(readFileSync(join(unfinished, archive)))
      .digest("base64");
    if (`sha512-${digest}` !== integrity) throw new Error(`${name}@${version} is not what package-lock.json names`);
    runTool("tar", ["-xzf", archive, "--strip-components=1", "--no-same-owner"], unfinished);
    rmSync(join(unfinished, archive));
    renameSync(unfinished, directory);
    return directory;
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
}

/**
 * The oldest Node that runs the programs of the node side. From 20.19 and 22.12 on, programs can load the client
 * library, an ES module, with require(); `using` needs 20.5.
 */
export const LOWEST_NODE = "20.19.0";

/** The required versions as a sentence. The package `node` of npm provides every version of Node. */
export const NODE_REQUIREMENT: string =
  "guestctl and the client library require Node 20.19, 22.12 or later: install one, for example with npm install --global node@22";

/**
 * The required versions for the package manifest. They exclude the releases of 21 and 22 that cannot require() an ES
 * module.
 */
export const NODE_ENGINES = "^20.19.0 || >=22.12.0";

/**
 * Flags for the agent's Node. They save memory (a small young generation, and one V8 thread instead of four idle ones),
 * and keep SIGUSR1 from starting a debugger. --no-memory-reducer prevents garbage collections of an idle heap, which
 * would follow a snapshot; the agent collects garbage itself (MemoryKeeper). --memory-pool-timeout=0 prevents, for the
 * same reason, the task by which V8 frees unused pages of its heap 8 s after a garbage collection; V8 then frees them
 * in the agent's next collection. V8 reads these flags only at its start. --use-openssl-ca avoids parsing a hundred
 * public authorities at the first use of TLS, because the agent trusts only the authorities from its configuration; the
 * launcher makes OpenSSL's store an empty file.
 */
export const NODE_FLAGS: readonly string[] = [
  "--max-semi-space-size=1",
  "--v8-pool-size=0",
  "--no-memory-reducer",
  "--memory-pool-timeout=0",
  "--disable-sigusr1",
  "--use-openssl-ca",
];
