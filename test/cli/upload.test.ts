import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { localTree } from "../../src/cli/copy/local-tree.ts";
import { tarEntry, tarTypeOf } from "../../src/cli/copy/upload.ts";
import { BLOCK_BYTES } from "../../src/tar/index.ts";
import { testFolder } from "../fixtures/files.ts";

describe("the progress of an archive that goes to a sandbox", () => {
  it("counts its content alone, not what is around it", async () => {
    await using folder = await testFolder();
    for (let number = 0; number < 20; number++) await writeFile(folder.at(`${number}`), "x".repeat(number));
    let told = 0;
    let sent = 0;
    for await (const entry of localTree(folder.path)) {
      const type = tarTypeOf(entry) ?? assert.fail("a file or a folder");
      for await (const bytes of tarEntry(entry, type, (content) => (told += content))) sent += bytes.length;
    }
    assert.equal(told, 190);
    assert.ok(sent >= 40 * BLOCK_BYTES, `${sent} bytes`);
  });
});
