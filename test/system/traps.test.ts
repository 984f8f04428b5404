import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { noNamespaces } from "../fixtures/namespaces.ts";
import { noDebian } from "./debian-archive.ts";
import { makeRoots, type Root, type Roots } from "./roots.ts";
import { HOSTILE_VARIABLES } from "./sandbox.ts";

const MATTERING = new Set(["NODE_OPTIONS", "LD_PRELOAD", "LD_LIBRARY_PATH", "OPENSSL_CONF"]);
const refused = noNamespaces() ?? noDebian();

/** The traps prove something only if they break programs that heed them. */
describe("the hostile image of the tests", { skip: refused ?? false }, () => {
  let roots: Roots;
  before(() => {
    roots = makeRoots(["glibc without libstdc++"]);
  });
  after(() => roots.remove());

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
    const args = ["--mount", "sh", "-c", script, "sh", layers.join(":"), roots.folder(), linked];
    return spawnSync("unshare", args, { env: {}, stdio: "ignore" }).status;
  }

  test("has variables each of which breaks a plain Node", () => {
    assert.equal(nodeWith("HOME=/nowhere"), 0);
    for (const variable of HOSTILE_VARIABLES.filter((line) => MATTERING.has(line.split("=")[0] ?? ""))) {
      assert.notEqual(nodeWith(variable), 0, variable);
    }
  });

  test("has files that break a program of the image", () => {
    const [root] = roots.all;
    assert.ok(root !== undefined);
    assert.equal(linkedIn(root, root.layers), 0);
    assert.notEqual(linkedIn(root, [roots.traps, ...root.layers]), 0);
  });
});
