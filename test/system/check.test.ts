import assert from "node:assert/strict";
import { spawnSync, type SpawnSyncReturns } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import type { Check } from "../../src/agent/check/index.ts";
import { AGENT_VERSION } from "../../src/shared/version.ts";
import { noNamespaces } from "../fixtures/namespaces.ts";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { noDebian } from "./debian-archive.ts";
import { makeRoots, type Root, type RootName, type Roots } from "./roots.ts";
import { HOSTILE_VARIABLES, makeSandbox, type Setting } from "./sandbox.ts";

interface Report {
  readonly version: string;
  readonly ok: boolean;
  readonly checks: readonly Check[];
}

const EVERYTHING: Setting = { proc: true, dev: true, user: 0, init: "stays", hostile: true, writable: true };
const MATTERING = new Set(["NODE_OPTIONS", "LD_PRELOAD", "LD_LIBRARY_PATH", "OPENSSL_CONF"]);
const refused = noNamespaces() ?? noDebian();

let roots: Roots;
before(() => {
  if (refused === undefined) roots = makeRoots(["scratch", "empty", "glibc without libstdc++"]);
});
after(() => roots?.remove());

describe("guest-agent's own commands", { skip: refused ?? false }, () => {
  const bundle = standaloneDirectory();

  function run(name: RootName, difference: Partial<Setting>): SpawnSyncReturns<string> {
    const root = roots.all.find((candidate) => candidate.name === name);
    assert.ok(root !== undefined);
    const { command } = makeSandbox(roots, root, bundle, { ...EVERYTHING, ...difference });
    const [file = "", ...args] = command;
    // The certificates' directory is where a sandbox has its sockets; here it has none.
    const env = { PATH: process.env["PATH"] ?? "", SVC_TLS_CERT_FILE: join(roots.directory(), "none") };
    return spawnSync(file, args, { env, encoding: "utf8", timeout: 500_000 });
  }

  function check(name: RootName, difference: Partial<Setting>): { readonly status: number | null; limited: string[] } {
    const { status, stdout, stderr } = run(name, { ...difference, args: ["check", "--json"] });
    assert.equal(stderr, "");
    const report = JSON.parse(stdout) as Report;
    assert.equal(report.version, AGENT_VERSION);
    assert.equal(report.ok, status === 0);
    return { status, limited: report.checks.filter(({ ok }) => !ok).map(({ name: limited }) => limited) };
  }

  test("`guest-agent --version` prints the version in an empty root directory", () => {
    const { status, stdout, stderr } = run("empty", { proc: false, dev: false, args: ["--version"] });
    assert.deepEqual([status, stdout, stderr], [0, `${AGENT_VERSION}\n`, ""]);
  });

  test("`guest-agent --help` names every command and option", () => {
    const { status, stdout } = run("empty", { args: ["--help"] });
    assert.equal(status, 0);
    for (const word of ["run", "bridge [SOCKET]", "check [--json]", "--version", "--help"])
      assert.ok(stdout.includes(word));
  });

  test("`guest-agent run` behaves like `guest-agent` without arguments", () => {
    const [named, unnamed] = [run("empty", { args: ["run"] }), run("empty", { args: [] })];
    // Each run has a directory of its own for certificates that are missing.
    const faults = ({ stderr }: SpawnSyncReturns<string>): string => stderr.replaceAll(/names \S+,/g, "names a file,");
    assert.deepEqual([named.status, faults(named)], [78, faults(unnamed)]);
  });

  test("`guest-agent` rejects unknown arguments without printing them and suggests SVC_PROCESS_SPEC", () => {
    for (const args of [
      ["check", "--jsno"],
      ["run", "fast"],
      ["/bin/server", "--password=s3cr3t"],
    ]) {
      const { status, stdout, stderr } = run("empty", { args });
      assert.deepEqual([status, stdout], [64, ""]);
      assert.match(stderr, /^guest-agent: does not accept these arguments; .* SVC_PROCESS_SPEC \(try --help\)\n$/);
    }
  });

  test("if /proc and /dev exist, `check` finds only capabilities and clock limited", () => {
    assert.deepEqual(check("scratch", {}), { status: 1, limited: ["capabilities", "clock"] });
  });

  test("in a root directory without /proc and /dev, `check` reports what is missing", () => {
    const { limited } = check("empty", { proc: false, dev: false });
    assert.deepEqual(limited, ["capabilities", "/proc", "/dev/null", "terminal", "/dev/urandom", "clock"]);
  });

  test("`check` reports what a non-root user is not permitted to do", () => {
    const { limited } = check("empty", { user: 1000 });
    assert.deepEqual(limited, ["user", "capabilities", "cgroups", "entropy", "clock"]);
  });

  test("`check` prints a table, which says whether `check` runs as PID 1", () => {
    const { status, stdout } = run("empty", { init: "is the agent", args: ["check"] });
    assert.equal(status, 1);
    assert.match(stdout, /^ok +user +0, PID 1 +\S[^]*^limited +clock +EPERM +the restore steps cannot set/m);
  });
});

/** The traps prove something only if they break programs that heed them. */
describe("the hostile image of the tests", { skip: refused ?? false }, () => {
  /** Exit status of a plain Node that is started with one of the variables. */
  function nodeWith(variable: string): number | null {
    const [name = "", path = ""] = variable.split("=");
    const value = path.replace(/^\/traps/, join(roots.traps, "traps")).replace(/^\/etc/, join(roots.traps, "etc"));
    const script = "require('node:crypto').randomBytes(1)";
    return spawnSync(process.execPath, ["-e", script], { env: { [name]: value }, stdio: "ignore" }).status;
  }

  /** Exit status of a program of the root that needs its C library, with these layers. */
  function linkedIn({ linked = "" }: Root, layers: readonly string[]): number | null {
    const script = 'mount -t overlay -o "ro,lowerdir=$1" overlay "$2" && exec chroot "$2" "$3"';
    const args = ["--mount", "sh", "-c", script, "sh", layers.join(":"), roots.directory(), linked];
    return spawnSync("unshare", args, { env: {}, stdio: "ignore" }).status;
  }

  test("plain Node fails with each dangerous variable of the hostile test image", () => {
    assert.equal(nodeWith("HOME=/nowhere"), 0);
    for (const variable of HOSTILE_VARIABLES.filter((line) => MATTERING.has(line.split("=")[0] ?? ""))) {
      assert.notEqual(nodeWith(variable), 0, variable);
    }
  });

  test("the hostile test image's wrong libraries break a dynamically linked program", () => {
    const root = roots.all.find(({ linked }) => linked !== undefined);
    assert.ok(root);
    assert.equal(linkedIn(root, root.layers), 0);
    assert.notEqual(linkedIn(root, [roots.traps, ...root.layers]), 0);
  });
});
