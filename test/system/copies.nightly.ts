import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { chmod, lstat, mkdir, readdir, readFile, readlink, symlink, utimes, writeFile } from "node:fs/promises";
import { startAgent } from "../fixtures/agent.ts";
import { testFolder } from "../fixtures/files.ts";
import { noNamespaces } from "../fixtures/namespaces.ts";
import { standaloneFolder } from "../fixtures/standalone.ts";
import { guestctlVariables, issuedCertificates, runGuestctl } from "../node/guestctl/guestctl.ts";
import { noDebian } from "./debian-archive.ts";
import { makeRoots, type RootName, type Roots } from "./roots.ts";
import { endAtLast, makeSandbox, type Setting } from "./sandbox.ts";

const IMAGES: readonly RootName[] = ["Debian 12", "musl", "scratch", "empty"];
const SETTING: Setting = { proc: true, dev: true, user: 0, init: "stays", hostile: false, writable: true };

/** A tree with everything that can be copied, and names of any bytes. */
async function makeTree(root: string): Promise<void> {
  await mkdir(`${root}/sub/deep`, { recursive: true });
  await mkdir(`${root}/empty`, { mode: 0o700 });
  for (let index = 0; index < 40; index++) await writeFile(`${root}/sub/${index}`, `${index}`.repeat(1_000 * index));
  for (let index = 0; index < 40; index++) await utimes(`${root}/sub/${index}`, 1_000, 1_000_000_000 + index);
  const name = Buffer.concat([Buffer.from(`${root}/sub/`), Buffer.from([0xff, 0xfe])]);
  await writeFile(name, "not UTF-8");
  await utimes(name, 1_000, 2_000);
  await symlink("../sub/1", `${root}/sub/deep/link`);
  await symlink("/nowhere", `${root}/dangling`);
  await chmod(`${root}/sub/2`, 0o4755);
  // Node takes a negative number to mean now.
  await utimes(`${root}/sub/3`, 1_000, new Date(-86_400_000));
}

/** Everything below a folder: type, mode without setuid, and content. */
async function described(root: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of await readdir(root, { recursive: true, encoding: "latin1" })) {
    const path = Buffer.concat([Buffer.from(`${root}/`), Buffer.from(name, "latin1")]);
    const stats = await lstat(path);
    const mode = (stats.mode & 0o777).toString(8);
    if (stats.isSymbolicLink()) found[name] = await readlink(path);
    else if (stats.isDirectory()) found[name] = mode;
    else
      found[name] = [
        mode,
        stats.mtimeMs,
        createHash("sha256")
          .update(await readFile(path))
          .digest("hex"),
      ].join(" ");
  }
  return found;
}

const refused = noNamespaces() ?? noDebian();

describe("guestctl cp -r", { skip: refused ?? false }, () => {
  let roots: Roots;
  let bundle = "";
  before(() => {
    bundle = standaloneFolder();
    roots = makeRoots(IMAGES);
  });
  after(() => roots.remove());

  for (const name of IMAGES) {
    it(`copies a tree into an image and out again: ${name}`, async () => {
      await using folder = await testFolder();
      const root = roots.all.find((candidate) => candidate.name === name);
      assert.ok(root !== undefined);
      await makeTree(folder.at("tree"));
      const sandbox = makeSandbox(roots, root, bundle, SETTING);
      await using agent = await startAgent({ through: sandbox.command, certificates: await issuedCertificates() });
      using _ = endAtLast(agent);
      for (const args of [
        ["mkdir", "-p", ":/srv/site"],
        ["cp", "-r", folder.at("tree"), ":/srv/site"],
        ["cp", "-r", ":/srv/site/tree", folder.at("back")],
      ]) {
        assert.deepEqual(await runGuestctl(args, guestctlVariables(agent)), { stdout: "", stderr: "", exitCode: 0 });
      }
      assert.deepEqual(await described(folder.at("back")), await described(folder.at("tree")));
      const { stdout } = await runGuestctl(["ls", "-l", "/srv/site/tree/sub"], guestctlVariables(agent));
      assert.match(stdout, /^-rwsr-xr-x .* 2$/m, "setuid bits go in");
      const removal = ["rm", "-r", "--json", "/srv"];
      const { removed, left } = JSON.parse((await runGuestctl(removal, guestctlVariables(agent))).stdout) as {
        removed: number;
        left: number;
      };
      assert.deepEqual([removed, left], [Object.keys(await described(folder.at("tree"))).length + 3, 0]);
    });
  }
});
