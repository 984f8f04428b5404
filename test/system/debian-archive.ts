import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { CACHE_DIRECTORY } from "../../scripts/machine/cache.ts";
import { missingPrograms, type Program } from "../../scripts/machine/programs.ts";

const PROGRAMS: readonly Program[] = [
  { name: "apt-get", package: "apt" },
  { name: "debootstrap", package: "debootstrap" },
  { name: "dpkg-deb", package: "dpkg" },
  { name: "unshare", package: "util-linux" },
];
/**
 * debootstrap mounts /proc in its directory. A killed one would leave the mount, into which a removal of the directory
 * would go.
 */
const OWN_MOUNTS = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
/** Roots from Debian, which change seldom. */
const CACHE = join(CACHE_DIRECTORY, "debian");

/** Releases of Debian: 12 and 13. */
export type DebianRelease = "bookworm" | "trixie";

/** A minimal installation of Debian. Takes most of a minute the first time. */
export function debianRoot(release: DebianRelease = "bookworm"): string {
  const directory = join(CACHE, `${release}-${process.arch}`);
  if (existsSync(directory)) return directory;
  const unfinished = `${directory}.${process.pid}`;
  const sites = execFileSync("apt-get", ["indextargets", "--format", "$(SITE) $(CODENAME)"], { encoding: "utf8" });
  // This machine's own mirror, which has all releases, whichever the machine uses.
  const mirror = /^(\S+) (?:bookworm|trixie)$/m.exec(sites)?.[1] ?? "http://deb.debian.org/debian";
  try {
    mkdirSync(unfinished, { recursive: true });
    const install = [...OWN_MOUNTS, "debootstrap", "--variant=minbase", release, unfinished, mirror];
    execFileSync("unshare", install, { stdio: "pipe" });
    if (!existsSync(directory)) renameSync(unfinished, directory);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return directory;
}

/** Why there can be nothing of Debian here; undefined: there can. */
export function noDebian(): string | undefined {
  const [missing] = missingPrograms(PROGRAMS);
  return missing && `needs ${missing.name} (Debian: ${missing.package})`;
}
