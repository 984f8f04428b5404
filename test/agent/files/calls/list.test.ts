import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, chown, link, lstat, mkdir, rename, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import type { TreeEntry } from "../../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { TreeCalls } from "../../../fixtures/file-tree.ts";
import { testDirectory, testMount, bindMount, failsWith } from "../../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const agent = forAllTests(await startAgent());
const calls = forAllTests(new TreeCalls(agent));

/** What find(1) prints of an entry, NUL between the fields. */
const PRINTED = "%P\\0%y\\0%s\\0%m\\0%U\\0%G\\0%T@\\0%A@\\0%C@\\0%i\\0%n\\0%l\\0";
const FIELDS = 12;
const LETTERS: Readonly<Record<number, string>> = {
  [FileType.REGULAR]: "f",
  [FileType.DIRECTORY]: "d",
  [FileType.SYMLINK]: "l",
  [FileType.FIFO]: "p",
  [FileType.SOCKET]: "s",
  [FileType.CHARACTER_DEVICE]: "c",
  [FileType.BLOCK_DEVICE]: "b",
};

/** A directory in the form of find(1), byte by byte, one line for each entry. */
function found(directory: string, depth: number): string[] {
  const args = [directory, "-mindepth", "1", "-maxdepth", String(depth), "-printf", PRINTED];
  const { stdout } = spawnSync("find", args, { encoding: "latin1", maxBuffer: 2 ** 28 });
  const fields = stdout.split("\0").slice(0, -1);
  return Array.from({ length: fields.length / FIELDS }, (_, index) =>
    fields.slice(index * FIELDS, (index + 1) * FIELDS).join(" | "),
  ).toSorted();
}

/** The same for an answer. */
function told(entries: readonly TreeEntry[]): string[] {
  const time = (stamp: Timestamp | undefined): string => `${stamp?.seconds}.${String(stamp?.nanos).padStart(9, "0")}0`;
  const bytes = (value: Uint8Array): string => Buffer.from(value).toString("latin1");
  return entries
    .map(({ name, stat }) => {
      assert.ok(stat);
      const { type, size, mode, uid, gid, mtime, atime, ctime, inode, links, linkTarget } = stat;
      const numbers = [size, mode.toString(8), uid, gid, ...[mtime, atime, ctime].map(time), inode, links];
      return [bytes(name), LETTERS[type], ...numbers, bytes(linkTarget)].join(" | ");
    })
    .toSorted();
}

/** Everything that a directory can hold, hostile names included. */
async function makeTree(root: string): Promise<void> {
  await mkdir(`${root}/sub/deep/deeper`, { recursive: true });
  await mkdir(`${root}/empty`, { mode: 0o700 });
  await writeFile(`${root}/file`, "content");
  await link(`${root}/file`, `${root}/sub/second name`);
  for (const name of ["new\nline", "-rf", " ", "日本語", "x".repeat(255), "\u001b]0;evil\u0007", "*"]) {
    await writeFile(`${root}/sub/${name}`, name);
  }
  await writeFile(Buffer.concat([Buffer.from(`${root}/sub/deep/`), Buffer.from([0xff, 0xfe, 0x80])]), "not UTF-8");
  await symlink("../file", `${root}/sub/link`);
  await symlink(Buffer.from([0xff, 0x2f, 0xfe]), `${root}/sub/deep/dangling`);
  await symlink("/", `${root}/sub/deep/root`);
  await symlink("loop", `${root}/loop`);
  spawnSync("mkfifo", [`${root}/sub/fifo`]);
  await utimes(`${root}/file`, 1, -86_400.5);
  await chmod(`${root}/sub/deep`, 0o2750);
}

