import { execFileSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { missingPrograms } from "../../../scripts/machine/programs.ts";

/** Where downloads are kept between runs. */
const CACHE_FOLDER: string = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "guest-agent-vm");

let updated = false;

function run(command: string, args: readonly string[], cwd?: string): string {
  return execFileSync(command, args, {
    encoding: "utf8",
    env: { ...process.env, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
    stdio: ["ignore", "pipe", "pipe"],
    ...(cwd !== undefined && { cwd }),
  });
}

/** Refreshes apt's lists, once. */
export function updateLists(): void {
  if (!updated && process.getuid?.() === 0) run("apt-get", ["-o", "DPkg::Lock::Timeout=300", "update", "-qq"]);
  updated = true;
}

/** Names of packages that apt knows, by a regular expression; none where there is no apt. */
export function search(pattern: string): string[] {
  if (missingPrograms([{ name: "apt-cache", package: "apt" }]).length > 0) return [];
  return [...run("apt-cache", ["search", "--names-only", pattern]).matchAll(/^(\S+) - /gm)].map(
    ([, name = ""]) => name,
  );
}

/** Folder of a package's files, without installing it; downloaded once into the cache under the given name. */
export function unpacked(name: string, cachedAs: string): string {
  const folder = join(CACHE_FOLDER, cachedAs);
  if (existsSync(folder)) return folder;
  mkdirSync(CACHE_FOLDER, { recursive: true });
  const work = mkdtempSync(join(CACHE_FOLDER, "unfinished-"));
  try {
    run("apt-get", ["download", "-qq", name], work);
    const [archive = ""] = globSync("*.deb", { cwd: work });
    run("dpkg", ["-x", archive, "files"], work);
    if (!existsSync(folder)) renameSync(join(work, "files"), folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}

/** The folder that is cached under a name; undefined when there is none. */
export function cached(name: string): string | undefined {
  const folder = join(CACHE_FOLDER, name);
  return existsSync(folder) ? folder : undefined;
}
