import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { CACHE_FOLDER } from "../../scripts/machine/cache.ts";
import { missingPrograms, type Program } from "../../scripts/machine/programs.ts";

const PROGRAMS: readonly Program[] = [
  { name: "apt-get", package: "apt" },
  { name: "debootstrap", package: "debootstrap" },
  { name: "dpkg-deb", package: "dpkg" },
  { name: "unshare", package: "util-linux" },
];
/**
 * debootstrap mounts /proc in its folder. A killed one would leave the mount, into which a removal of the folder would
 * go.
 */
const OWN_MOUNTS = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
/** Packages and roots from Debian, which change seldom. */
const CACHE = join(CACHE_FOLDER, "debian");

/** Makes a folder of the cache if it is missing; it appears when it is complete. */
function cached(name: string, make: (folder: string) => void): string {
  const folder = join(CACHE, name);
  if (existsSync(folder)) return folder;
  const unfinished = `${folder}.${process.pid}`;
  try {
    mkdirSync(unfinished, { recursive: true });
    make(unfinished);
    if (!existsSync(folder)) renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return folder;
}

function apt(args: readonly string[], cwd: string): void {
  const run = (command: readonly string[]): unknown => execFileSync("apt-get", command, { cwd, stdio: "pipe" });
  try {
    run(args);
  } catch {
    run(["update", "-qq"]);
    run(args);
  }
}

/** A package of Debian, unpacked but not installed. */
export function debianPackage(name: string): string {
  return cached(`${name}-${process.arch}`, (folder) => {
    apt(["download", "-qq", "-o", "APT::Sandbox::User=root", name], folder);
    const [archive = ""] = readdirSync(folder);
    execFileSync("dpkg-deb", ["-x", archive, "."], { cwd: folder });
    rmSync(join(folder, archive));
  });
}

/** Releases of Debian: 12 and 13. */
export type DebianRelease = "bookworm" | "trixie";

/** A minimal installation of Debian. Takes most of a minute the first time. */
export function debianRoot(release: DebianRelease = "bookworm"): string {
  return cached(`${release}-${process.arch}`, (folder) => {
    const sites = execFileSync("apt-get", ["indextargets", "--format", "$(SITE) $(CODENAME)"], { encoding: "utf8" });
    // This machine's own mirror, which has all releases, whichever the machine uses.
    const mirror = /^(\S+) (?:bookworm|trixie)$/m.exec(sites)?.[1] ?? "http://deb.debian.org/debian";
    execFileSync("unshare", [...OWN_MOUNTS, "debootstrap", "--variant=minbase", release, folder, mirror], {
      stdio: "pipe",
    });
  });
}

/** Why there can be nothing of Debian here; undefined: there can. */
export function noDebian(): string | undefined {
  const [missing] = missingPrograms(PROGRAMS);
  return missing && `needs ${missing.name} (Debian: ${missing.package})`;
}
