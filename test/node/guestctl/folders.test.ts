import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it } from "node:test";
import { type TestFolder, testFolder, tmpfsMount } from "../../fixtures/files.ts";
import { tableText } from "../../../src/node/guestctl/cli/output.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import {
  assertRefused,
  type GuestctlResult,
  guestctlVariables,
  jsonLines,
  runGuestctl,
  startIssuedAgent,
} from "./guestctl.ts";
import { type Files, type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { type CopyParts, CopyReport, Progress } from "../../../src/node/guestctl/copy/report.ts";
import { uploadFile } from "../../../src/node/guestctl/copy/upload.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

// As in an image without programs.
const agent = forAllTests(await startIssuedAgent({ process: { env: { PATH: "/nowhere" } } }));
let folder: TestFolder;
beforeEach(async () => {
  folder = await testFolder();
});
afterEach(() => folder[Symbol.asyncDispose]());

const guestctl = (...args: readonly string[]): Promise<GuestctlResult> => runGuestctl(args, guestctlVariables(agent));

async function quietly(...args: readonly string[]): Promise<void> {
  assert.deepEqual(await guestctl(...args), { stdout: "", stderr: "", exitCode: 0 });
}

describe("guestctl ls", () => {
  it("ls lists what ls(1) lists, with -R too", async () => {
    await mkdir(folder.at("tree/sub/deep"), { recursive: true });
    for (const name of ["b", "a", ".hidden", "sub/file", "sub/deep/file"])
      await writeFile(folder.at(`tree/${name}`), "");
    const ls = (...args: string[]): string =>
      spawnSync("ls", [...args, folder.at("tree")], { encoding: "utf8", env: { LC_ALL: "C" } }).stdout;
    assert.equal((await guestctl("ls", folder.at("tree"))).stdout, ls("-A1"));
    assert.equal((await guestctl("ls", "-R", `:${folder.at("tree")}`)).stdout, ls("-A1R"));
    assert.equal((await guestctl("ls", folder.at("tree/a"))).stdout, `${folder.at("tree/a")}\n`);
    const unsorted = (await guestctl("ls", "-UR", folder.at("tree"))).stdout.trim().split("\n").toSorted();
    const found = spawnSync("find", [folder.at("tree"), "-mindepth", "1"], { encoding: "utf8" })
      .stdout.trim()
      .split("\n")
      .toSorted();
    assert.deepEqual(unsorted, found);
  });

  it("ls -l prints modes, owners, sizes, times and targets like ls(1)", NEEDS_ROOT, async () => {
    await writeFile(folder.at("file"), "12345");
    await mkdir(folder.at("sub"));
    await symlink("file", folder.at("link"));
    for (const [name, mode] of [
      ["file", 0o4751],
      ["sub", 0o1777],
    ] as const)
      await chmod(folder.at(name), mode);
    const { stdout } = await guestctl("ls", "-l", folder.path);
    const args = ["-lnA", "--time-style=+%Y-%m-%dT%H:%M:%SZ", folder.path];
    const theirs = spawnSync("ls", args, { encoding: "utf8", env: { LC_ALL: "C", TZ: "UTC" } }).stdout;
    const words = (text: string): string[][] =>
      text
        .trim()
        .split("\n")
        .filter((line) => !line.startsWith("total"))
        .map((line) => line.split(/\s+/));
    assert.deepEqual(words(stdout), words(theirs));
  });

  it("ls --json prints one object per entry", async () => {
    for (const name of ["a", "b", "c"]) await writeFile(folder.at(name), name);
    const { stdout, stderr, exitCode } = await guestctl("ls", "--json", folder.path);
    const lines = jsonLines(stdout);
    assert.equal(lines.length, 3);
    for (const line of lines)
      assert.deepEqual([line["type"], line["size"], line["mount_point"]], ["FILE_TYPE_REGULAR", "1", false]);
    assert.deepEqual([stderr, exitCode], ["", 0]);
    assert.match((await guestctl("ls", folder.at("gone"))).stderr, /no such file or directory/);
  });
});

describe("a table of guestctl", () => {
  it("tables have a row per name and aligned columns for wide characters", () => {
    const many = Array.from({ length: 150_000 }, (_, at) => [String(at), "x"]);
    assert.equal(tableText(many).split("\n").length, 150_001);
    const rows = ["ab", "日本", "e\u0301é", "👍", "ｘ", "\u001b[2J"].map((cell) => [cell, "|"]);
    assert.equal(tableText(rows), "ab    |\n日本  |\ne\u0301é    |\n👍    |\nｘ    |\n?[2J  |\n");
  });
});

describe("guestctl mkdir, mv, chmod and rm", () => {
  it("mkdir, mv, chmod and rm work without programs of the image", async () => {
    await quietly("mkdir", "-p", "-m", "0750", `:${folder.at("a/b/c")}`, folder.at("d"));
    assert.equal((await stat(folder.at("a/b/c"))).mode & 0o777, 0o750);
    await quietly("mkdir", "-p", folder.at("d"));
    assertRefused(await guestctl("mkdir", folder.at("d")), /already exists/);
    await writeFile(folder.at("one"), "one");
    await quietly("mv", folder.at("one"), `:${folder.at("two")}`);
    await quietly("mv", folder.at("two"), folder.at("a"), folder.at("d"));
    assert.deepEqual((await readdir(folder.at("d"))).toSorted(), ["a", "two"]);
    await writeFile(folder.at("three"), "three");
    assert.match((await guestctl("mv", "-n", folder.at("three"), folder.at("d/two"))).stderr, /ALREADY_EXISTS/);
    assert.equal(await readFile(folder.at("d/two"), "utf8"), "one");
    await quietly("chmod", "4711", folder.at("d/two"), `:${folder.at("three")}`);
    for (const name of ["d/two", "three"]) assert.equal((await lstat(folder.at(name))).mode & 0o7777, 0o4711);
    const full = await guestctl("rm", folder.at("d"));
    assert.match(full.stderr, /the directory is not empty.*; rm -r removes it with everything in it/);
    await quietly("rm", "-r", `:${folder.at("d")}`, folder.at("three"));
    assert.match((await guestctl("rm", folder.at("three"))).stderr, /no such file or directory/);
    await quietly("rm", "-f", folder.at("three"));
    assertRefused(await guestctl("rm", "-r", "/etc/.."), /path must end in a name other than \. and \.\. \[/);
    assert.deepEqual(await folder.names(), []);
  });

  it("chmod -R and chown -R change trees but not symlinks in them", NEEDS_ROOT, async () => {
    await mkdir(folder.at("tree/sub"), { recursive: true });
    for (const name of ["tree/a", "tree/sub/b", "outside"]) await writeFile(folder.at(name), "", { mode: 0o640 });
    await symlink("../outside", folder.at("tree/link"));
    await quietly("chmod", "-R", "u=rwX,go=rX", folder.at("tree"));
    const modes = ["tree", "tree/a", "tree/sub", "tree/sub/b", "outside"].map(async (name) =>
      ((await stat(folder.at(name))).mode & 0o7777).toString(8),
    );
    assert.deepEqual(await Promise.all(modes), ["755", "644", "755", "644", "640"]);
    await quietly("chmod", "-x", folder.at("tree/sub"));
    assert.equal((await stat(folder.at("tree/sub"))).mode & 0o7777, 0o644);
    await quietly("chown", "-R", "daemon:", folder.at("tree"));
    const owners = ["tree", "tree/a", "tree/sub/b", "outside"].map(async (name) => {
      const { uid, gid } = await stat(folder.at(name));
      return `${uid}:${gid}`;
    });
    assert.deepEqual(await Promise.all(owners), ["1:1", "1:1", "1:1", "0:0"]);
    await quietly("chown", ":12345", folder.at("tree/a"));
    const { uid, gid } = await stat(folder.at("tree/a"));
    assert.deepEqual([uid, gid], [1, 12345]);
    assertRefused(
      await guestctl("chown", "nobody-here", folder.at("tree")),
      /\/etc\/passwd in the sandbox has no "nobody-here"; give its id/,
    );
  });

  it("rm names what it could not remove and exits with 1", NEEDS_ROOT, async () => {
    await mkdir(folder.at("tree/point"), { recursive: true });
    await writeFile(folder.at("tree/file"), "");
    using _mount = tmpfsMount(folder.at("tree/point"));
    const { stderr, exitCode } = await guestctl("rm", "-r", folder.at("tree"));
    assert.deepEqual([stderr, exitCode], [`guestctl: left ${folder.at("tree/point")}: EBUSY\n`, 1]);
    assert.deepEqual(await readdir(folder.at("tree")), ["point"]);
  });
});

/** The client, but for some of its methods. */
function replacing<Whole extends object>(whole: Whole, replaced: Readonly<Record<PropertyKey, unknown>>): Whole {
  return new Proxy(whole, {
    get: (target, name) => {
      if (Object.hasOwn(replaced, name)) return replaced[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

const client = forAllTests(clientOf(agent, { serverName: undefined }));
const copyParts = (toSandbox: GuestClient): CopyParts => ({
  client: toSandbox,
  progress: new Progress(process.stderr, "", undefined),
  report: new CopyReport(process.stderr, true),
  host: process,
  options: {
    makesParents: false,
    copiesLinks: false,
    keepsModes: false,
    failFast: false,
    exclude: [],
    oneFileSystem: false,
    owners: {},
    hardLinks: false,
    followLinks: false,
    keepExisting: false,
  },
});

describe("a file copied into a directory of the sandbox", () => {
  it("cp never repeats a refused write without beneath", async () => {
    await writeFile(folder.at("local"), "of the host");
    await writeFile(folder.at("outside"), "of another");
    await mkdir(folder.at("named"));
    const target = folder.at("named/file");
    // Dangling, with a slash at its end: the agent refuses the path, which names no file.
    await symlink("gone/", target);
    // Something in the sandbox acts right after a failed write.
    const writeFileThen: Files["writeFile"] = async (...args) => {
      try {
        return await client.files.writeFile(...args);
      } catch (error) {
        await rm(target);
        await symlink(folder.at("outside"), target);
        throw error;
      }
    };
    const parts = copyParts(replacing(client, { files: replacing(client.files, { writeFile: writeFileThen }) }));
    const local = folder.at("local");
    const copying = uploadFile(parts, local, target, folder.at("named"));
    await assert.rejects(copying, (error) => error instanceof GuestError && error.reason === "INVALID_FIELD");
    assert.equal(await readFile(folder.at("outside"), "utf8"), "of another");
  });
});
