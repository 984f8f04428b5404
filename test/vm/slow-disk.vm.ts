import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import type { GuestClient } from "../../src/node/client/index.ts";
import { Stage } from "./cases/stage.ts";

/** By mount point: how long each write and flush takes. An fsync of a new file waits for four or five in a row. */
const DISKS = { "/slow": 5, "/very-slow": 2_000 } as const;
/** The kernel's name of the first of them: the instance's disk and two volumes come before. */
const FIRST_DISK = "d".codePointAt(0) ?? 0;
/** On the slower disk those that are given up have their turn all the same: eight in 8 s. */
const WRITERS = 64;
/** Fsyncs of a file system that the agent has running (docs/agent/files.md). */
const AT_ONCE = 8;
/** More than one after another, while the eight first fsyncs last. */
const CALLS = 3;
const CONTENT = randomBytes(4096);

const pathOf = (directory: string, n: number | string): string => `${directory}/file-${n}`;

describe("disks whose fsync takes 20 ms and 8 s, under 64 writers", () => {
  const stage = new Stage({ slowDisks: Object.values(DISKS) });
  after(() => stage.end());

  async function guestRun(client: GuestClient, script: string): Promise<string> {
    const { exitCode: code, stdout, stderr } = await client.run(["/bin/busybox", "sh", "-c", script]);
    assert.deepEqual([code, stderr], [0, ""], script);
    return stdout;
  }

  test("the slow disks are mounted in the guest", async () => {
    await stage.boot();
    using client = stage.client();
    for (const [n, directory] of Object.keys(DISKS).entries()) {
      const device = `/dev/vd${String.fromCodePoint(FIRST_DISK + n)}`;
      await guestRun(client, `busybox mkdir ${directory}; busybox mount -t ext4 ${device} ${directory}`);
    }
  });

  test("64 concurrent writes to a disk with 20 ms fsyncs store every byte", async (t) => {
    using client = stage.client();
    const began = performance.now();
    const writes = Array.from({ length: WRITERS }, (_, n) => client.files.writeFile(pathOf("/slow", n), CONTENT));
    await Promise.all(writes);
    t.diagnostic(`${WRITERS} files in ${Math.round(performance.now() - began)} ms`);
    assert.equal(await guestRun(client, "busybox cat /slow/file-* | busybox wc -c"), `${WRITERS * CONTENT.length}\n`);
  });

  test("other calls return while fsyncs on a slow disk take 8 s", async (t) => {
    using client = stage.client();
    using writers = stage.client();
    const given = new AbortController();
    let written = 0;
    const writes = Array.from({ length: WRITERS }, async (_, n) => {
      await writers.files.writeFile(pathOf("/very-slow", n), CONTENT, { signal: given.signal });
      written++;
    });
    const ends = Promise.allSettled(writes);
    const waiting = "busybox cat /proc/[0-9]*/task/[0-9]*/stat 2>/dev/null | busybox grep -c '(.*) D'; :";
    while (Number(await guestRun(client, waiting)) < AT_ONCE);
    const began = performance.now();
    for (let call = 0; call < CALLS; call++) {
      await client.files.writeFile(pathOf("/tmp", call), CONTENT);
      assert.equal((await client.files.stat(pathOf("/tmp", call))).size, CONTENT.length);
      await client.files.stat("/very-slow");
      await client.health();
    }
    await guestRun(client, "busybox true");
    t.diagnostic(`${CALLS} of each in ${Math.round(performance.now() - began)} ms, ${written} written meanwhile`);
    assert.equal(written, 0, "the disk is as slow as it should be");
    given.abort();
    await ends;
  });

  test("after cancelled writes, a slow disk accepts writes and has no partial file", async () => {
    using client = stage.client();
    await client.files.writeFile(pathOf("/very-slow", "last"), CONTENT);
    const sizes = await guestRun(client, "busybox stat -c %s /very-slow/file-* | busybox sort -u");
    assert.equal(sizes, `${CONTENT.length}\n`);
    // Their writes may still be running.
    await guestRun(client, "until ! busybox ls -A /very-slow | busybox grep -q svc-guest; do busybox sleep 1; done");
    assert.ok((await client.health()).alive);
  });
});
