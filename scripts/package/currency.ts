import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

import { imageOrigin } from "./images.ts";
import { filesBelow } from "./inspect.ts";

/** The project's files that a distribution is made from. The lock file stands for everything that comes from npm. */
const SOURCES = ["src", "scripts/package", "scripts/build.ts", "scripts/build-native.ts", "package-lock.json"];

/** Digest of the project's own part of a build, and of the environment variables that affect it. */
export function sourcesDigest(root: string): string {
  const hash = createHash("sha256").update(JSON.stringify(imageOrigin()));
  const files = SOURCES.map((path) => join(root, path)).flatMap((path) =>
    statSync(path).isDirectory() ? filesBelow(path) : [path],
  );
  for (const file of files) hash.update(`\0${relative(root, file)}\0`).update(readFileSync(file));
  return hash.digest("hex");
}

/** Directories of dist that a build makes, each with a file that proves that it exists. */
const PRODUCTS: Readonly<Record<string, string>> = {
  "linux-x64": "SHA256SUMS",
  "linux-arm64": "SHA256SUMS",
  guestctl: "guestctl",
  client: "package.json",
  oci: "index.json",
};

/** Whether a product exists and was last built from sources with that digest. */
export function isCurrent(root: string, product: string, digest: string): boolean {
  const stamp = stampFile(root, product);
  return (
    existsSync(join(root, "dist", product, PRODUCTS[product] ?? "")) &&
    existsSync(stamp) &&
    readFileSync(stamp, "utf8") === digest
  );
}

/** Records the digest of the sources that a product was built from. */
export function markCurrent(root: string, product: string, digest: string): void {
  const stamp = stampFile(root, product);
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, digest);
}

function stampFile(root: string, product: string): string {
  return join(root, "dist", ".built-from", product);
}
