import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, statSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import {
  chmod,
  lstat,
  lutimes,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { describe, it } from "node:test";
import type {
  CopyEntry,
  DirectoryEntry,
  DownloadOptions,
  NewTreeEntry,
  OpendirOptions,
  UploadOptions,
} from "../../../src/node/client/index.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { FileTree, type WriteTreeRequest } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { until } from "../../fixtures/awake.ts";
import { openFiles, testDirectory } from "../../fixtures/files.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { type StandInCall, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { NEEDS_INSIGHT, NEEDS_ROOT } from "../../fixtures/privileges.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

async function all(path: string, options?: OpendirOptions): Promise<DirectoryEntry[]> {
  const entries: DirectoryEntry[] = [];
  for await (const entry of client.files.opendir(path, options)) entries.push(entry);
  return entries;
}

describe("client.list", () => {
  it("the result of opendir() can be iterated twice and yields entries with attributes", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("sub"));
    await writeFile(directory.at("sub/file"), "12345");
    const listing = client.files.opendir(directory.path, { recursive: true });
    for (let time = 0; time < 2; time++) {
      const found: (readonly unknown[])[] = [];
      for await (const { name, type, size: bytes, errno } of listing) found.push([name, type, bytes, errno]);
      const { size } = await stat(directory.at("sub"));
      assert.deepEqual(found, [
        ["sub", "directory", size, undefined],
        ["sub/file", "file", 5, undefined],
      ]);
    }
    assert.equal(listing.truncated, false);
    const short = client.files.opendir(directory.path, { depth: 2, maxEntries: 1 });
    for await (const { name } of short) assert.equal(name, "sub");
    assert.equal(short.truncated, true);
  });

  it("leaving or aborting an opendir() loop makes the agent close the directory", NEEDS_INSIGHT, async () => {
    await using directory = await testDirectory();
    // More than a call may hold ahead of its reader (1 MiB), with what is on its way.
    for (let index = 0; index < 10_000; index++) await writeFile(directory.at(`${index}`.padStart(200, "x")), "");
    const isOpen = async (): Promise<boolean> => (await openFiles(agent.pid)).includes(directory.path);
    for await (const { name } of client.files.opendir(directory.path)) {
      assert.equal(name.length, 200);
      break;
    }
    await until(async () => !(await isOpen()), "it is closed");
    const abort = new AbortController();
    const entries = client.files.opendir(directory.path, { signal: abort.signal })[Symbol.asyncIterator]();
    await entries.next();
    abort.abort();
    const read = async (): Promise<void> => {
      while ((await entries.next()).done !== true);
    };
    assert.equal((await failureOf(read())).status, "CANCELLED");
    await until(async () => !(await isOpen()), "it is closed");
  });

  it("opendir() rejects with a GuestError for a missing directory or a file", async () => {
    const missing = await failureOf(all("/no/such/directory"));
    assert.deepEqual([missing.status, missing.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    assert.equal((await failureOf(all("/etc/passwd"))).reason, "NOT_A_FOLDER");
  });
});

describe("the client's changes of directories", () => {
  it("mkdir, symlink, rename, setAttributes and rm accept paths relative to `beneath`", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const beneath = directory.path;
    assert.equal(
      await client.files.mkdir("a/b", { beneath, recursive: true, mode: 0o700, uid: 1000, gid: 1001 }),
      "a/b",
    );
    assert.equal(await client.files.mkdir("a/b", { beneath, recursive: true }), undefined);
    assert.equal((await failureOf(client.files.mkdir("a/b", { beneath }))).status, "ALREADY_EXISTS");
    await client.files.symlink("b", "a/link", { beneath });
    assert.equal(await readlink(directory.at("a/link")), "b");
    const raw = Buffer.from([0xff, 0xfe]);
    await client.files.writeFile(Buffer.concat([Buffer.from(`${directory.path}/`), raw]), "x");
    assert.equal(await client.files.readFile(Buffer.concat([Buffer.from(`${directory.path}/`), raw]), "utf8"), "x");
    assert.equal((await client.files.stat(Buffer.concat([Buffer.from(`${directory.path}/`), raw]))).size, 1);
    await client.files.rename(raw, "a/named", { beneath });
    assert.equal(await readFile(directory.at("a/named"), "utf8"), "x");
    const mtime = new Date("1969-12-31T23:59:58.250Z");
    const told = await client.files.setAttributes(
      "a/named",
      { mode: 0o640, mtime, mtimeNanos: 250_000_001 },
      { beneath },
    );
    assert.deepEqual([told.mode, told.mtime?.getTime(), told.mtimeNanos], [0o640, mtime.getTime(), 250_000_001]);
    assert.equal((await lstat(directory.at("a/named"), { bigint: true })).mtimeNs, -1_749_999_999n);
    assert.equal((await failureOf(client.files.rm("a", { beneath }))).reason, "FOLDER_NOT_EMPTY");
    assert.equal(await client.files.rm("a", { beneath, recursive: true }), 4);
    assert.deepEqual(await directory.names(), []);
  });
});

