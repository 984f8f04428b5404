import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { describe, test } from "node:test";
import { GuestError } from "../../../src/node/client/index.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { testFolder } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";

const folder = forAllTests(await testFolder()).path;
const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

describe("files of a GuestClient", () => {
  const content = randomBytes(3 * 1024 * 1024 + 7);

  test("are read whole, or a range of them", async () => {
    const path = join(folder, "read");
    await writeFile(path, content);
    assert.ok((await buffer(client.readFile(path))).equals(content));
    const range = await buffer(client.readFile(path, { offset: 1_000_000, length: 5 }));
    assert.deepEqual(range, content.subarray(1_000_000, 1_000_005));
    await writeFile(join(folder, "empty"), "");
    assert.equal((await buffer(client.readFile(join(folder, "empty")))).length, 0);
  });

  test("tell the attributes of what was opened, even when something else has its name by then", async () => {
    const path = join(folder, "attributes");
    await writeFile(path, content);
    const opened = client.readFile(path);
    const chunks = opened[Symbol.asyncIterator]();
    await chunks.next();
    await rm(path);
    await writeFile(path, "another");
    const attributes = await opened.attributes;
    assert.deepEqual([attributes?.type, attributes?.size], [FileType.REGULAR, content.length]);
    await chunks.return?.(undefined);
    const absent = client.readFile(join(folder, "absent"));
    await assert.rejects(buffer(absent), GuestError);
    await assert.rejects(absent.attributes, GuestError);
  });

  test("tell of no attributes once they were given up unread", async () => {
    const unread = client.readFile(join(folder, "unread"));
    unread.readable().destroy();
    const { status } = await failureOf(unread.attributes);
    assert.equal(status, "CANCELLED");
  });

  test("are written from bytes and from streams, with their attributes", async () => {
    const sha256 = createHash("sha256").update(content).digest();
    const whole = await client.writeFile(join(folder, "whole"), content, { mode: 0o640, sha256 });
    assert.equal(whole.bytesWritten, content.length);
    assert.deepEqual(Buffer.from(whole.sha256), sha256);
    assert.ok((await readFile(join(folder, "whole"))).equals(content));
    assert.equal((await stat(join(folder, "whole"))).mode & 0o777, 0o640);

    async function* pieces(): AsyncGenerator<Uint8Array> {
      for (let start = 0; start < content.length; start += 100_000) yield content.subarray(start, start + 100_000);
    }
    await client.writeFile(join(folder, "new", "streamed"), pieces(), { parents: true });
    assert.ok((await readFile(join(folder, "new", "streamed"))).equals(content));
  });

  test("are refused with status and reason, before the whole content has been sent", async () => {
    const closed = Promise.withResolvers<void>();
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield content;
      } finally {
        closed.resolve();
      }
    }
    const refused = client.writeFile(join(folder, "no", "such", "folder"), endless());
    await assert.rejects(refused, (error) => error instanceof GuestError && error.status === "NOT_FOUND");
    await closed.promise;
    await assert.rejects(buffer(client.readFile(join(folder, "absent"))), (error) => {
      assert.ok(error instanceof GuestError);
      return error.status === "NOT_FOUND" && error.reason === "PATH_NOT_FOUND";
    });
    assert.ok(!(await readdir(folder)).includes("no"));
  });
});
