import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { closeSync, existsSync, lstatSync, openSync, readdirSync, readlinkSync, readSync } from "node:fs";
import { appendFile, mkdir } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { describe, it } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { agentForAllTests, GUESTCTL } from "./guestctl.ts";

/*
 * Trees that nobody of the project has made, copied both ways with `cp -a`, beside cp(1) and rsync(1). Directories of
 * this machine, or those that FOREIGN_TREES names, with colons between them. FOREIGN_TREES_TABLE is a file that gets a
 * line of Markdown for each.
 */

const { env } = await agentForAllTests();

const GIVEN = (process.env["FOREIGN_TREES"] ?? "").split(":").filter((path) => path !== "");
const USUAL = ["/etc", "/usr/share/doc", "/usr/include", "/usr/share/zoneinfo", "node_modules/typescript", ".git"];
const TREES = (GIVEN.length > 0 ? GIVEN : USUAL).map((path) => resolve(path)).filter((path) => existsSync(path));

/** What a copy keeps of an entry. */
interface Row {
  readonly type: string;
  readonly mode: number;
  readonly owner: string;
  readonly mtimeNs: bigint;
  /** Size and hash of a file, target of a link. */
  readonly content: string;
  /** The first name of the same file in the tree. */
  readonly first: string;
}

const SPECIAL_BITS = 0o7000;
/** How exact the times are that Node sets (docs/node/guestctl.md). */
const LATE_NS = 1_000n;

function manifestOf(root: string): Map<string, Row> {
  const rows = new Map<string, Row>();
  const files = new Map<string, string>();
  const walk = (path: Buffer, name: string): void => {
    const stats = lstatSync(path, { bigint: true });
    const isFile = stats.isFile();
    const type = isFile ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : "special";
    const key = `${stats.dev} ${stats.ino}`;
    const first = isFile ? (files.get(key) ?? name) : name;
    if (isFile) files.set(key, first);
    const content = type === "link" ? readlinkSync(path, "latin1") : isFile && first === name ? hashOf(path) : "";
    const owner = `${stats.uid}:${stats.gid}`;
    rows.set(name, { type, mode: Number(stats.mode) & 0o7777, owner, mtimeNs: stats.mtimeNs, content, first });
    if (type !== "directory") return;
    // In the order of bytes, so that the first name of a file is the same in all copies.
    for (const child of readdirSync(path, { encoding: "buffer" }).toSorted((one, other) => one.compare(other)))
      walk(
        Buffer.concat([path, Buffer.from("/"), child]),
        name === "" ? child.toString("latin1") : `${name}/${child.toString("latin1")}`,
      );
  };
  walk(Buffer.from(root), "");
  return rows;
}

function hashOf(path: Buffer): string {
  const hash = createHash("sha256");
  const piece = Buffer.alloc(1024 * 1024);
  const fd = openSync(path, "r");
  try {
    for (let count = -1; (count = readSync(fd, piece, 0, piece.length, null)) > 0;)
      hash.update(piece.subarray(0, count));
  } finally {
    closeSync(fd);
  }
  return hash.digest("hex");
}

/** How a copy differs, by the name of the difference, with the entries. */
function differences(source: ReadonlyMap<string, Row>, copy: ReadonlyMap<string, Row>): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const note = (what: string, name: string): void => void found.set(what, [...(found.get(what) ?? []), name]);
  for (const [name, row] of source) {
    const other = copy.get(name);
    if (other === undefined) {
      note(row.type === "special" ? "special file left out" : "missing", name);
      continue;
    }
    if (row.type !== other.type) note("type", name);
    else {
      if (row.mode !== other.mode)
        note(
          (row.mode & ~SPECIAL_BITS) === (other.mode & ~SPECIAL_BITS) ? "setuid, setgid or sticky bit" : "mode",
          name,
        );
      if (row.owner !== other.owner) note("owner", name);
      if (row.content !== other.content) note("content", name);
      if (row.first !== other.first) note("hard link", name);
      const lateNs = other.mtimeNs - row.mtimeNs;
      if (lateNs !== 0n) note(lateNs > 0n && lateNs <= LATE_NS ? "time up to 1 µs later" : "time", name);
    }
  }
  for (const name of copy.keys()) if (!source.has(name)) note("not in the source", name);
  return found;
}

function words(found: ReadonlyMap<string, readonly string[]>): string {
  return found.size === 0 ? "the same" : [...found].map(([what, names]) => `${what}: ${names.length}`).join(", ");
}

async function status(file: string, args: readonly string[]): Promise<number> {
  const { exitCode = -1 } = await execa(file, args, { reject: false, env });
  return exitCode;
}

/** What the copies may differ in, which docs/node/guestctl.md names. */
const NAMED_UP: ReadonlySet<string> = new Set(["special file left out"]);
const NAMED_DOWN: ReadonlySet<string> = new Set([
  "special file left out",
  "setuid, setgid or sticky bit",
  "time up to 1 µs later",
]);

