import assert from "node:assert/strict";
import { lstat, mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { localTree } from "../../../src/node/guestctl/copy/local-tree.ts";
import { CopyReport, Progress } from "../../../src/node/guestctl/copy/report.ts";
import { tarEntry, tarTypeOf, uploadFile } from "../../../src/node/guestctl/copy/upload.ts";
import { BLOCK_BYTES } from "../../../src/node/tar/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testFolder } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

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

/** The client, but somebody in the sandbox acts right after a failed write. */
function swappingAfterFailure(client: GuestClient, swap: () => Promise<void>): GuestClient {
  const writeFileThen: GuestClient["writeFile"] = async (...args) => {
    try {
      return await client.writeFile(...args);
    } catch (error) {
      await swap();
      throw error;
    }
  };
  return new Proxy(client, {
    get: (target, name) => {
      if (name === "writeFile") return writeFileThen;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

describe("a file on its way into a folder of the sandbox", () => {
  it("stays in that folder: a refused write is never repeated without beneath", async () => {
    await using folder = await testFolder();
    await using agent = await startAgent();
    const client = clientOf(agent);
    try {
      await writeFile(folder.at("local"), "of the host");
      await writeFile(folder.at("outside"), "of another");
      await mkdir(folder.at("named"));
      const target = folder.at("named/file");
      // Dangling, with a slash at its end: the agent refuses the path as no file's.
      await symlink("gone/", target);
      const swapping = swappingAfterFailure(client, async () => {
        await rm(target);
        await symlink(folder.at("outside"), target);
      });
      const parts = {
        client: swapping,
        progress: new Progress(process.stderr, "", undefined),
        report: new CopyReport(),
        host: process,
        makesParents: false,
      };
      const copying = uploadFile(
        parts,
        folder.at("local"),
        await lstat(folder.at("local")),
        target,
        folder.at("named"),
      );
      await assert.rejects(copying, (error) => error instanceof GuestError && error.reason === "INVALID_FIELD");
      assert.equal(await readFile(folder.at("outside"), "utf8"), "of another");
    } finally {
      client.close();
    }
  });
});