describe("client.files.upload and download", () => {
  it("files.upload and files.download preserve a tree and report skipped entries", async () => {
    await using directory = await testDirectory();
    const at = (path: string): string => directory.at(`here/${path}`);
    await mkdir(at("sub/empty"), { recursive: true });
    const large = Buffer.alloc(3 * 1024 * 1024, "large");
    await writeFile(at("sub/large"), large);
    await writeFile(at("none"), "", { mode: 0o600 });
    await chmod(at("sub"), 0o750);
    await utimes(at("none"), 1, 1);
    await symlink("../none", at("sub/link"));
    await lutimes(at("sub/link"), 3, 3);
    spawnSync("mkfifo", [at("sub/fifo")]);
    const there = directory.at("new/there");
    await utimes(directory.at("here"), 2, 2);
    const up = await client.files.upload(directory.at("here"), there);
    assert.deepEqual(up, { files: 2, bytes: large.length, skipped: ["sub/fifo"] });
    assert.equal((await stat(there)).mtimeMs, 2_000);
    await writeFile(`${there}/none`, "changed");
    await client.files.upload(directory.at("here"), there);
    spawnSync("mkfifo", [`${there}/fifo`]);
    const back = directory.at("back");
    assert.deepEqual(await client.files.download(there, back), { ...up, skipped: ["fifo"] });
    const names = ["none", "sub", "sub/empty", "sub/large", "sub/link"];
    assert.deepEqual((await readdir(back, { recursive: true })).toSorted(), names);
    assert.ok((await readFile(`${back}/sub/large`)).equals(large));
    assert.equal(await readlink(`${back}/sub/link`), "../none");
    assert.equal((await lstat(`${back}/sub/link`)).mtimeMs, 3_000);
    await utimes(there, 2, 2);
    await client.files.download(there, back);
    assert.equal((await stat(back)).mtimeMs, 2_000);
    const [none, sub] = [await stat(`${back}/none`), await stat(`${back}/sub`)];
    assert.deepEqual([none.mode & 0o777, none.mtimeMs, none.size, sub.mode & 0o777], [0o600, 1_000, 0, 0o750]);
  });

  it("a resumed `files.upload` does not rewrite files that are already complete", async () => {
    await using directory = await testDirectory();
    await using relay = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: relay.port });
    const [here, there] = [directory.at("here"), directory.at("there")];
    await mkdir(here);
    const contentOf = (at: number): string => `${at}`.repeat(at === 7 ? 100_000 : 5_000);
    for (let at = 0; at < 300; at += 1) await writeFile(join(here, `${at}`), contentOf(at));
    // In the order in which they are sent, by their bytes.
    const [first = "", ...names] = (await readdir(here)).toSorted();
    const before = new Map<string, number>();
    let cuts = 0;
    const seen: number[] = [];
    const onProgress = ({ entries }: { entries: number }): void => {
      seen.push(entries);
      // Once for each connection: answers from before the cut are reported after it.
      if (entries < 30 || cuts === 3 || relay.dialled === cuts) return;
      cuts += 1;
      for (const name of names.slice(0, 29)) before.getOrInsert(name, statSync(join(there, name)).ino);
      if (cuts === 1) writeFileSync(join(there, first), "changed meanwhile");
      relay.cut();
      relay.mend();
    };
    const copied = await through.files.upload(here, there, { onProgress });
    assert.deepEqual([cuts, copied.files, relay.dialled], [3, 300, 4]);
    assert.deepEqual(
      seen,
      seen.toSorted((one, other) => one - other),
    );
    for (let at = 0; at < 300; at += 1)
      assert.equal(await readFile(join(there, `${at}`), "utf8"), contentOf(at), `file ${at}`);
    for (const [name, inode] of before) assert.equal((await stat(join(there, name))).ino, inode, name);
  });

  for (const isRolledBack of [false, true])
    it(`files.upload replaces equal-looking files after a lost connection${isRolledBack ? " and a rollback" : ""}`, async () => {
      await using directory = await testDirectory();
      await using relay = await relayTo(agent.port);
      using through = clientOf({ ...agent, port: relay.port });
      const write = async (name: string, content: string, mode: number): Promise<void> => {
        await mkdir(directory.at(name), { recursive: true });
        for (let at = 0; at < 400; at += 1) {
          await writeFile(directory.at(`${name}/${at}`), content.repeat(3_000), { mode });
          await utimes(directory.at(`${name}/${at}`), 499_162_500, 499_162_500);
        }
      };
      await write("new", "new", 0o755);
      await write("before/app", "old", 0o644);
      await write("now/app", "old", 0o644);
      await symlink("now", directory.at("guest"));
      let isCut = false;
      const onProgress = ({ entries }: { entries: number }): void => {
        if (entries < 30 || isCut) return;
        isCut = true;
        if (isRolledBack) {
          unlinkSync(directory.at("guest"));
          symlinkSync("before", directory.at("guest"));
        }
        relay.cut();
        relay.mend();
      };
      await through.files.upload(directory.at("new"), directory.at("guest/app"), { onProgress });
      assert.ok(isCut);
      for (let at = 0; at < 400; at += 1) {
        const path = directory.at(`guest/app/${at}`);
        assert.equal((await readFile(path, "utf8")).slice(0, 3), "new", `${at}`);
        assert.equal((await stat(path)).mode & 0o777, 0o755, `${at}`);
      }
    });

  it("upload() and download() keep files sparse and do not send their holes", async () => {
    await using directory = await testDirectory();
    await using relay = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: relay.port });
    const [here, there, back] = ["here", "there", "back"].map((name) => directory.at(name)) as [string, string, string];
    await mkdir(here);
    const sizeBytes = 256 * 1024 * 1024;
    const islands = [0, 100_000_000, sizeBytes - 204_800].map((at) => [at, Buffer.alloc(204_800, `${at}`)] as const);
    await using file = await open(join(here, "file"), "w");
    await file.truncate(sizeBytes);
    for (const [at, bytes] of islands) await file.write(bytes, 0, bytes.length, at);
    assert.deepEqual(await through.files.upload(here, there), { files: 1, bytes: sizeBytes, skipped: [] });
    const up = relay.bytes;
    assert.deepEqual(await through.files.download(there, back), { files: 1, bytes: sizeBytes, skipped: [] });
    for (const bytes of [up, relay.bytes - up]) assert.ok(bytes < 2_000_000, `${bytes} bytes crossed the wire`);
    const copied = await through.files.writeTree(directory.at("again"), through.files.readTree(there), {
      parents: true,
    });
    assert.deepEqual([copied.entries, copied.failed], [1, 0]);
    for (const copy of [there, back, directory.at("again")]) {
      await using read = await open(join(copy, "file"));
      const { size, blocks } = await read.stat();
      assert.equal(size, sizeBytes);
      assert.ok(blocks * 512 < 1_200_000, `${blocks} blocks`);
      for (const [at, bytes] of islands)
        assert.ok((await read.read(Buffer.alloc(bytes.length), 0, bytes.length, at)).buffer.equals(bytes), `${at}`);
    }
  });

  it("files.upload retries if connections break while it lists existing files", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "content");
    const lost = { WriteTree: 0, List: 0 };
    const serves = {
      WriteTree: (call: StandInCall): void => {
        call.send({});
        call.on("data", (message) => {
          if ((message as WriteTreeRequest).part.case !== "items") return;
          if (lost.WriteTree++ === 0) agentOfTwoLives.drop();
          else {
            call.send({ done: true, items: 1n });
            call.end();
          }
        });
      },
      List: (call: StandInCall): void => {
        if (lost.List++ < 3) agentOfTwoLives.drop();
        else call.end();
      },
    };
    const answers = { SetAttributes: () => ({ stat: {} }) };
    await using agentOfTwoLives = await startStandIn({ service: FileTree, serves, answers });
    assert.equal((await agentOfTwoLives.client.files.upload(directory.path, "/there")).files, 1);
    assert.deepEqual(lost, { WriteTree: 2, List: 4 });
  });

  it("files.upload sends a sparse file's holes as zeros to an older agent", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("here"));
    await writeFile(directory.at("here/file"), "");
    await truncate(directory.at("here/file"), 1_000_000);
    for (const holes of [false, true]) {
      const sent = { data: 0, hole: 0 };
      const writeTree = (call: StandInCall): void => {
        call.on("data", (message) => {
          const { part } = message as WriteTreeRequest;
          if (part.case === "header") call.send({ holes });
          else if (part.case === "data") sent.data += part.value.length;
          else if (part.case === "hole") sent.hole += Number(part.value);
          if (sent.data + sent.hole === 1_000_000) {
            call.send({ done: true, items: 1n });
            call.end();
          }
        });
      };
      await using older = await startStandIn({
        service: FileTree,
        serves: { WriteTree: writeTree },
        answers: { SetAttributes: () => ({ stat: {} }) },
      });
      await older.client.files.upload(directory.at("here"), "/there");
      assert.deepEqual(sent, holes ? { data: 0, hole: 1_000_000 } : { data: 1_000_000, hole: 0 });
    }
  });

  it("files.download rejects a sandbox's invalid names, sizes and holes", async () => {
    const file = (size: bigint, data = "", name = "file"): object => ({
      case: "items",
      value: { items: [{ path: Buffer.from(name), type: FileType.REGULAR, size, data: Buffer.from(data) }] },
    });
    const hole = (value: bigint): object => ({ case: "hole", value });
    const bytes = (value: string): object => ({ case: "data", value: Buffer.from(value) });
    for (const [says, ...parts] of [
      [/it has the impossible size 18446744073709551615 of "file"/, file(2n ** 64n - 1n), hole(2n ** 64n - 1n)],
      [/it has the impossible size 9007199254740992 of "file"/, file(2n ** 53n)],
      [/has more than the declared 100000 bytes of "file"/, file(100_000n), hole(100_001n)],
      [/has more than the declared 100000 bytes of "file"/, file(100_000n, "begin"), hole(99_995n + 2n ** 63n)],
      [/has more than the declared 100000 bytes of "file"/, file(100_000n), hole(99_999n), bytes("two")],
      [/has more than the declared 1 bytes? of "file"/, file(1n, "two")],
      [/has file data without a file/, file(3n, "two"), hole(1n)],
      [/has file data without a file/, file(3n, "two"), bytes("more")],
      [/1 entry could not be copied, all others were: file: ESTALE/, file(100_000n), hole(99_999n)],
      [/has the name "\.\.\/file", which leads out/, file(1n, "x", "../file")],
      [/has the name "file\\u0000", which contains a NUL/, file(1n, "x", "file\0")],
    ] as const) {
      await using directory = await testDirectory();
      const streams = { ReadTree: [...parts, { case: "result", value: {} }].map((part) => ({ part })) };
      const answers = { StatPath: () => ({ type: FileType.DIRECTORY, mode: 0o755 }) };
      await using hostile = await startStandIn({ service: [FileTree, GuestAgent], streams, answers });
      const copied = hostile.client.files.download("/any", directory.at("back"));
      const { message, code } = await failureOf(copied);
      assert.match(message, says);
      assert.equal(
        code,
        /could not be copied, all others were/.test(message) ? "COPY_INCOMPLETE" : "ANSWER_UNREADABLE",
      );
      if (!/without a file/.test(String(says)))
        assert.equal(existsSync(directory.at("back/file")), false, String(says));
    }
  });

  it("upload() and download() create nothing if source or target is not a directory", async () => {
    await using directory = await testDirectory();
    const unread = await failureOf(client.files.upload(directory.at("missing"), directory.at("there")));
    assert.deepEqual([unread.code, (unread.cause as { code?: unknown }).code], ["SOURCE_FAILED", "ENOENT"]);
    const { reason } = await failureOf(client.files.download(directory.at("missing"), directory.at("back")));
    assert.equal(reason, "PATH_NOT_FOUND");
    await assert.rejects(lstat(directory.at("back")), { code: "ENOENT" });
    assert.equal(unread.status, "FAILED_PRECONDITION");
    await writeFile(directory.at("plain"), "x");
    const plain = await failureOf(client.files.upload(directory.at("plain"), directory.at("there")));
    assert.deepEqual([plain.code, /plain is not a directory/.test(plain.message)], ["SOURCE_FAILED", true]);
    await assert.rejects(lstat(directory.at("there")), { code: "ENOENT" });
    await mkdir(directory.at("no entries"), { mode: 0o700 });
    await client.files.download(directory.at("no entries"), directory.at("back"));
    assert.equal((await stat(directory.at("back"))).mode & 0o777, 0o700);
    for (const to of ["no/where", "back/file"]) {
      await writeFile(directory.at("back/file"), "");
      const refused = await failureOf(client.files.download(directory.at("no entries"), directory.at(to)));
      assert.equal(refused.code, "DESTINATION_FAILED");
      assert.ok(refused.message.includes(directory.at(to)), refused.message);
    }
    await mkdir(directory.at("here/name"), { recursive: true });
    await mkdir(directory.at("there"));
    await writeFile(directory.at("there/name"), "in the way");
    await failureOf(client.files.upload(directory.at("here"), directory.at("there"), { overwrite: false }));
    assert.equal(await readFile(directory.at("there/name"), "utf8"), "in the way");
  });
});

