import assert from "node:assert/strict";
import { execFileSync, spawnSync, type SpawnSyncReturns } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { type Architecture, haveTool, toolFor } from "../../scripts/package/toolchain.ts";
import { inMountNamespace, noNamespaces, UNMOUNT_CGROUPS } from "../fixtures/namespaces.ts";
import { NEEDS_OPEN_CLONE } from "../fixtures/privileges.ts";
import { releaseDirectory, standaloneDirectory } from "../fixtures/bundles.ts";

const PROJECT_ROOT = join(import.meta.dirname, "..", "..");
const OWN: Architecture = process.arch === "arm64" ? "arm64" : "x64";
const OTHER: Architecture = OWN === "x64" ? "arm64" : "x64";
const CROSS_GCC = toolFor(OTHER, "gcc");
/** Files from npm, mounted: a link would lead elsewhere, and a copy take 500 MB. */
const SHARED = ["node_modules", "dist/.base"];
const refused = noNamespaces();
const OPTIONS = { skip: refused ?? false };

/** What set-up, builds and tests make in a clone, and what git keeps there. */
const NOT_SOURCES = new Set(["node_modules", "dist", ".cache", ".git"]);

/** Another clone of the same sources, elsewhere, with an empty cache. */
function checkOut(directory: string): void {
  for (const name of readdirSync(PROJECT_ROOT).filter((each) => !NOT_SOURCES.has(each))) {
    cpSync(join(PROJECT_ROOT, name), join(directory, name), { recursive: true });
  }
  for (const shared of SHARED) mkdirSync(join(directory, shared), { recursive: true });
}

/** A directory with every program of this machine except apt-get and the other architecture's compiler. */
function hideCrossTools(directory: string): void {
  mkdirSync(directory);
  const hidden = CROSS_GCC.replace(/gcc$/, "");
  for (const path of ["/usr/bin", "/usr/local/bin"]) {
    for (const name of readdirSync(path)) {
      if (name.startsWith(hidden) || name === "apt-get") continue;
      rmSync(join(directory, name), { force: true });
      symlinkSync(join(path, name), join(directory, name));
    }
  }
}

describe("another build of the same sources", OPTIONS, () => {
  const base = mkdtempSync(join(tmpdir(), "guest-agent-rebuild-"));
  const checkout = join(base, "a checkout with another, longer path");
  const tools = join(base, "tools");
  before(() => {
    mkdirSync(join(base, "home"));
    // Makes dist/.base too, where Node for the other architecture is kept.
    if (haveTool(CROSS_GCC)) standaloneDirectory(OTHER);
    mkdirSync(join(PROJECT_ROOT, "dist", ".base"), { recursive: true });
    checkOut(checkout);
    hideCrossTools(tools);
  });
  after(() => rmSync(base, { recursive: true, force: true }));

  /** Builds with another HOME, umask, locale and time zone. With `lines`, they run first, and the builder is nobody. */
  function build(args: readonly string[], PATH: string, lines?: string): SpawnSyncReturns<string> {
    const env = { PATH, HOME: join(base, "home"), LANG: "tr_TR.UTF-8", TZ: "Pacific/Chatham" };
    const mounts = SHARED.map((shared) => `mount --bind "${join(PROJECT_ROOT, shared)}" "${join(checkout, shared)}"`);
    const [file = "", ...inside] = inMountNamespace([...mounts, lines ?? "", "umask 077"].join("\n"));
    const asUser = lines === undefined ? [] : ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    const command = [...inside, ...asUser, process.execPath, join(checkout, "scripts", "build.ts"), ...args];
    return spawnSync(file, command, { env, encoding: "utf8" });
  }

  /** What this checkout ships, without installing the other architecture's compiler: npm test installs nothing. */
  function ownRelease(): string {
    if (haveTool(CROSS_GCC)) return releaseDirectory();
    const command = [join(PROJECT_ROOT, "scripts", "build.ts"), "--unless-current"];
    execFileSync(process.execPath, command, {
      env: { ...process.env, PATH: tools },
      stdio: ["ignore", "ignore", "inherit"],
    });
    return join(PROJECT_ROOT, "dist");
  }

  const sumsOf = (dist: string): string[] => readFileSync(join(dist, "SHA256SUMS"), "utf8").split("\n");

  const byUser = "a user without cgroups and cross compiler builds for this architecture";
  test(byUser, NEEDS_OPEN_CLONE, () => {
    chmodSync(base, 0o755);
    const { status, stdout, stderr } = build([], tools, `chown -R 65534:65534 "${base}"; ${UNMOUNT_CGROUPS}`);
    assert.equal(status, 0, stderr);
    assert.match(stdout, new RegExp(`^built dist/linux-${OWN}: the agent for ${OWN}$`, "m"));
    assert.match(
      stdout,
      new RegExp(`^not built: the agent for ${OTHER} \\(no compiler for ${OTHER}: on Debian, install g`, "m"),
    );
    const inAll = new Set(sumsOf(ownRelease()));
    const other = sumsOf(join(checkout, "dist")).filter((line) => !line.includes("  oci/") && !inAll.has(line));
    assert.deepEqual(other, []);
  });

  test("a build fails and names the missing package if an architecture has no compiler", () => {
    const { status, stderr } = build([OTHER], tools);
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`no compiler for ${OTHER}: on Debian, install g\\+\\+`));
  });

  const skip = haveTool(CROSS_GCC) ? false : `needs ${CROSS_GCC} (Debian: g++-${CROSS_GCC.replace(/-gcc$/, "")})`;
  test("a second build of the release is byte-identical", { skip }, () => {
    const { status, stderr } = build([], process.env["PATH"] ?? "");
    assert.equal(status, 0, stderr);
    assert.deepEqual(sumsOf(join(checkout, "dist")), sumsOf(releaseDirectory()));
    for (const arch of [OWN, OTHER]) {
      assert.deepEqual(sumsOf(join(checkout, "dist", `linux-${arch}`)), sumsOf(standaloneDirectory(arch)));
    }
  });
});
