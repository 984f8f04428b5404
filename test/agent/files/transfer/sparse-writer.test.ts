import assert from "node:assert/strict";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { constants as system } from "node:os";
import { describe, it } from "node:test";
import { NO_SUM, type SummingWriter } from "../../../../src/agent/native/index.ts";
import { SparseWriter } from "../../../../src/agent/files/transfer/sparse-writer.ts";
import { testFolder } from "../../../fixtures/files.ts";
import { addon } from "../../../fixtures/spawning.ts";

const WRITERS: readonly (readonly [string, (fd: number) => SummingWriter])[] = [
  ["the addon's writer", (fd) => new addon.SummingWriter(fd)],
  ["the sparse one", (fd) => new SparseWriter(fd)],
];

describe("a file that cannot be written", () => {
  for (const [name, construct] of WRITERS) {
    it(`is reported as a negated errno by ${name}`, async () => {
      await using folder = await testFolder();
      await using file = await open(folder.at("file"), constants.O_RDONLY | constants.O_CREAT);
      assert.equal(await construct(file.fd).write([Buffer.from("text")], NO_SUM), -system.errno.EBADF);
    });
  }
});
