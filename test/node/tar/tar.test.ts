import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { link, mkdir, open, readdir, readFile, stat, symlink, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { Readable } from "node:stream";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import {
  allowBlocking,
  BLOCK_BYTES,
  EntryError,
  entryEnd,
  fileContent,
  readHeader,
  readLocal,
  readPax,
  readTar,
  type ReceivedEntry,
  TAR_END,
  type TarEntry,
  type TarHeader,
  unpack,
  writeHeader,
  writePax,
} from "../../../src/node/tar/index.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";

type Entry = Partial<Omit<TarHeader, "name" | "linkTarget">> & { name: string; linkTarget?: string; content?: string };

async function* archive(entries: readonly Entry[], end: Buffer = TAR_END): AsyncGenerator<Uint8Array> {
  for (const { name, linkTarget = "", content = "", ...header } of entries) {
    const size = Buffer.byteLength(content);
    const names = { name: Buffer.from(name), linkTarget: Buffer.from(linkTarget) };
    yield writeHeader({ type: "file", mode: 0o644, mtimeSeconds: 0, size, ...header, ...names });
    // A byte at a time: the reader must not depend on how the stream is cut.
    for (const byte of Buffer.from(content)) yield Uint8Array.of(byte);
    yield entryEnd(size);
  }
  yield end;
}

/** Registers a test of local files twice: a thread copies them, and the calling thread does. */
function itOnBothThreads(title: string, test: () => Promise<void>): void {
  it(`${title} (copied by a thread)`, test);
  it(`${title} (copied by the calling thread)`, async () => {
    using _ = allowBlocking();
    await test();
  });
}

describe("an archive from a sandbox", () => {
  for (const [what, entries] of [
    ["a name with ..", [{ name: "../evil", content: "x" }]],
    ["a name with .. in the middle", [{ name: "a/../../evil", content: "x" }]],
    ["an absolute name", [{ name: "/tmp/evil", content: "x" }]],
    [
      "a file below a symlink",
      [
        { name: "l", type: "symlink", linkTarget: ".." },
        { name: "l/evil", content: "x" },
      ],
    ],
    [
      "a directory below a symlink",
      [
        { name: "l", type: "symlink", linkTarget: ".." },
        { name: "l/evil", type: "directory" },
      ],
    ],
    ["a hard link to the outside", [{ name: "evil", type: "hard-link", linkTarget: "../secret" }]],
    [
      "a hard link through a symlink",
      [
        { name: "l", type: "symlink", linkTarget: ".." },
        { name: "evil", type: "hard-link", linkTarget: "l/secret" },
      ],
    ],
  ] as const) {
    itOnBothThreads(`unpacking does not leave the directory through ${what}`, async () => {
      await using directory = await testDirectory();
      await writeFile(directory.at("secret"), "secret");
      await assert.rejects(unpack(directory.at("root"), readTar(archive(entries))), { name: /^(?:Tar|Unpack)Error$/ });
      const names = (await directory.names()).toSorted().filter((name) => name !== "root");
      assert.deepEqual(names, ["secret"]);
      if ((await directory.names()).includes("root"))
        assert.ok(!(await readdir(directory.at("root"))).includes("evil"));
    });
  }

  itOnBothThreads("unpacking replaces an existing symlink instead of writing through it", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("secret"), "secret");
    const entries = [
      { name: "l", type: "symlink", linkTarget: "../secret" },
      { name: "l", content: "mine" },
    ] as const;
    const unpacked = await unpack(directory.at("root"), readTar(archive(entries)));
    assert.deepEqual(unpacked, { files: 1, bytes: 4 });
    assert.equal(await readFile(directory.at("secret"), "utf8"), "secret");
    assert.equal(await readFile(directory.at("root/l"), "utf8"), "mine");
  });

  it("a global pax header applies to entries without their own header", async () => {
    const values = new Map([
      ["comment", Buffer.from("0123abcd")],
      ["mtime", Buffer.from("77")],
    ]);
    const global: Entry = { name: "pax_global_header", type: "pax-global", content: writePax(values).toString() };
    const nearer: Entry = {
      name: "pax",
      type: "pax",
      content: writePax(new Map([["mtime", Buffer.from("88")]])).toString(),
    };
    const found: [string, number][] = [];
    for await (const entry of readTar(archive([global, { name: "a" }, nearer, { name: "b" }, { name: "c" }])))
      found.push([entry.name.toString(), entry.mtimeSeconds]);
    assert.deepEqual(found, [
      ["a", 77],
      ["b", 88],
      ["c", 77],
    ]);
  });

  it("GNU sparse files in an archive are rejected", async () => {
    const major = writePax(new Map([["GNU.sparse.major", Buffer.from("1")]])).toString();
    for (const entries of [
      [{ name: "pax", type: "pax", content: major }, { name: "holes" }],
      [{ name: "holes", type: "gnu-sparse" }],
    ] as const) {
      await using directory = await testDirectory();
      await assert.rejects(unpack(directory.at("root"), readTar(archive(entries))), /sparse.*without --sparse/);
    }
  });

  it("readTar ends after the last entry, with or without final zero blocks", async () => {
    for (const end of [TAR_END, Buffer.alloc(BLOCK_BYTES), Buffer.alloc(0)]) {
      const names: string[] = [];
      const given = [{ name: "a", content: "x".repeat(1_000) }, { name: "b" }];
      for await (const entry of readTar(archive(given, end))) names.push(entry.name.toString());
      assert.deepEqual(names, ["a", "b"]);
    }
  });

  it("an old tar entry whose name ends in a slash is a directory", async () => {
    const types: string[] = [];
    for await (const { type } of readTar(archive([{ name: "old/" }, { name: "old" }, { name: "/" }]))) types.push(type);
    // For GNU tar the last one is a file, too, which it cannot make.
    assert.deepEqual(types, ["directory", "file", "file"]);
  });

  it("a damaged or truncated archive is rejected", async () => {
    const collect = async (stream: AsyncIterable<Uint8Array>): Promise<void> => {
      for await (const entry of readTar(stream)) void entry;
    };
    const text = [{ name: "a", content: "x".repeat(1_000) }];
    await assert.rejects(collect(archive([], Buffer.alloc(0))), /ended early/);
    await assert.rejects(collect(archive(text, Buffer.alloc(BLOCK_BYTES - 1))), /ended early/);
    await assert.rejects(collect(archive(text, Buffer.alloc(BLOCK_BYTES, 1))), /damaged/);
  });

  it("readTar accepts times before 1970, but rejects invalid sizes and times", async () => {
    const extended = (key: string, value: string): Entry => ({
      name: "pax",
      type: "pax",
      content: writePax(new Map([[key, Buffer.from(value)]])).toString(),
    });
    const first = async (entries: readonly Entry[]): Promise<TarEntry> => {
      for await (const entry of readTar(archive(entries))) return entry;
      return assert.fail("no entry");
    };
    for (const [key, value] of [
      ["size", "x"],
      ["size", "-1"],
      ["size", "1e3"],
      ["size", "9".repeat(17)],
      ["mtime", "yesterday"],
      ["mtime", "Infinity"],
    ] as const) {
      await assert.rejects(first([extended(key, value), { name: "a" }]), /damaged/, `${key}=${value}`);
    }
    assert.throws(() => readPax(Buffer.from("6 a=b\nno length")), /damaged/);
    assert.equal((await first([extended("mtime", "-86400.5"), { name: "a" }])).mtimeSeconds, -86_400.5);
    const block = writeHeader({
      type: "file",
      name: Buffer.from("a"),
      linkTarget: Buffer.alloc(0),
      mode: 0,
      size: 0,
      mtimeSeconds: 0,
    });
    // The time before 1970 as GNU tar writes it.
    Buffer.alloc(12, 0xff).copy(block, 136);
    assert.equal(readHeader(sealed(block))?.mtimeSeconds, -1);
    Buffer.alloc(12, 0xff).copy(block, 124);
    assert.throws(() => readHeader(sealed(block)), /damaged/);
    Buffer.from([0x80, 0xff]).copy(block, 124);
    assert.throws(() => readHeader(sealed(block)), /damaged/);
  });

  it("reading a corrupted archive succeeds or fails, but never hangs", async () => {
    const long = "long/".repeat(60);
    const entries: readonly Entry[] = [
      {
        name: "pax",
        type: "pax",
        content: writePax(
          new Map([
            ["path", Buffer.from(long)],
            ["size", Buffer.from("9")],
          ]),
        ).toString(),
      },
      { name: "d", type: "directory" },
      { name: "a", content: "x".repeat(700) },
      { name: "name", type: "gnu-name", content: `${long}\0` },
      { name: "l", type: "symlink", linkTarget: "a" },
    ];
    const pieces: Uint8Array[] = [];
    for await (const piece of archive(entries)) pieces.push(piece);
    const whole = Buffer.concat(pieces);
    const seeded = seededRandom(18);
    const random = (limit: number): number => seeded.below(limit);
    let refused = 0;
    for (let round = 0; round < 3_000; round++) {
      const changed = Buffer.from(whole);
      for (let changes = 1 + random(4); changes > 0; changes--) {
        const kept = changed.length - BLOCK_BYTES;
        if (random(3) === 0) changed.copy(changed, random(kept), random(kept), random(changed.length));
        else
          changed[random(changed.length)] =
            random(2) === 0 ? random(256) : (INTERESTING[random(INTERESTING.length)] ?? 0);
      }
      // The checksum catches most damage: the code behind it must be reached too.
      for (let at = 0; random(2) === 0 && at + BLOCK_BYTES <= changed.length; at += BLOCK_BYTES) {
        const block = changed.subarray(at, at + BLOCK_BYTES);
        if (block.toString("latin1", 257, 262) === "ustar") sealed(block);
      }
      try {
        for await (const entry of readTar(oneBy(changed))) {
          assert.ok(Number.isSafeInteger(entry.size) && entry.size >= 0, `${entry.size}`);
          assert.ok(Number.isFinite(entry.mtimeSeconds));
          let bytes = 0;
          for await (const part of entry.content) bytes += part.length;
          assert.equal(bytes, entry.size);
        }
      } catch (error) {
        assert.match(String(error), /^TarError: the tar stream (?:is damaged|ended early)$/, `round ${round}`);
        refused++;
      }
    }
    assert.ok(refused > 300 && refused < 3_000, `${refused} of 3000 refused`);
  });
});

