import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

import { filesBelow } from "./inspect.ts";
import type { Architecture } from "./toolchain.ts";

/** What a distribution is made from; what comes from npm is named by the lock file. */
const SOURCES = ["src", "scripts/package", "scripts/build.ts", "scripts/build-native.ts", "package-lock.json"];

/** Digest of the project's own part in a build. */
export function sourcesDigest(root: string): string {
  const hash = createHash("sha256");
  const files = SOURCES.map((path) => join(root, path)).flatMap((path) =>
    statSync(path).isDirectory() ? filesBelow(path) : [path],
  );
  for (const file of files) hash.update(`\0${relative(root, file)}\0`).update(readFileSync(file));
  return hash.digest("hex");
}

/** Whether the last build of an architecture was made from sources of that digest. */
export function isCurrent(root: string, arch: Architecture, digest: string): boolean {
  const stamp = stampFile(root, arch);
  return (
    existsSync(join(root, "dist", `linux-${arch}`, "SHA256SUMS")) &&
    existsSync(stamp) &&
    readFileSync(stamp, "utf8") === digest
  );
}

/** Notes what the build of an architecture was made from. */
export function markCurrent(root: string, arch: Architecture, digest: string): void {
  const stamp = stampFile(root, arch);
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, digest);
}

function stampFile(root: string, arch: Architecture): string {
  return join(root, "dist", ".built-from", `linux-${arch}`);
}