describe("guestctl cp -a of another project's tree", NEEDS_ROOT, () => {
  for (const tree of TREES)
    it(`cp -a copies ${basename(tree)} both ways like cp -a and rsync -aH`, async () => {
      await using directory = await testDirectory();
      const [snapshot, up, down, synced] = ["snapshot", "up", "down", "synced"].map((name) => directory.at(name)) as [
        string,
        string,
        string,
        string,
      ];
      // A tree may be in use: what is copied is a snapshot of it.
      await status("cp", ["-a", tree, snapshot]);
      const source = manifestOf(snapshot);
      const [file, ...args] = GUESTCTL;
      const isSpecial = [...source.values()].some(({ type }) => type === "special");
      const upStatus = await status(file, [...args, "cp", "-a", snapshot, `:${up}`]);
      const downStatus = await status(file, [...args, "cp", "-a", `:${up}`, down]);
      const rsyncStatus = await status("rsync", ["-aH", `${snapshot}/`, synced]).catch(() => -1);
      const upward = differences(source, manifestOf(up));
      const downward = differences(source, manifestOf(down));
      const rsync = existsSync(synced) ? words(differences(source, manifestOf(synced))) : "not on this machine";
      const table = process.env["FOREIGN_TREES_TABLE"];
      const bytes = Number((await execa("du", ["-sb", snapshot])).stdout.split("\t")[0]);
      const row = [
        tree,
        source.size,
        `${(bytes / 1e6).toFixed(1)} MB`,
        `${upStatus}; ${words(upward)}`,
        `${downStatus}; ${words(downward)}`,
        `${rsyncStatus}; ${rsync}`,
      ];
      if (table !== undefined) await appendFile(table, `| ${row.join(" | ")} |\n`);
      const unnamed = (found: ReadonlyMap<string, readonly string[]>, named: ReadonlySet<string>): unknown[] =>
        [...found].filter(([what]) => !named.has(what)).map(([what, names]) => [what, names.slice(0, 5)]);
      assert.deepEqual(unnamed(upward, NAMED_UP), []);
      assert.deepEqual(unnamed(downward, NAMED_DOWN), []);
      assert.deepEqual([upStatus, downStatus], [isSpecial ? 1 : 0, 0]);
    });

  it("`cp -a` copies hard links, FIFOs, sockets, deep paths and arbitrary names", async () => {
    await using directory = await testDirectory();
    const tree = directory.at("made");
    await mkdir(tree);
    const make = `
import os, socket
os.chdir(${JSON.stringify(tree)})
open("one", "w").write("x" * 100000); os.link("one", "two"); os.mkdir("d"); os.link("one", "d/three")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("sock")
open(b"caf\\xe9", "w"); open("new\\nline", "w"); open("-dash", "w"); os.symlink("nowhere", "dangling")
os.chown("two", 1234, 5678); os.chmod("d", 0o2750)
for i in range(40): os.mkdir("n" * 60); os.chdir("n" * 60)
open("deep", "w").write("deep")`;
    assert.equal(await status("python3", ["-c", make]), 0);
    const [up, down] = [directory.at("up"), directory.at("down")];
    const [file, ...args] = GUESTCTL;
    assert.equal(await status(file, [...args, "cp", "-a", tree, `:${up}`]), 1);
    assert.equal(await status(file, [...args, "cp", "-a", `:${up}`, down]), 0);
    const source = manifestOf(tree);
    assert.deepEqual([...differences(source, manifestOf(up))], [["special file left out", ["fifo", "sock"]]]);
    const kinds = [...differences(source, manifestOf(down)).keys()].filter((kind) => !NAMED_DOWN.has(kind));
    assert.deepEqual(kinds, []);
  });

  for (const direction of ["in", "out"] as const)
    it(`cp -a ${direction} copies a tree whose files keep changing`, async () => {
      await using directory = await testDirectory();
      const [tree, copy] = [directory.at("used"), directory.at("copy")];
      await mkdir(tree);
      const make = `
import os
os.chdir(${JSON.stringify(tree)})
for d in range(20):
    os.mkdir(f"d{d}")
    for f in range(100): open(f"d{d}/stable{f}", "w").write(f"{d} {f} " * (f * 20))`;
      assert.equal(await status("python3", ["-c", make]), 0);
      const isStable = ([name]: readonly [string, Row]): boolean => name.includes("/stable");
      const source = new Map([...manifestOf(tree)].filter(isStable));
      // Files and directories, of which each lives for a moment.
      const use = `
import os, shutil
os.chdir(${JSON.stringify(tree)})
print("begun", flush=True)
while True:
    for d in range(20):
        for f in range(10): open(f"d{d}/used{f}", "w").write("x" * 70000 * (f % 2))
        os.makedirs(f"d{d}/usedd/below"); open(f"d{d}/usedd/below/file", "w").write("x")
    for d in range(20):
        for f in range(10): os.unlink(f"d{d}/used{f}")
        shutil.rmtree(f"d{d}/usedd")`;
      const user = execa("python3", ["-c", use], { reject: false });
      try {
        // Not by iterating over `user`: when execa's iterator is left, it may wait for the end of the program.
        await once(user.stdout, "data");
        const [file, ...args] = GUESTCTL;
        for (let round = 0; round < 3; round += 1) {
          const target = `${copy}${round}`;
          const paths = direction === "in" ? [tree, `:${target}`] : [`:${tree}`, target];
          const { exitCode, stderr } = await execa(file, [...args, "cp", "-a", ...paths], { reject: false, env });
          assert.ok(exitCode === 0 || exitCode === 1, `${exitCode} ${stderr}`);
          assert.doesNotMatch(stderr, /stable/);
          const copied = new Map([...manifestOf(target)].filter(isStable));
          const kinds = [...differences(source, copied).keys()].filter((kind) => !NAMED_DOWN.has(kind));
          assert.deepEqual(kinds, []);
        }
      } finally {
        user.kill("SIGKILL");
        await user;
      }
    });
});
