import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  FileTree,
  type TreeSync,
  type WriteTreeRequest,
  type WriteTreeResponse,
} from "../../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { bindMount, failureOf, testDirectory, testMount } from "../../../fixtures/files.ts";
import { fuseMount } from "../../../fixtures/programs/index.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { NEEDS_FUSE, NEEDS_ROOT, NEEDS_STRACE } from "../../../fixtures/privileges.ts";
import { grpcJsClient, type RpcFailure } from "../../../fixtures/rpc-clients.ts";
import {
  dir,
  failuresOf,
  file,
  type Header,
  type Item,
  link,
  type Part,
  requests,
  TreeStreams,
} from "../../../fixtures/tree-streams.ts";

const agent = forAllTests(await startAgent());
const directory = forAllTests(await testDirectory());
const client = grpcJsClient(agent);
const trees = forAllTests(new TreeStreams(agent));
after(() => client.close());
let count = 0;
const newDirectory = (): string => {
  const path = directory.at(`tree-${count++}`);
  fs.mkdirSync(path);
  return path;
};

const write: TreeStreams["write"] = async (...call) => trees.write(...call);
const read: TreeStreams["read"] = async (...call) => trees.read(...call);
const refusal = (header: Header, ...parts: readonly Part[]): Promise<RpcFailure> => failureOf(write(header, ...parts));

const NEEDS_MOUNTS_AND_STRACE = NEEDS_NAMESPACES.skip === false ? NEEDS_STRACE : NEEDS_NAMESPACES;

const leftovers = (path: string): string[] =>
  fs.readdirSync(path, { recursive: true, encoding: "utf8" }).filter((name) => name.includes("svc-guest"));

