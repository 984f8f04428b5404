import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open, readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { FileWriter } from "../../../../src/agent/files/transfer/file-writer.ts";
import { testFolder } from "../../../fixtures/files.ts";

for (const sparse of [false, true]) {
  describe(`a file that is written ${sparse ? "with holes" : "as it comes"}`, () => {
    it("has all pieces, empty ones too, and their sum", async () => {
      await using folder = await testFolder();
      await using file = await open(folder.at("file"), "w");
      const writer = new FileWriter(file.fd, { sparse, sha256: true });
      for (const pieces of [["so", "", "me "], [], ["", "bytes"], [""]])
        await writer.write(pieces.map((text) => Buffer.from(text)));
      assert.equal(await readFile(folder.at("file"), "utf8"), "some bytes");
      assert.deepEqual(writer.sha256(), createHash("sha256").update("some bytes").digest());
    });

    it("says why it cannot be written", async () => {
      await using folder = await testFolder();
      await using file = await open(folder.at("file"), constants.O_RDONLY | constants.O_CREAT);
      const writer = new FileWriter(file.fd, { sparse, sha256: false });
      await assert.rejects(writer.write([Buffer.from("text")]), { code: "EBADF" });
      assert.equal(writer.sha256(), undefined);
    });
  });
}