describe("fileContent", () => {
  it("fileContent yields at most the given size, even if the file grew", async () => {
    await using directory = await testDirectory();
    const path = directory.at("file");
    for (const [now, had, given] of [
      [8 * 2 ** 30, 10, 10],
      [8 * 2 ** 30, 100_000, 100_000],
      [5, 10, 5],
      [5, 100_000, 5],
      [5, 0, 0],
    ] as const) {
      await writeFile(path, "x");
      await truncate(path, now);
      let bytes = 0;
      for await (const piece of fileContent(path, had)) bytes += piece.length;
      assert.equal(bytes, given, `${had} of ${now}`);
    }
  });
});

const INTERESTING = Buffer.from("\0 0789x=-.\n\u0080\u00ff", "latin1");

async function* oneBy(bytes: Buffer): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield bytes;
}

/** Corrects a header's checksum. */
function sealed(block: Buffer): Buffer {
  block.fill(0x20, 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

describe("unpacking a file whose content ends early", () => {
  // Up to 4 MiB: the content is in another batch of the thread than the file's name.
  for (const sizeBytes of [0, 1_000, 4 * 1024 * 1024])
    itOnBothThreads(`unpacking names a file that fails after ${sizeBytes} bytes, and continues`, async () => {
      await using directory = await testDirectory();
      const head = { type: "file", linkTarget: Buffer.alloc(0), mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0 } as const;
      async function* failing(): AsyncGenerator<Buffer> {
        for (let at = 0; at < sizeBytes; at += 1_000) yield Buffer.alloc(1_000, "x");
        await setImmediate();
        throw new EntryError("ESTALE", "it became shorter");
      }
      const entries: TarEntry[] = ["one", "two"].flatMap((name) => [
        { ...head, name: Buffer.from(`${name}-failing`), size: sizeBytes + 1, content: failing() },
        { ...head, name: Buffer.from(name), size: 4, content: Readable.from([Buffer.from("here")]) },
      ]);
      const failures: string[] = [];
      const onFailure = (name: Buffer, { errno }: EntryError): void =>
        void failures.push(`${name.toString()} ${errno}`);
      assert.deepEqual(await unpack(directory.at("root"), entries, { onFailure }), { files: 2, bytes: 8 });
      assert.deepEqual(failures, ["one-failing ESTALE", "two-failing ESTALE"]);
      assert.deepEqual((await readdir(directory.at("root"))).toSorted(), ["one", "two"]);
    });
});

itOnBothThreads("a reading that is disposed within a file fails at once", async () => {
  await using directory = await testDirectory();
  await writeFile(directory.at("large"), Buffer.alloc(32 * 1024 * 1024, "x"));
  using reading = readLocal(directory.path);
  assert.equal((await reading.next()).done, false, "the root");
  const { value } = await reading.next();
  assert.ok(value !== undefined && "entry" in value);
  for await (const piece of value.entry.content) {
    assert.equal(piece[0], "x".charCodeAt(0));
    break;
  }
  reading[Symbol.dispose]();
  await assert.rejects(async () => reading.next(), /the local directory was not read to its end/);
});

/** An entry as text, with a digest of its content. */
async function described(received: ReceivedEntry | undefined): Promise<string> {
  if (received === undefined) return "end";
  if ("skippedBytes" in received) return `skipped ${received.skippedBytes}`;
  if ("failure" in received)
    return `${received.failure.name.toString()} failed: ${received.failure.error.name} ${received.failure.error.message}`;
  const { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse, content } = received.entry;
  const digest = createHash("sha256");
  try {
    for await (const piece of content) digest.update(piece);
  } catch (error) {
    digest.update(String(error));
  }
  const fields = [type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse, digest.digest("hex")];
  return fields.map(String).join(" ");
}

it("readLocal yields the same entries in a worker thread and without one", async () => {
  await using directory = await testDirectory();
  const root = directory.at("root");
  await mkdir(`${root}/sub/excluded`, { recursive: true });
  await writeFile(`${root}/small`, "content");
  await writeFile(`${root}/large`, Buffer.alloc(3 * 1024 * 1024, "abcdefg"));
  await link(`${root}/small`, `${root}/sub/hard-link`);
  await symlink("nowhere", `${root}/sub/symlink`);
  await writeFile(`${root}/there`, "unchanged");
  await using sparse = await open(`${root}/sparse`, "w");
  await sparse.truncate(5 * 1024 * 1024);
  await sparse.write("end", 5 * 1024 * 1024 - 3);
  await using socket = createServer().listen(`${root}/socket`);
  await once(socket, "listening");
  const { size, mode, mtimeNs } = await stat(`${root}/there`, { bigint: true });
  const there = new Map([["there", { size: Number(size), mode: Number(mode), mtimeNs }]]);
  const all = async (): Promise<readonly string[]> => {
    using reading = readLocal(root, { exclude: ["excluded"], hardLinks: true, owners: { keepOwners: true }, there });
    const found: string[] = [];
    for (let next = await reading.next(); next.done !== true; next = await reading.next())
      found.push(await described(next.value));
    return found;
  };
  const inThread = await all();
  using _blocking = allowBlocking();
  assert.deepEqual(await all(), inThread);
  const kinds = ["directory  ", "directory sub", "file large", "file small", "file sparse", "hard-link sub/hard-link"];
  kinds.push("skipped 9", "socket failed", "symlink sub/symlink");
  assert.equal(inThread.length, kinds.length, inThread.join("\n"));
  for (const kind of kinds)
    assert.ok(
      inThread.some((line) => line.startsWith(kind)),
      kind,
    );
});

itOnBothThreads("a missing local directory fails with the system call's error", async () => {
  await using directory = await testDirectory();
  using reading = readLocal(directory.at("missing"));
  await assert.rejects(async () => reading.next(), { code: "ENOENT", syscall: "stat" });
});
