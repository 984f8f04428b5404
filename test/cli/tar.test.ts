import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { Extraction } from "../../src/cli/copy/extract.ts";
import { CopyReport } from "../../src/cli/copy/report.ts";
import { BLOCK_BYTES, paddingBytes, type TarHeader, writeHeader } from "../../src/cli/copy/tar-header.ts";
import { readTar } from "../../src/cli/copy/tar-read.ts";
import { TAR_END } from "../../src/cli/copy/tar-write.ts";
import { testFolder } from "../fixtures/files.ts";

type Entry = Partial<Omit<TarHeader, "name" | "linkName">> & { name: string; linkName?: string; content?: string };

async function* archive(entries: readonly Entry[], end: Buffer = TAR_END): AsyncGenerator<Uint8Array> {
  for (const { name, linkName = "", content = "", ...header } of entries) {
    const sizeBytes = Buffer.byteLength(content);
    const names = { name: Buffer.from(name), linkName: Buffer.from(linkName) };
    yield writeHeader({ type: "file", mode: 0o644, modifiedSeconds: 0, sizeBytes, ...header, ...names });
    // A byte at a time: the reader must not depend on how the stream is cut.
    for (const byte of Buffer.from(content)) yield Uint8Array.of(byte);
    yield Buffer.alloc(paddingBytes(sizeBytes));
  }
  yield end;
}

describe("an archive that a sandbox made", () => {
  for (const [what, entries] of [
    ["a name that climbs", [{ name: "../evil", content: "x" }]],
    ["a name that climbs from within", [{ name: "a/../../evil", content: "x" }]],
    ["an absolute name", [{ name: "/tmp/evil", content: "x" }]],
    [
      "a file through a link",
      [
        { name: "l", type: "symlink", linkName: ".." },
        { name: "l/evil", content: "x" },
      ],
    ],
    [
      "a directory through a link",
      [
        { name: "l", type: "symlink", linkName: ".." },
        { name: "l/evil", type: "directory" },
      ],
    ],
    ["a hard link to the outside", [{ name: "evil", type: "hard-link", linkName: "../secret" }]],
    [
      "a hard link through a link",
      [
        { name: "l", type: "symlink", linkName: ".." },
        { name: "evil", type: "hard-link", linkName: "l/secret" },
      ],
    ],
  ] as const) {
    it(`cannot leave the directory by ${what}`, async () => {
      await using folder = await testFolder();
      await writeFile(folder.at("secret"), "secret");
      const extraction = new Extraction(folder.at("root"), new CopyReport());
      await assert.rejects(extraction.extract(readTar(archive(entries))), { name: "CliError" });
      assert.deepEqual(
        (await folder.names()).toSorted().filter((name) => name !== "root"),
        ["secret"],
      );
      if ((await folder.names()).includes("root")) assert.ok(!(await readdir(folder.at("root"))).includes("evil"));
    });
  }

  it("replaces a link that is there instead of writing through it", async () => {
    await using folder = await testFolder();
    await writeFile(folder.at("secret"), "secret");
    const entries = [
      { name: "l", type: "symlink", linkName: "../secret" },
      { name: "l", content: "mine" },
    ] as const;
    await new Extraction(folder.at("root"), new CopyReport()).extract(readTar(archive(entries)));
    assert.equal(await readFile(folder.at("secret"), "utf8"), "secret");
    assert.equal(await readFile(folder.at("root/l"), "utf8"), "mine");
  });

  it("is refused when it is damaged or cut off", async () => {
    const collect = async (stream: AsyncIterable<Uint8Array>): Promise<void> => {
      for await (const entry of readTar(stream)) void entry;
    };
    const text = [{ name: "a", content: "x".repeat(1_000) }];
    await assert.rejects(collect(archive(text, Buffer.alloc(0))), /ended early/);
    await assert.rejects(collect(archive(text, Buffer.alloc(BLOCK_BYTES, 1))), /damaged/);
  });
});