describe("filter of directory copies", () => {
  /** A directory with some entries, of which a filter is to exclude node_modules and large files. */
  const project = async (path: string): Promise<void> => {
    await mkdir(join(path, "src/node_modules/deep"), { recursive: true });
    await mkdir(join(path, "empty"));
    await writeFile(join(path, "src/main.ts"), "main");
    await writeFile(join(path, "src/large.bin"), Buffer.alloc(100_000));
    await writeFile(join(path, "src/node_modules/deep/file"), "x");
    await symlink("src/main.ts", join(path, "link"));
    spawnSync("mkfifo", [join(path, "fifo")]);
  };
  const namesOf = async (path: string): Promise<string[]> => (await readdir(path, { recursive: true })).toSorted();

  it("upload() and download() copy only the entries that `filter` accepts", async () => {
    await using directory = await testDirectory();
    await project(directory.at("here"));
    for (const [isAsync, copy] of [
      [false, (options: UploadOptions) => client.files.upload(directory.at("here"), directory.at("there"), options)],
      [true, (options: DownloadOptions) => client.files.download(directory.at("here"), directory.at("there"), options)],
    ] as const) {
      const seen = new Map<string, CopyEntry>();
      const filter = (path: string, entry: CopyEntry): boolean | Promise<boolean> => {
        seen.set(path, entry);
        const isCopied = path !== "src/node_modules" && entry.size < 10_000 && entry.type !== "fifo";
        return isAsync ? new Promise((resolve) => setImmediate(resolve, isCopied)) : isCopied;
      };
      const copied = await copy({ filter, exclude: ["empty"] });
      assert.deepEqual(copied, { files: 1, bytes: 4, skipped: isAsync ? ["fifo"] : [] });
      assert.deepEqual(await namesOf(directory.at("there")), ["link", "src", "src/main.ts"]);
      const offered = ["link", "src", "src/large.bin", "src/main.ts", "src/node_modules"];
      assert.deepEqual([...seen.keys()].toSorted(), isAsync ? offered : ["fifo", ...offered]);
      const stats = await lstat(directory.at("here/src/main.ts"), { bigint: true });
      const main = seen.get("src/main.ts");
      assert.deepEqual([main?.type, main?.size, main?.rawName.toString()], ["file", 4, "src/main.ts"]);
      assert.equal(main?.mtime.getTime(), Number(stats.mtimeNs / 1_000_000n));
      assert.equal(main.mtimeNanos, Number(stats.mtimeNs % 1_000_000_000n));
      assert.deepEqual(
        [main.mode, main.uid, main.gid],
        [Number(stats.mode & 0o7777n), Number(stats.uid), Number(stats.gid)],
      );
      assert.deepEqual([seen.get("link")?.type, seen.get("src")?.type], ["symlink", "directory"]);
      await rm(directory.at("there"), { recursive: true });
    }
  });

  it("upload() calls `filter` for each of 1,000 entries of a directory", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("here"));
    for (let index = 0; index < 1_000; index++) writeFileSync(directory.at(`here/${index}`), "");
    const filter = (path: string): boolean => Number(path) % 2 === 0;
    const copied = await client.files.upload(directory.at("here"), directory.at("there"), { filter });
    assert.equal(copied.files, 500);
    assert.ok((await readdir(directory.at("there"))).every((name) => Number(name) % 2 === 0));
  });

  it("upload() and download() rethrow `filter` errors; aborting ends the wait for `filter`", async () => {
    await using directory = await testDirectory();
    await project(directory.at("here"));
    const own = new RangeError("the caller's own");
    const failing = [
      () => {
        throw own;
      },
      () => Promise.reject(own),
    ];
    const copies = [
      (options: object) => client.files.upload(directory.at("here"), directory.at("there"), options),
      (options: object) => client.files.download(directory.at("here"), directory.at("back"), options),
    ];
    for (const copy of copies) {
      for (const filter of failing) await assert.rejects(copy({ filter }), (error) => error === own);
      const stop = new AbortController();
      const hanging = (): Promise<never> => {
        stop.abort();
        return new Promise(() => undefined);
      };
      assert.equal((await failureOf(copy({ filter: hanging, signal: stop.signal }))).code, "ABORT_ERR");
      const late = await failureOf(copy({ filter: () => new Promise(() => undefined), requestTimeoutMs: 2_000 }));
      assert.equal(late.status, "DEADLINE_EXCEEDED");
    }
  });
});

