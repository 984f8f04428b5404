/**
 * `npm run build`: everything that is shipped, into dist/. For each architecture dist/linux-<arch>, the directory that
 * is put into a sandbox, archives of it and images; dist/guestctl and dist/client for the node side. See `--help`.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, openSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { runScript, UsageError } from "./machine/script.ts";
import { removeOtherVersions, writeChecksums } from "./package/archive.ts";
import { bundleScript, makeGuestctl } from "./package/bundle.ts";
import { makeClientLibrary } from "./package/client-library.ts";
import { isCurrent, markCurrent, sourcesDigest } from "./package/currency.ts";
import { makeDistribution } from "./package/distribution.ts";
import { imageOrigin, makeImages } from "./package/images.ts";
import { readPackage } from "./package/materials.ts";
import { type Architecture, CROSS_PACKAGES, isArchitecture, prepareTools } from "./package/toolchain.ts";

const ROOT = join(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");

const USAGE = `usage: npm run build [-- [--unless-current] ARCHITECTURE...]
  ARCHITECTURE       x64 or arm64; default: this machine's own, and the other one where its compiler can be had,
                     and the images of both
  --unless-current   does nothing when they, guestctl and the client library were built from the same sources`;

function say(path: string, what: string): void {
  console.log(`built ${relative(ROOT, path)}: ${what}`);
}

function megabytes(file: string): string {
  return `${(statSync(file).size / 1e6).toFixed(1)} MB`;
}

/**
 * Returns the requested architectures. By default these are all that this machine can build for. Fails if it cannot
 * build for a requested one.
 */
function architectures(asked: readonly string[]): Architecture[] {
  const unknown = asked.find((arch) => !isArchitecture(arch));
  if (unknown !== undefined)
    throw new UsageError(`"${unknown}" is not an architecture of the agent: name x64 or arm64`);
  const wanted = asked.length > 0 ? asked : [process.arch, process.arch === "x64" ? "arm64" : "x64"];
  return wanted.filter(isArchitecture).filter((arch) => {
    if (prepareTools(arch)) return true;
    const missing = `no compiler for ${arch}: on Debian, install ${CROSS_PACKAGES[arch]}`;
    if (asked.includes(arch) || arch === process.arch) throw new Error(missing);
    console.log(`not built: the agent for ${arch} (${missing})`);
    return false;
  });
}

async function build(asked: readonly string[], digest: string): Promise<void> {
  const possible = architectures(asked);
  const { version, description, license } = readPackage(ROOT);
  removeOtherVersions(DIST, version);
  for (const [name, make, what] of [
    ["guestctl", makeGuestctl, "guestctl, for the node side"],
    ["client", makeClientLibrary, "the client library, a package for npm"],
  ] as const) {
    await make(ROOT, join(DIST, name));
    say(join(DIST, name), what);
    markCurrent(ROOT, name, digest);
  }
  const release: string[] = [];
  const script = await bundleScript(ROOT, join(DIST, ".unfinished", "agent.js"));
  for (const arch of possible) {
    const { directory, archives } = await makeDistribution(ROOT, arch, script);
    say(directory, `the agent for ${arch}`);
    for (const archive of archives) say(archive, `the same, ${megabytes(archive)}`);
    release.push(...archives);
    markCurrent(ROOT, `linux-${arch}`, digest);
  }
  if (asked.length > 0) return;
  const facts = { version, description, license, ...imageOrigin() };
  const [layout = "", ...dockerArchives] = await makeImages(DIST, possible, facts);
  say(layout, `the same as an OCI image layout, for ${possible.join(" and ")}`);
  for (const archive of dockerArchives) say(archive, `the same for docker load, ${megabytes(archive)}`);
  const files = [...release, layout, ...dockerArchives, join(DIST, "guestctl"), join(DIST, "client")];
  writeChecksums(DIST, files.map((file) => relative(DIST, file)).toSorted());
  say(join(DIST, "SHA256SUMS"), "checksums of all of it");
  markCurrent(ROOT, "oci", digest);
}

/**
 * Takes the lock of a file, and waits while another process has it. This process keeps the lock until it ends, however
 * it ends (flock(2)). Does nothing if the program flock(1) is missing.
 *
 * @param waits is called if the lock is not free
 */
export function takeTurn(file: string, waits: () => void): void {
  mkdirSync(dirname(file), { recursive: true });
  const lock = openSync(file, "a");
  const flock = (...args: readonly string[]): number | null =>
    spawnSync("flock", [...args, "3"], { stdio: ["ignore", "ignore", "inherit", lock] }).status;
  if (flock("--nonblock") !== 1) return;
  waits();
  flock();
}

await runScript("build", USAGE, async () => {
  process.chdir(ROOT);
  const { values, positionals: asked } = parseArgs({
    options: { "unless-current": { type: "boolean" } },
    allowPositionals: true,
  });
  takeTurn(join(DIST, ".build.lock"), () => {
    process.stderr.write("build: waiting for another build of this checkout\n");
  });
  // Compute the digest before the build, because sources that change during the build must not count as built.
  const digest = sourcesDigest(ROOT);
  const wanted = [
    "guestctl",
    "client",
    ...(asked.length > 0 ? asked.map((arch) => `linux-${arch}`) : [`linux-${process.arch}`, "oci"]),
  ];
  const isThere = wanted.every((product) => isCurrent(ROOT, product, digest));
  if (values["unless-current"] === true && isThere) console.log("built before, from the same sources: nothing to do");
  else await build(asked, digest);
  return 0;
});
