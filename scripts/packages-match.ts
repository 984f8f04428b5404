import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** One package of a lock file, as far as a comparison needs it. */
interface LockedPackage {
  readonly version?: string;
  readonly integrity?: string;
  readonly optional?: boolean;
}

type LockedPackages = Readonly<Record<string, LockedPackage>>;

function packagesOf(lockFile: string): LockedPackages {
  const { packages } = JSON.parse(readFileSync(lockFile, "utf8")) as { packages: LockedPackages };
  return packages;
}

/**
 * Whether npm's record of what it installed holds the packages of package-lock.json, at the same versions and with the
 * same integrity. Their folders must be there, too. Optional packages may be missing: they are for other machines.
 */
function matches(root: string): boolean {
  const installedRecord = join(root, "node_modules/.package-lock.json");
  if (!existsSync(installedRecord)) return false;
  const installed = packagesOf(installedRecord);
  return Object.entries(packagesOf(join(root, "package-lock.json"))).every(([path, locked]) => {
    if (path === "") return true;
    const found = installed[path];
    if (found === undefined) return locked.optional === true;
    return (
      found.version === locked.version &&
      found.integrity === locked.integrity &&
      existsSync(join(root, path, "package.json"))
    );
  });
}

process.exitCode = matches(join(import.meta.dirname, "..")) ? 0 : 1;