describe("List", () => {
  it("List returns the same entries as find(1) at any depth", async () => {
    await using directory = await testDirectory();
    await makeTree(directory.path);
    // List once before: a first look may set the time of access.
    found(directory.path, 9);
    for (const depth of [1, 2, 3, 9]) {
      assert.deepEqual(told(await calls.list({ path: directory.path, depth })), found(directory.path, depth));
    }
    assert.deepEqual(told(await calls.list({ path: directory.path })), found(directory.path, 1), "0 means 1");
    const beneath = await calls.list({ path: "sub/deep", beneath: directory.path });
    assert.deepEqual(told(beneath), found(directory.at("sub/deep"), 1));
  });

  it("List returns a directory before its entries and stops after `max_entries`", async () => {
    await using directory = await testDirectory();
    await makeTree(directory.path);
    const namesOf = (entries: readonly TreeEntry[]) => entries.map(({ name }) => Buffer.from(name).toString("latin1"));
    const whole = namesOf(await calls.list({ path: directory.path, depth: 9 }));
    for (const [index, name] of whole.entries()) {
      const parent = name.slice(0, Math.max(0, name.lastIndexOf("/")));
      const within = whole.slice(whole.indexOf(parent) + 1, index);
      assert.ok(parent === "" || within.every((other) => other.startsWith(`${parent}/`)), name);
    }
    for (const maxEntries of [1n, 5n, BigInt(whole.length), BigInt(whole.length) + 1n]) {
      const batches = await Array.fromAsync(calls.batches({ path: directory.path, depth: 9, maxEntries }));
      assert.deepEqual(
        batches.flatMap(({ entries }) => namesOf(entries)),
        whole.slice(0, Number(maxEntries)),
      );
      assert.deepEqual(
        batches.map(({ truncated }) => truncated),
        batches.map((_, index) => index === batches.length - 1 && maxEntries < whole.length),
      );
    }
  });

  it("List handles an empty directory and a tree deeper than PATH_MAX", async () => {
    await using directory = await testDirectory();
    assert.deepEqual(await calls.list({ path: directory.path }), []);
    const levels = 120;
    const script = `i=0; while [ $i -lt ${levels} ]; do mkdir ${"d".repeat(40)} && cd ${"d".repeat(40)} && : > file || exit 1; i=$((i+1)); done`;
    assert.equal(spawnSync("bash", ["-c", script], { cwd: directory.path }).status, 0);
    const entries = await calls.list({ path: directory.path, depth: 10_000 });
    assert.equal(entries.length, 2 * levels);
    assert.equal(Math.max(...entries.map(({ name }) => name.length)), levels * 41 - 1 + 5);
    assert.ok(entries.every(({ errno }) => errno === ""));
    const { removed, left } = await calls.remove({ path: directory.at("d".repeat(40)), recursive: true });
    assert.deepEqual([removed, left], [2 * levels, 0]);
  });

  it("List follows a symlink at the end of its path, but none below it", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("real/sub"), { recursive: true });
    await symlink("real", directory.at("link"));
    await symlink("../..", directory.at("real/sub/up"));
    assert.deepEqual(await calls.names({ path: directory.at("link"), depth: 9 }), ["sub", "sub/up"]);
  });

  it("List rejects files, missing paths and paths that leave the `beneath` directory", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "");
    await symlink("/etc", directory.at("out"));
    for (const [request, code, reason] of [
      [{ path: directory.at("file") }, status.FAILED_PRECONDITION, "NOT_A_FOLDER"],
      [{ path: directory.at("file/below") }, status.NOT_FOUND, "PATH_NOT_FOUND"],
      [{ path: directory.at("gone") }, status.NOT_FOUND, "PATH_NOT_FOUND"],
      [{ path: "relative" }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ path: "" }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ path: "/a\0b" }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ path: "..", beneath: directory.path }, status.FAILED_PRECONDITION, "PATH_ESCAPES"],
      [{ path: "out", beneath: directory.path }, status.FAILED_PRECONDITION, "PATH_ESCAPES"],
      [{ path: "x", noSymlinks: true }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
    ] as const)
      await failsWith(calls.list(request), code, reason);
  });

  it("List of a changing directory succeeds and returns each unchanged entry once", async () => {
    await using directory = await testDirectory();
    const names = Array.from({ length: 2_000 }, (_, index) => `${index}`.padStart(40, "0"));
    for (const name of names) await mkdir(directory.at(name));
    const seen: string[] = [];
    let changes = 0;
    for await (const { entries } of calls.batches({ path: directory.path, depth: 3 })) {
      assert.ok(entries.length <= 256, "a batch is sent as soon as it is there");
      seen.push(...entries.map(({ name }) => Buffer.from(name).toString()));
      // One entry goes, one becomes a file, one moves into another directory.
      const [gone, file, moved, into] = names.slice(changes * 4, changes * 4 + 4);
      if (into === undefined) break;
      await rm(directory.at(gone ?? ""), { recursive: true });
      await rm(directory.at(file ?? ""), { recursive: true });
      await writeFile(directory.at(file ?? ""), "");
      await rename(directory.at(moved ?? ""), directory.at(`${into}/moved`));
      changes += 1;
    }
    assert.ok(changes > 0);
    const stayed = names.slice(changes * 4);
    // A removed entry and a new one of the same name are two entries, and readdir(3) may return both.
    assert.deepEqual(
      seen.filter((name) => stayed.includes(name)).toSorted(),
      stayed,
      "each entry that stayed is listed once",
    );
  });

  it("List returns the errno of an entry that it cannot read", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("open/closed"), { recursive: true });
    await mkdir(directory.at("listed"));
    await writeFile(directory.at("listed/file"), "");
    await writeFile(directory.at("open/closed/file"), "");
    for (const [name, mode] of Object.entries({ listed: 0o744, "open/closed": 0o700 })) {
      await chmod(directory.at(name), mode);
      await chown(directory.at(name), 1000, 1000);
    }
    // Root enters every directory, unless it lacks all capabilities.
    await using plain = await startAgent({ through: ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] });
    using client = new TreeCalls(plain);
    const errnos = (await client.list({ path: directory.path, depth: 3 })).map(({ name, errno, stat }) =>
      [Buffer.from(name).toString(), errno, LETTERS[stat?.type ?? 0]].join(" "),
    );
    const expected = ["listed  d", "listed/file EACCES f", "open  d", "open/closed EACCES d"];
    assert.deepEqual(errnos.toSorted(), expected);
    const closed = client.list({ path: directory.at("open/closed") });
    await failsWith(closed, status.PERMISSION_DENIED, "PATH_PERMISSION_DENIED");
  });

  it("List returns mount points and descends into them only with `cross_mounts`", NEEDS_NAMESPACES, async () => {
    await using directory = await testDirectory();
    await using mount = await testMount("tmpfs", () => "mode=0711");
    await writeFile(mount.at("inside"), "");
    await writeFile(directory.at("file"), "");
    await mkdir(directory.at("point"));
    using _point = bindMount(mount.path, directory.at("point"));
    using _file = bindMount("/etc/passwd", directory.at("file"));
    const entries = await calls.list({ path: directory.path, depth: 2 });
    const points = entries.map(({ name, stat, errno, mountPoint }) =>
      [Buffer.from(name).toString(), stat?.mode.toString(8), LETTERS[stat?.type ?? 0], errno, mountPoint].join(" "),
    );
    const fileMode = (await lstat("/etc/passwd")).mode.toString(8).slice(-3);
    assert.deepEqual(points.toSorted(), [`file ${fileMode} f  true`, "point 711 d  true"]);
    const crossing = { path: directory.path, depth: 2, crossMounts: true };
    assert.deepEqual(await calls.names(crossing), ["file", "point", "point/inside"]);
  });
});