describe("client.writeTree", () => {
  it("writeTree fails if its time limit is over before the call starts", async (t) => {
    await client.health();
    // As if the process had not run for a second after it had computed the deadline.
    const now = Date.now.bind(Date);
    const times = [now() - 1_000];
    t.mock.method(Date, "now", () => times.pop() ?? now());
    const failed = failureOf(client.files.writeTree("/x", [], { requestTimeoutMs: 1 }));
    assert.equal((await failed).status, "DEADLINE_EXCEEDED");
  });

  it("writeTree fails on a file that is longer than its declared size", async () => {
    await using directory = await testDirectory();
    let isClosed = false;
    async function* content(): AsyncGenerator<Buffer> {
      try {
        for (;;) yield await Promise.resolve(Buffer.alloc(1024, "more"));
      } finally {
        isClosed = true;
      }
    }
    async function* entries(): AsyncGenerator<NewTreeEntry> {
      yield { type: "file", name: "good", size: 2, content: Readable.from([Buffer.from("ok")]) };
      yield await Promise.resolve({ type: "file", name: "endless", size: 5, content: content() });
    }
    const { status, message } = await failureOf(client.files.writeTree(directory.path, entries()));
    assert.deepEqual([status, isClosed], ["INVALID_ARGUMENT", true]);
    assert.match(message, /^"endless" has more bytes than its declared size, 5; /);
    assert.equal(existsSync(directory.at("endless")), false);
  });

  it("readTree entries have the same attributes as entries from readdir", async () => {
    await using directory = await testDirectory();
    const raw = Buffer.concat([Buffer.from(directory.at("tree/caf")), Buffer.from([0xe9])]);
    await mkdir(directory.at("tree"));
    await writeFile(raw, "content", { mode: 0o640 });
    await utimes(raw, 1, 1_234_567.891_234);
    await symlink("target", directory.at("tree/link"));
    const listed = await client.files.readdir(directory.at("tree"), { withFileTypes: true });
    const read = await Array.fromAsync(client.files.readTree(directory.at("tree")));
    const names = ["name", "rawName", "type", "size", "mode", "uid", "gid", "mtime", "mtimeNanos"] as const;
    for (const entry of read) {
      const other = listed.find(({ rawName }) => rawName.equals(entry.rawName));
      assert.ok(other?.size !== undefined);
      for (const name of names)
        if (name !== "size" || entry.type === "file") assert.deepEqual(entry[name], other[name], name);
      assert.deepEqual(entry.linkTarget, other.linkTarget);
    }
    assert.deepEqual(read.map(({ name }) => name).toSorted(), ["caf\u{fffd}", "link"]);
  });

  it("writeTree accepts entries of readTree whose name, content or time was changed", async () => {
    await using directory = await testDirectory();
    const [there, again] = [directory.at("there"), directory.at("again")];
    await mkdir(there);
    await Promise.all(["same", "renamed", "edited", "touched"].map((name) => writeFile(join(there, name), name)));
    await writeFile(Buffer.concat([Buffer.from(`${there}/caf`), Buffer.from([0xe9])]), "bytes");
    await utimes(join(there, "touched"), 1, 1_234_567.891_234);
    async function* changed(): AsyncGenerator<NewTreeEntry> {
      for await (const entry of client.files.readTree(there)) {
        if (entry.name === "renamed") yield { ...entry, name: "below/renamed" };
        else if (entry.name === "edited") yield { ...entry, content: "longer than before" };
        else if (entry.name === "touched") yield { ...entry, mtime: new Date(5_678) };
        else yield { ...entry };
      }
      yield { type: "file", name: "new", content: "text" };
      yield { type: "symlink", name: "link", linkTarget: "new" };
    }
    const result = await client.files.writeTree(again, changed(), { parents: true });
    assert.deepEqual([result.entries, result.failures], [7, []]);
    const contentOf = (name: string): Promise<string> => readFile(join(again, name), "utf8");
    const names = ["same", "below/renamed", "edited", "touched", "new", "link"];
    const contents = ["same", "renamed", "longer than before", "touched", "text", "text"];
    assert.deepEqual(await Promise.all(names.map(contentOf)), contents);
    assert.equal((await stat(join(again, "touched"))).mtimeMs, 5_678);
    const raw = (await readdir(again, { encoding: "buffer" })).map((name) => name.toString("latin1"));
    assert.deepEqual(raw.toSorted(), ["below", "caf\u{e9}", "edited", "link", "new", "same", "touched"]);
  });

  it("writeTree rejects entries whose time, size or name is missing or wrong", async () => {
    await using directory = await testDirectory();
    const content = Readable.from([]);
    const FAR = new Date(8.64e15);
    for (const [entry, says] of [
      [{ type: "file", name: "a", mtimeSeconds: 1 }, /"a" has mtimeSeconds but no mtime; also give mtime, as a Date/],
      [{ type: "file", name: "a", mtime: 1 }, /"a" has an mtime that is not a Date/],
      [
        { type: "file", name: "a", mtime: FAR, mtimeSeconds: "x" },
        /"a" has an mtimeSeconds that is not a whole number/,
      ],
      [
        { type: "file", name: "a", mtime: FAR, mtimeSeconds: 1e300 },
        /"a" has an mtimeSeconds that is not a whole number/,
      ],
      [
        { type: "file", name: "a", mtime: new Date(0), mtimeNanos: 0.5 },
        /"a" has an mtimeNanos that is not a whole number from 0 to/,
      ],
      [
        { type: "file", name: "a", mtime: new Date(0), mtimeNanos: "1" },
        /"a" has an mtimeNanos that is not a whole number from 0 to/,
      ],
      [{ type: "file", name: "a", content }, /"a" requires a size/],
      [{ type: "file", content: "" }, /"" has a name that is neither text nor bytes/],
      [{ type: "file", name: "a\u{d800}" }, /name has half of a surrogate pair/],
      [{ type: "door", name: "a" }, /"a" has a field of the wrong type/],
    ] as const) {
      const { status, code, message } = await failureOf(client.files.writeTree(directory.path, [entry as never]));
      assert.deepEqual([status, code], ["INVALID_ARGUMENT", "INVALID_ARGUMENT"], message);
      assert.match(message, says);
    }
  });
});
