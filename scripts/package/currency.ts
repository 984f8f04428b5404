import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

import { imageOrigin } from "./images.ts";
import { filesBelow } from "./inspect.ts";

/** Inputs of a distribution; the lock file names what comes from npm. */
const SOURCES = ["src", "scripts/package", "scripts/build.ts", "scripts/build-native.ts", "package-lock.json"];

/** Digest of the project's own part in a build, and of what the environment tells it. */
export function sourcesDigest(root: string): string {
  const hash = createHash("sha256").update(JSON.stringify(imageOrigin()));
  const files = SOURCES.map((path) => join(root, path)).flatMap((path) =>
    statSync(path).isDirectory() ? filesBelow(path) : [path],
  );
  for (const file of files) hash.update(`\0${relative(root, file)}\0`).update(readFileSync(file));
  return hash.digest("hex");
}

/** A folder of dist that is made by a build, by the file that it is not there without. */
const PRODUCTS: Readonly<Record<string, string>> = {
  "linux-x64": "SHA256SUMS",
  "linux-arm64": "SHA256SUMS",
  guestctl: "guestctl",
  client: "package.json",
  oci: "index.json",
};

/** Whether a product is there and was last built from sources of that digest. */
export function isCurrent(root: string, product: string, digest: string): boolean {
  const stamp = stampFile(root, product);
  return (
    existsSync(join(root, "dist", product, PRODUCTS[product] ?? "")) &&
    existsSync(stamp) &&
    readFileSync(stamp, "utf8") === digest
  );
}

/** Records the sources of a product. */
export function markCurrent(root: string, product: string, digest: string): void {
  const stamp = stampFile(root, product);
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, digest);
}

function stampFile(root: string, product: string): string {
  return join(root, "dist", ".built-from", product);
}