describe("WriteTree", NEEDS_ROOT, () => {
  it("WriteTree writes files, directories and links with mode, owner and time", async () => {
    const path = newDirectory();
    const large = randomBytes(700_000);
    const { result } = await write(
      { path: Buffer.from(`${path}/new/root`), parents: true },
      [
        dir("directory", { mode: 0o555, uid: 7, gid: 8, mtime: timestampFromMs(1_000_000_000_500) }),
        file("directory/inside", "content", { mode: 0o640, uid: 1, gid: 2, mtime: timestampFromMs(1_234_567_890_123) }),
        file("deep/er/file", "x"),
        link("directory/link", "../away"),
        { ...file("other-name"), linkTarget: Buffer.from("directory/inside") },
        file("large", large.subarray(0, 100), { size: BigInt(large.length), mode: 0o600 }),
      ],
      large.subarray(100, 300_000),
      large.subarray(300_000),
      [file("after", "it")],
    );
    assert.deepEqual([result.items, result.failed], [7n, 0n]);
    const root = `${path}/new/root`;
    const [inside, closed] = [fs.statSync(`${root}/directory/inside`), fs.statSync(`${root}/directory`)];
    assert.deepEqual([inside.mode & 0o7777, inside.uid, inside.gid, inside.mtimeMs], [0o640, 1, 2, 1_234_567_890_123]);
    assert.deepEqual([closed.mode & 0o7777, closed.uid, closed.gid, closed.mtimeMs], [0o555, 7, 8, 1_000_000_000_500]);
    assert.equal(fs.readlinkSync(`${root}/directory/link`), "../away");
    assert.equal(fs.statSync(`${root}/other-name`).ino, inside.ino);
    assert.ok(fs.readFileSync(`${root}/large`).equals(large));
    for (const [name, text] of Object.entries({ "deep/er/file": "x", after: "it" }))
      assert.equal(fs.readFileSync(`${root}/${name}`, "utf8"), text);
    assert.equal(fs.statSync(`${root}/deep`).mode & 0o777, 0o755);
    assert.deepEqual(leftovers(path), []);
  });

  it("WriteTree replaces entries only with `overwrite`, and never a directory", async () => {
    const path = newDirectory();
    const put = (): void => {
      fs.writeFileSync(`${path}/there`, "old");
      if (!fs.existsSync(`${path}/linked`)) fs.symlinkSync("/etc/hostname", `${path}/linked`);
      if (!fs.existsSync(`${path}/fifo`)) execFileSync("mkfifo", [`${path}/fifo`]);
      fs.mkdirSync(`${path}/directory`, { recursive: true });
    };
    put();
    const texts = { there: "new", linked: "own", fifo: "file" };
    const items = Object.entries({ ...texts, directory: "no", rest: "ok" }).map(([name, text]) => file(name, text));
    const refused = await write({ path: Buffer.from(path) }, items);
    assert.deepEqual(refused.failed, { there: "EEXIST", linked: "EEXIST", fifo: "EEXIST", directory: "EEXIST" });
    assert.equal(fs.readFileSync(`${path}/rest`, "utf8"), "ok");
    assert.equal(fs.readFileSync(`${path}/there`, "utf8"), "old");
    const links = [link("there2", "a"), link("rest", "b")];
    const { failed } = await write({ path: Buffer.from(path), overwrite: true }, [...items, ...links]);
    assert.deepEqual(failed, { directory: "EISDIR" });
    for (const [name, text] of Object.entries(texts)) {
      assert.ok(fs.lstatSync(`${path}/${name}`).isFile());
      assert.equal(fs.readFileSync(`${path}/${name}`, "utf8"), text);
    }
    assert.equal(fs.readlinkSync(`${path}/rest`), "b");
    assert.deepEqual(leftovers(path), []);
  });

  it("WriteTree with `fail_fast` stops at the first failure and reports it", async () => {
    const path = newDirectory();
    fs.writeFileSync(`${path}/there`, "");
    const failure = await refusal({ path: Buffer.from(path), failFast: true }, [file("there")], [file("never")]);
    assert.deepEqual([failure.reason, failure.metadata["path"]], ["ALREADY_EXISTS", "there"]);
    assert.equal(fs.existsSync(`${path}/never`), false);
  });

  it("WriteTree writes nothing outside its root, even through links", async () => {
    const [path, outside] = [newDirectory(), newDirectory()];
    fs.mkdirSync(`${path}/real`);
    fs.symlinkSync(outside, `${path}/absolute`);
    fs.symlinkSync(`../${outside.split("/").at(-1)}`, `${path}/relative`);
    fs.symlinkSync("real", `${path}/within`);
    const items = ["absolute/a", "relative/b", "within/c"].map((name) => file(name, "x"));
    const large = file("absolute/large", "", { size: 9n });
    const { failed, result } = await write(
      { path: Buffer.from(path) },
      [...items, dir("absolute/d"), large],
      Buffer.from("its bytes"),
    );
    assert.deepEqual(Object.values(failed), ["EXDEV", "EXDEV", "EXDEV", "EXDEV"]);
    assert.deepEqual([result.items, result.failed], [5n, 4n], "each counts once");
    assert.equal(fs.readFileSync(`${path}/real/c`, "utf8"), "x");
    assert.deepEqual(fs.readdirSync(outside), []);
    const strict = await write({ path: Buffer.from("real/.."), beneath: Buffer.from(path), noSymlinks: true }, [
      file("within/d"),
    ]);
    assert.deepEqual(strict.failed, { "within/d": "ELOOP" });
  });

  it("WriteTree drops an item's setuid, setgid and sticky bits unless `special_bits` is set", async () => {
    const path = newDirectory();
    await write({ path: Buffer.from(path) }, [file("plain", "", { mode: 0o4755 }), dir("d", { mode: 0o2755 })]);
    await write({ path: Buffer.from(path), specialBits: true }, [file("special", "", { mode: 0o4755 })]);
    const modes = ["plain", "d", "special"].map((name) => fs.statSync(join(path, name)).mode & 0o7777);
    assert.deepEqual(modes, [0o755, 0o755, 0o4755]);
  });

  it("WriteTree accepts a message of 1,000 complete items, but not of 20,000", async () => {
    const header = { path: Buffer.from(newDirectory()) };
    const full = { mode: 0o600, uid: 1, gid: 2, mtime: { seconds: 1n, nanos: 2 }, sparse: true };
    const items = (number: number): Item[] => Array.from({ length: number }, (_, at) => file(`${at}`, "x", full));
    assert.equal((await write(header, items(1_000))).result.items, 1_000n);
    assert.equal((await refusal(header, items(20_000))).reason, "MALFORMED_MESSAGE");
  });

  it(
    "WriteTree enters file systems mounted below its root, ReadTree only with `cross_mounts`",
    NEEDS_NAMESPACES,
    async () => {
      const path = newDirectory();
      await using other = await testMount("tmpfs", () => "mode=0755");
      fs.mkdirSync(`${path}/a/mounted`, { recursive: true });
      using _mount = bindMount(other.path, `${path}/a/mounted`);
      const large = randomBytes(100_000);
      const { failed } = await write(
        { path: Buffer.from(path) },
        [file("a/mounted-beside", "1"), file("a/mounted/small", "2"), file("a/after", "3"), dir("a/mounted/d")],
        [file("a/mounted/d/large", "", { size: 100_000n, mode: 0o600 })],
        large,
        [dir("a/mounted", { mode: 0o700 })],
      );
      assert.deepEqual(failed, {});
      assert.ok(fs.readFileSync(`${path}/a/mounted/d/large`).equals(large));
      assert.equal(fs.statSync(`${path}/a/mounted`).mode & 0o7777, 0o700);
      const [within, beyond] = [await read(path), await read(path, { crossMounts: true })];
      assert.equal(within.items.has("a/mounted/small"), false);
      assert.ok(beyond.items.get("a/mounted/d/large")?.content.equals(large));
      assert.equal(beyond.items.get("a/mounted/small")?.content.toString(), "2");
    },
  );

  it("WriteTree syncs each written file system once, at the end", NEEDS_MOUNTS_AND_STRACE, async () => {
    const path = newDirectory();
    const trace = directory.at("trace");
    await using other = await testMount("tmpfs", () => "mode=0755");
    const [mounted, again] = [`${path}/mounted`, `${path}/again`];
    for (const at of [mounted, again]) fs.mkdirSync(at);
    using _mount = bindMount(other.path, mounted);
    using _again = bindMount(other.path, again);
    const large = { size: 100_000n };
    const parts = ["a/1", "a/2", "b/1", "c/1"].flatMap((name) => [
      [file(name), file(`mounted/${name}`), file(`again/x${name}`)],
      [file(`mounted/${name}-large`, "", large)],
      randomBytes(100_000),
    ]);
    const run = async (...more: readonly string[]): Promise<WriteTreeResponse | undefined> => {
      const through = ["strace", "-D", "-f", "-y", "-o", trace, "-e", "trace=syncfs,fsync", ...more];
      await using traced = await startAgent({ through });
      using its = grpcJsClient(traced);
      const messages = [...requests({ path: Buffer.from(path), overwrite: true }, parts)];
      return (await Array.fromAsync(its.call(FileTree.method.writeTree, messages, { token: traced.token }))).at(-1);
    };
    const result = await run();
    assert.deepEqual([result?.items, result?.failed], [16n, 0n]);
    const synced = fs.readFileSync(trace, "utf8").matchAll(/(\w+)\(\d+<(\S+)>/g);
    assert.deepEqual(
      Array.from(synced, ([, call, at]) => `${call} ${at}`),
      [`syncfs ${path}`, `syncfs ${mounted}`],
    );
    const failure = await failureOf(run("-P", mounted, "-e", "inject=syncfs:error=EIO"));
    assert.equal(failure.metadata["errno"], "EIO");
  });

  it("WriteTree gives new entries in a setgid directory the directory's group", async () => {
    const path = newDirectory();
    fs.chownSync(path, 0, 1234);
    fs.chmodSync(path, 0o2775);
    await write({ path: Buffer.from(path) }, [
      ...["file", "new/er/file"].map((name) => file(name)),
      file("own", "", { gid: 5 }),
      dir("sub"),
    ]);
    const stats = ["new", "new/er", "file", "sub", "new/er/file", "own"].map((name) => fs.statSync(join(path, name)));
    assert.deepEqual(
      stats.slice(0, 2).map(({ mode }) => mode & 0o7777),
      [0o2755, 0o2755],
    );
    assert.deepEqual(
      stats.map(({ gid }) => gid),
      [1234, 1234, 1234, 1234, 1234, 5],
    );
  });

  it("WriteTree rejects a message with malformed items before writing any item", async () => {
    const path = newDirectory();
    const header = { path: Buffer.from(path) };
    for (const [item, field] of [
      [file("/absolute"), "items.path"],
      [file(""), "items.path"],
      [file("a/../b"), "items.path"],
      [file("a//b"), "items.path"],
      [file("./a"), "items.path"],
      [file("a/"), "items.path"],
      [file("nul\0"), "items.path"],
      [file("x".repeat(4_096)), "items.path"],
      [{ ...file("dev"), type: FileType.BLOCK_DEVICE }, "items.type"],
      [{ ...file("fifo"), type: FileType.FIFO }, "items.type"],
      [link("link", ""), "items.link_target"],
      [{ ...file("hard"), linkTarget: Buffer.from("../../etc/passwd") }, "items.link_target"],
      [file("mode", "", { mode: 0o10000 }), "items.mode"],
      [file("uid", "", { uid: 0xffff_ffff }), "items.uid"],
      [file("size", "more", { size: 1n }), "items.size"],
    ] as const) {
      const failure = await refusal(header, [file("fine"), item]);
      assert.deepEqual([failure.reason, failure.metadata["field"]], ["INVALID_FIELD", field]);
    }
    for (const parts of [[Buffer.from("data")], [[file("large", "", { size: 5n })], Buffer.from("toomany")]] as const) {
      assert.match((await refusal(header, ...parts)).reason ?? "", /FRAME_ORDER|SIZE_MISMATCH/);
    }
    assert.equal((await refusal(header, [file("short", "", { size: 5n })])).reason, "SIZE_MISMATCH");
    assert.equal((await refusal({ ...header, sync: 9 as TreeSync })).metadata["field"], "header.sync");
    assert.deepEqual(fs.readdirSync(path), []);
  });

  it("WriteTree creates declared holes and rejects holes beyond the item's size", async () => {
    const path = newDirectory();
    const header = { path: Buffer.from(path) };
    const [gib, sparse] = [2n ** 30n, (more: Item = {}) => file("f", "", { size: 2n ** 30n, sparse: true, ...more })];
    const islands = [1, 2].map((value) => Buffer.alloc(100_000, value));
    const left = gib - 300_000n - 200_000n;
    const { failed } = await write(header, [sparse()], islands[0] as Buffer, 300_000n, islands[1] as Buffer, left);
    assert.deepEqual(failed, {});
    const { size, blocks } = fs.statSync(`${path}/f`);
    assert.ok(blocks * 512 < 500_000, `${blocks} blocks`);
    assert.equal(size, 2 ** 30);
    const begin = Buffer.concat([islands[0] as Buffer, Buffer.alloc(300_000), islands[1] as Buffer, Buffer.alloc(99)]);
    const there = Buffer.alloc(begin.length);
    const fd = fs.openSync(`${path}/f`, "r");
    fs.readSync(fd, there, 0, there.length, 0);
    fs.closeSync(fd);
    assert.ok(there.equals(begin));
    const none = newDirectory();
    for (const [reason, ...parts] of [
      ["SIZE_MISMATCH", [sparse()], gib + 1n],
      ["SIZE_MISMATCH", [sparse()], 1n, gib],
      ["SIZE_MISMATCH", [sparse()], 2n ** 64n - 1n],
      ["SIZE_MISMATCH", [sparse()], gib - 1n, [file("next")]],
      ["FRAME_ORDER", [sparse()], gib, 1n],
      ["FRAME_ORDER", 1n],
      ["INVALID_FIELD", [sparse({ sparse: false })], 1n],
      ["INVALID_FIELD", [sparse({ size: 2n ** 53n })], 1n],
    ] as const satisfies readonly (readonly [string, ...Part[]])[])
      assert.equal((await refusal({ path: Buffer.from(none) }, ...parts)).reason, reason);
    assert.deepEqual(fs.readdirSync(none), ["f"], "what was whole before the false one");
  });

  it("a cancelled WriteTree keeps complete files and no partial or temporary ones", async () => {
    const path = newDirectory();
    const abort = new AbortController();
    async function* endless(): AsyncGenerator<WriteTreeRequest> {
      yield* requests({ path: Buffer.from(path) }, [
        [file("whole", "1")],
        [file("half", "", { size: 1_000_000n })],
        randomBytes(300_000),
      ]);
      await new Promise((_resolve, reject) => abort.signal.addEventListener("abort", () => reject(new Error("cut"))));
    }
    const call = client.call(FileTree.method.writeTree, endless(), { token: agent.token, signal: abort.signal });
    await assert.rejects(async () => {
      for await (const { items } of call) if (items >= 1n) abort.abort();
    });
    assert.deepEqual(fs.readdirSync(path), ["whole"]);
  });
});

describe("a hung file system below the root", NEEDS_FUSE, () => {
  it("if a mount hangs, only the tree items below that mount fail", async () => {
    const path = newDirectory();
    await using _mount = await fuseMount("hanging_mount", join(path, "hung"));
    const header = { path: Buffer.from(path) };
    const [small, large] = await Promise.all([
      write(header, [file("before"), file("hung/small"), dir("hung/directory"), file("after")]),
      write(header, [file("hung/large", "", { size: 100_000n })], randomBytes(100_000), [file("last")]),
    ]);
    assert.deepEqual(small.failed, { "hung/small": "ETIMEDOUT", "hung/directory": "ETIMEDOUT" });
    assert.deepEqual([large.failed, large.result.items], [{ "hung/large": "ETIMEDOUT" }, 2n]);
    assert.deepEqual((await write(header, [file("beside", "x")])).failed, {});
    assert.deepEqual([...(await read(path)).items.keys()].toSorted(), ["after", "before", "beside", "last"]);
    assert.deepEqual(failuresOf((await read(path, { crossMounts: true })).result), { hung: "ETIMEDOUT" });
    fs.symlinkSync("hung", `${path}/link`);
    assert.deepEqual((await write(header, [file("link/file")])).failed, { "link/file": "EXDEV" });
  });
});

describe("ReadTree", NEEDS_ROOT, () => {
  it("ReadTree returns odd names, symlinks, hard links and large files", async () => {
    const path = newDirectory();
    const large = randomBytes(3_000_000);
    fs.mkdirSync(`${path}/sub/empty`, { recursive: true });
    fs.writeFileSync(Buffer.concat([Buffer.from(`${path}/`), Buffer.of(0xff, 0x0a)]), "odd");
    fs.writeFileSync(`${path}/sub/large`, large);
    fs.writeFileSync(`${path}/sub/one`, "same", { mode: 0o600 });
    fs.linkSync(`${path}/sub/one`, `${path}/sub/two`);
    fs.symlinkSync("nowhere", `${path}/dangling`);
    fs.utimesSync(`${path}/sub/one`, 1, 1_111_111_111);
    execFileSync("mkfifo", [`${path}/fifo`]);
    const { items, result } = await read(path);
    assert.deepEqual([result.failed, result.failures.map(({ errno }) => errno)], [1n, ["EOPNOTSUPP"]]);
    assert.equal(items.get("\xff\n")?.content.toString(), "odd");
    assert.ok(items.get("sub/large")?.content.equals(large));
    assert.equal(Buffer.from(items.get("dangling")?.linkTarget ?? "").toString(), "nowhere");
    assert.equal(items.get("sub/empty")?.type, FileType.DIRECTORY);
    const [one, two] = [items.get("sub/one"), items.get("sub/two")];
    const first = one?.content.length === 4 ? one : two;
    const second = first === one ? two : one;
    assert.deepEqual([first?.mode, first?.mtime?.seconds, first?.content.toString()], [0o600, 1_111_111_111n, "same"]);
    assert.equal(Buffer.from(second?.linkTarget ?? "").toString(), Buffer.from(first?.path ?? "").toString());
  });

  it("ReadTree sends holes to clients that accept them, and zeros to others", async () => {
    const path = newDirectory();
    const [begin, end] = [randomBytes(70_000), randomBytes(5_000)];
    fs.writeFileSync(`${path}/file`, begin);
    fs.truncateSync(`${path}/file`, 4_000_000);
    fs.appendFileSync(`${path}/file`, end);
    // A hole too small to be told, and one at the end.
    fs.truncateSync(`${path}/file`, 4_040_000);
    fs.appendFileSync(`${path}/file`, end);
    fs.truncateSync(`${path}/file`, 6_000_000);
    const whole = fs.readFileSync(`${path}/file`);
    const [sparse, plain] = [await read(path, { holes: true }), await read(path)];
    assert.ok(plain.items.get("file")?.content.equals(whole));
    assert.ok(plain.parts.every((part) => typeof part === "number"));
    assert.equal(sparse.items.get("file")?.sparse, true);
    const sent = sparse.parts.filter((part) => typeof part === "number").reduce((sum, part) => sum + part, 0);
    assert.ok(sent < 150_000, `${sent} bytes`);
    assert.equal(
      sparse.parts.reduce<bigint>((sum, part) => sum + BigInt(part), 0n),
      6_000_000n,
    );
    assert.deepEqual(
      sparse.parts.map((part) => typeof part),
      ["number", "bigint", "number", "bigint"],
    );
  });

  it("ReadTree sends at most the declared size of a file that grows", async () => {
    const path = newDirectory();
    const names = Array.from({ length: 100 }, (_, at) => join(path, `${at}`));
    for (const name of names) fs.writeFileSync(name, Buffer.alloc(10, "x"));
    const isOver = new Int32Array(new SharedArrayBuffer(4));
    const changing = new Worker(
      `const { truncateSync } = require("node:fs");
      const { names, isOver } = require("node:worker_threads").workerData;
      while (Atomics.load(isOver, 0) === 0) for (const name of names) for (const size of [200_000, 10]) truncateSync(name, size);`,
      { eval: true, workerData: { names, isOver } },
    );
    try {
      for (let round = 0; round < 10; round++) {
        const { items, result } = await read(path);
        assert.equal(items.size, 100);
        // A file that became shorter while it was read is declared failed.
        for (const { errno } of result.failures) assert.equal(errno, "ESTALE");
        for (const { size, content } of items.values()) assert.ok(BigInt(content.length) <= size, `${size}`);
      }
    } finally {
      Atomics.store(isOver, 0, 1);
      await once(changing, "exit");
    }
  });

  it("ReadTree rejects a file as its root, and follows no link", async () => {
    const path = newDirectory();
    fs.writeFileSync(`${path}/file`, "");
    await assert.rejects(read(`${path}/file`), {
      reason: "NOT_A_FOLDER",
      message: /it is a regular file, not a directory$/,
    });
    await assert.rejects(read(`${path}/none`), { reason: "PATH_NOT_FOUND" });
    fs.symlinkSync("/etc", `${path}/etc`);
    assert.deepEqual([...(await read(path)).items.keys()].toSorted(), ["etc", "file"]);
  });
});
