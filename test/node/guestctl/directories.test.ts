import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it } from "node:test";
import { type TestDirectory, testDirectory, tmpfsMount } from "../../fixtures/files.ts";
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
import { type CopyContext, type CopyParts, CopyReport, Progress } from "../../../src/node/guestctl/copy/report.ts";
import { uploadFile } from "../../../src/node/guestctl/copy/upload.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

// As in an image without programs.
const agent = forAllTests(await startIssuedAgent({ process: { env: { PATH: "/nowhere" } } }));
let directory: TestDirectory;
beforeEach(async () => {
  directory = await testDirectory();
});
afterEach(() => directory[Symbol.asyncDispose]());

const guestctl = (...args: readonly string[]): Promise<GuestctlResult> => runGuestctl(args, guestctlVariables(agent));

async function quietly(...args: readonly string[]): Promise<void> {
  assert.deepEqual(await guestctl(...args), { stdout: "", stderr: "", exitCode: 0 });
}

describe("guestctl ls", () => {
  it("`ls` lists the same entries as ls(1), also with `-R`", async () => {
    await mkdir(directory.at("tree/sub/deep"), { recursive: true });
    for (const name of ["b", "a", ".hidden", "sub/file", "sub/deep/file"])
      await writeFile(directory.at(`tree/${name}`), "");
    const ls = (...args: string[]): string =>
      spawnSync("ls", [...args, directory.at("tree")], { encoding: "utf8", env: { LC_ALL: "C" } }).stdout;
    assert.equal((await guestctl("ls", directory.at("tree"))).stdout, ls("-A1"));
    assert.equal((await guestctl("ls", "-R", `:${directory.at("tree")}`)).stdout, ls("-A1R"));
    assert.equal((await guestctl("ls", directory.at("tree/a"))).stdout, `${directory.at("tree/a")}\n`);
    const unsorted = (await guestctl("ls", "-UR", directory.at("tree"))).stdout.trim().split("\n").toSorted();
    const found = spawnSync("find", [directory.at("tree"), "-mindepth", "1"], { encoding: "utf8" })
      .stdout.trim()
      .split("\n")
      .toSorted();
    assert.deepEqual(unsorted, found);
  });

  it("`ls -l` prints modes, owners, sizes, times and targets like ls(1)", NEEDS_ROOT, async () => {
    await writeFile(directory.at("file"), "12345");
    await mkdir(directory.at("sub"));
    await symlink("file", directory.at("link"));
    for (const [name, mode] of [
      ["file", 0o4751],
      ["sub", 0o1777],
    ] as const)
      await chmod(directory.at(name), mode);
    const { stdout } = await guestctl("ls", "-l", directory.path);
    const args = ["-lnA", "--time-style=+%Y-%m-%dT%H:%M:%SZ", directory.path];
    const theirs = spawnSync("ls", args, { encoding: "utf8", env: { LC_ALL: "C", TZ: "UTC" } }).stdout;
    const words = (text: string): string[][] =>
      text
        .trim()
        .split("\n")
        .filter((line) => !line.startsWith("total"))
        .map((line) => line.split(/\s+/));
    assert.deepEqual(words(stdout), words(theirs));
  });

  it("`ls --json` prints one object per entry", async () => {
    for (const name of ["a", "b", "c"]) await writeFile(directory.at(name), name);
    const { stdout, stderr, exitCode } = await guestctl("ls", "--json", directory.path);
    const lines = jsonLines(stdout);
    assert.equal(lines.length, 3);
    for (const line of lines)
      assert.deepEqual([line["type"], line["size"], line["mount_point"]], ["FILE_TYPE_REGULAR", "1", false]);
    assert.deepEqual([stderr, exitCode], ["", 0]);
    assert.match((await guestctl("ls", directory.at("gone"))).stderr, /no such file or directory/);
  });
});

describe("a table of guestctl", () => {
  it("tableText prints one line per row and aligns columns with wide characters", () => {
    const many = Array.from({ length: 150_000 }, (_, at) => [String(at), "x"]);
    assert.equal(tableText(many).split("\n").length, 150_001);
    const rows = ["ab", "日本", "e\u0301é", "👍", "ｘ", "\u001b[2J"].map((cell) => [cell, "|"]);
    assert.equal(tableText(rows), "ab    |\n日本  |\ne\u0301é    |\n👍    |\nｘ    |\n?[2J  |\n");
  });
});

