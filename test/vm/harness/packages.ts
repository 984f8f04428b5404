import { execFileSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CACHE_DIRECTORY } from "../../../scripts/machine/cache.ts";
import { missingPrograms } from "../../../scripts/machine/programs.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";

/** Downloads: kernels and the like. */
const DOWNLOADS = join(CACHE_DIRECTORY, "vm");

const IS_FOREIGN = GUEST_ARCHITECTURE.name !== process.arch;
/** apt's configuration, lists and state for another architecture's packages. */
const FOREIGN_APT = join(DOWNLOADS, `apt-${GUEST_ARCHITECTURE.name}`);

let updated = false;

/**
 * Environment that makes apt look for the guests' architecture. Another one than this machine's gets its own lists,
 * from the machine's own sources: the machine's package manager does not learn of it.
 */
function aptEnvironment(): NodeJS.ProcessEnv {
  if (!IS_FOREIGN) return {};
  const file = join(FOREIGN_APT, "apt.conf");
  mkdirSync(join(FOREIGN_APT, "state", "lists", "partial"), { recursive: true });
  mkdirSync(join(FOREIGN_APT, "cache"), { recursive: true });
  const { debian } = GUEST_ARCHITECTURE;
  writeFileSync(join(FOREIGN_APT, "status"), "");
  writeFileSync(
    file,
    `APT::Architecture "${debian}";
APT::Architectures { "${debian}"; };
APT::Sandbox::User "root";
Dir::State "${FOREIGN_APT}/state";
Dir::State::status "${FOREIGN_APT}/status";
Dir::Cache "${FOREIGN_APT}/cache";
`,
  );
  return { APT_CONFIG: file };
}

function run(command: string, args: readonly string[], cwd?: string): string {
  return execFileSync(command, args, {
    encoding: "utf8",
    env: { ...process.env, ...aptEnvironment(), LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
    stdio: ["ignore", "pipe", "pipe"],
    ...(cwd !== undefined && { cwd }),
  });
}

/** Names of packages that match a regular expression; none without apt. */
export function search(pattern: string): string[] {
  if (missingPrograms([{ name: "apt-cache", package: "apt" }]).length > 0) return [];
  return [...run("apt-cache", ["search", "--names-only", pattern]).matchAll(/^(\S+) - /gm)].map(
    ([, name = ""]) => name,
  );
}

/**
 * Directory of a package's files, without installing it; downloaded once into the cache, under the package's name or
 * the given one. The name is asked for, and the package fetched, again with fresh lists of apt's where that fails.
 */
export function unpacked(name: string | (() => string), cachedAs: string = String(name)): string {
  const directory = join(DOWNLOADS, IS_FOREIGN ? `${cachedAs}-${GUEST_ARCHITECTURE.name}` : cachedAs);
  if (existsSync(directory)) return directory;
  mkdirSync(DOWNLOADS, { recursive: true });
  const work = mkdtempSync(join(DOWNLOADS, "unfinished-"));
  const download = (): string => run("apt-get", ["download", "-qq", typeof name === "string" ? name : name()], work);
  try {
    try {
      download();
    } catch {
      // Its lists may be missing or old.
      if (!updated && (IS_FOREIGN || process.getuid?.() === 0))
        run("apt-get", ["-o", "DPkg::Lock::Timeout=300", "update", "-qq"]);
      updated = true;
      download();
    }
    const [archive = ""] = globSync("*.deb", { cwd: work });
    run("dpkg", ["-x", archive, "files"], work);
    if (!existsSync(directory)) renameSync(join(work, "files"), directory);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return directory;
}