describe("guestctl mkdir, mv, chmod and rm", () => {
  it("guestctl `mkdir`, `mv`, `chmod` and `rm` change the sandbox's files", async () => {
    await quietly("mkdir", "-p", "-m", "0750", `:${directory.at("a/b/c")}`, directory.at("d"));
    assert.equal((await stat(directory.at("a/b/c"))).mode & 0o777, 0o750);
    await quietly("mkdir", "-p", directory.at("d"));
    assertRefused(await guestctl("mkdir", directory.at("d")), /already exists/);
    await writeFile(directory.at("one"), "one");
    await quietly("mv", directory.at("one"), `:${directory.at("two")}`);
    await quietly("mv", directory.at("two"), directory.at("a"), directory.at("d"));
    assert.deepEqual((await readdir(directory.at("d"))).toSorted(), ["a", "two"]);
    await writeFile(directory.at("three"), "three");
    assert.match((await guestctl("mv", "-n", directory.at("three"), directory.at("d/two"))).stderr, /ALREADY_EXISTS/);
    assert.equal(await readFile(directory.at("d/two"), "utf8"), "one");
    await quietly("chmod", "4711", directory.at("d/two"), `:${directory.at("three")}`);
    for (const name of ["d/two", "three"]) assert.equal((await lstat(directory.at(name))).mode & 0o7777, 0o4711);
    const full = await guestctl("rm", directory.at("d"));
    assert.match(full.stderr, /the directory is not empty.*; rm -r removes it with everything in it/);
    await quietly("rm", "-r", `:${directory.at("d")}`, directory.at("three"));
    assert.match((await guestctl("rm", directory.at("three"))).stderr, /no such file or directory/);
    await quietly("rm", "-f", directory.at("three"));
    assertRefused(await guestctl("rm", "-r", "/etc/.."), /path must end in a name other than \. and \.\. \[/);
    assert.deepEqual(await directory.names(), []);
  });

  it("`chmod -R` and `chown -R` change trees but not symlinks in them", NEEDS_ROOT, async () => {
    await mkdir(directory.at("tree/sub"), { recursive: true });
    for (const name of ["tree/a", "tree/sub/b", "outside"]) await writeFile(directory.at(name), "", { mode: 0o640 });
    await symlink("../outside", directory.at("tree/link"));
    await quietly("chmod", "-R", "u=rwX,go=rX", directory.at("tree"));
    const modes = ["tree", "tree/a", "tree/sub", "tree/sub/b", "outside"].map(async (name) =>
      ((await stat(directory.at(name))).mode & 0o7777).toString(8),
    );
    assert.deepEqual(await Promise.all(modes), ["755", "644", "755", "644", "640"]);
    await quietly("chmod", "-x", directory.at("tree/sub"));
    assert.equal((await stat(directory.at("tree/sub"))).mode & 0o7777, 0o644);
    await quietly("chown", "-R", "daemon:", directory.at("tree"));
    const owners = ["tree", "tree/a", "tree/sub/b", "outside"].map(async (name) => {
      const { uid, gid } = await stat(directory.at(name));
      return `${uid}:${gid}`;
    });
    assert.deepEqual(await Promise.all(owners), ["1:1", "1:1", "1:1", "0:0"]);
    await quietly("chown", ":12345", directory.at("tree/a"));
    const { uid, gid } = await stat(directory.at("tree/a"));
    assert.deepEqual([uid, gid], [1, 12345]);
    assertRefused(
      await guestctl("chown", "nobody-here", directory.at("tree")),
      /\/etc\/passwd in the sandbox has no entry "nobody-here"; give a numeric id/,
    );
  });

  it("`rm` reports what it could not remove and exits with 1", NEEDS_ROOT, async () => {
    await mkdir(directory.at("tree/point"), { recursive: true });
    await writeFile(directory.at("tree/file"), "");
    using _mount = tmpfsMount(directory.at("tree/point"));
    const { stderr, exitCode } = await guestctl("rm", "-r", directory.at("tree"));
    assert.deepEqual([stderr, exitCode], [`guestctl: left ${directory.at("tree/point")}: EBUSY\n`, 1]);
    assert.deepEqual(await readdir(directory.at("tree")), ["point"]);
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
const copyContext = (toSandbox: GuestClient): CopyContext => ({
  client: toSandbox,
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
    isQuiet: true,
  },
});
const copyParts = (toSandbox: GuestClient): CopyParts => {
  const context = copyContext(toSandbox);
  return { ...context, progress: new Progress(context, "", undefined) };
};

describe("a file copied into a directory of the sandbox", () => {
  it("when the agent refuses a write, `cp` does not retry without `beneath`", async () => {
    await writeFile(directory.at("local"), "of the host");
    await writeFile(directory.at("outside"), "of another");
    await mkdir(directory.at("named"));
    const target = directory.at("named/file");
    // Dangling, with a slash at its end: the agent refuses the path, which names no file.
    await symlink("gone/", target);
    // Something in the sandbox acts right after a failed write.
    const writeFileThen: Files["writeFile"] = async (...args) => {
      try {
        return await client.files.writeFile(...args);
      } catch (error) {
        await rm(target);
        await symlink(directory.at("outside"), target);
        throw error;
      }
    };
    const parts = copyParts(replacing(client, { files: replacing(client.files, { writeFile: writeFileThen }) }));
    const local = directory.at("local");
    const copying = uploadFile(parts, local, target, directory.at("named"));
    await assert.rejects(copying, (error) => error instanceof GuestError && error.reason === "INVALID_FIELD");
    assert.equal(await readFile(directory.at("outside"), "utf8"), "of another");
  });
});
