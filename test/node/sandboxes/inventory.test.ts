import assert from "node:assert/strict";
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertRefused, codeOf, openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const MEBIBYTE = 2 ** 20;
const LONG_AGO = "2026-01-02T03:04:05Z";
const DIGEST = `sha256:${"a".repeat(64)}`;

const substrate = forAllTests(await HttpSubstrate.start());
const daemonDirectory = join(substrate.stateDirectory, "../daemon");
const node = forAllTests(await openNode(partsOf(substrate), { daemonDirectory }));

describe("images and kernels of a node", NEEDS_NAMESPACES, () => {
  afterEach(() => {
    for (const image of substrate.images.list().slice(1)) substrate.images.remove(image);
  });

  test("images() returns each image's apparent size and its allocated bytes", async () => {
    const directory = join(daemonDirectory, `images/docker.io/library/app/${"a".repeat(64)}`);
    await mkdir(directory, { recursive: true });
    await using disk = await open(join(directory, "rootfs.erofs"), "w");
    await disk.write(Buffer.alloc(MEBIBYTE, 1), 0, MEBIBYTE, 0);
    await disk.truncate(100 * MEBIBYTE);
    const ready = { digest: DIGEST, size_bytes: 100 * MEBIBYTE };
    substrate.addImage("docker.io/library/app:1", ready);
    substrate.addImage("../../app:1", ready);
    const [, app, outside] = await node.images();
    assert.deepEqual([app?.apparentBytes, app?.problem], [100 * MEBIBYTE, undefined]);
    const allocated = app?.allocatedBytes ?? 0;
    // A file system may compress, and round up.
    assert.ok(allocated > 0 && allocated < 50 * MEBIBYTE, `${allocated}`);
    assert.equal(outside?.allocatedBytes, undefined, "never outside of the daemon's images");
    using elsewhere = await openNode(partsOf(substrate), { readOnly: true });
    assert.equal((await elsewhere.images())[1]?.allocatedBytes, undefined, "the daemon's directory is not known");
    const created = codeOf(elsewhere.create({ name: "unwritten", image: IMAGE }));
    assert.equal(await created, "JOURNAL_FAILED", "what was opened to read writes nothing");
  });

  for (const [what, image, problem, nextStep] of [
    [
      "failed",
      { digest: "", status: "failed" },
      /the API does not report the reason/,
      /log.*mkfs\.erofs.*add it again/,
    ],
    ["failed with a reason", { digest: "", status: "failed", error: "no space" }, /^no space$/, /add it again/],
    [
      "is queued",
      { digest: "", status: "pending", queue_position: 2, created_at: LONG_AGO },
      /is still converting the image/,
      /wait/,
    ],
    [
      "is being pulled",
      { digest: "", status: "pulling", created_at: "2999-01-01T00:00:00Z" },
      /is still converting the image/,
      /wait/,
    ],
    [
      "stays pending",
      { digest: "", status: "pending", created_at: LONG_AGO },
      /since 2026-01-02T03:04:05\.000Z/,
      /if this is the name of a build, use builds\/ID@DIGEST/,
    ],
    [
      "has a build's name, but not its digest",
      { digest: DIGEST, status: "pending", created_at: LONG_AGO },
      /builds\/x1:latest, which has the same content, is ready/,
      new RegExp(`^use localhost:4973/builds/x1@${DIGEST}$`),
    ],
  ] as const) {
    test(`images() and create say what to do about an image that ${what}`, async () => {
      substrate.addImage("localhost:4973/builds/x1:latest", { digest: DIGEST });
      substrate.addImage("wanted:1", image);
      const found = (await node.images()).find(({ name }) => name.endsWith("wanted:1"));
      assert.match(found?.problem ?? "", problem);
      assert.match(found?.nextStep ?? "", nextStep);
      const failure = await assertRefused(node.create({ image: "wanted:1" }), "IMAGE_NOT_READY");
      assert.ok(
        failure.message.startsWith(`the image docker.io/library/wanted:1 is ${image.status}, not ready: `),
        failure.message,
      );
      assert.match(failure.nextStep ?? "", nextStep);
    });
  }

  test("`create` fails early with AGENT_UNREACHABLE if the kernel cannot start the init", async () => {
    // As on arm64 with release 0.17.0 (deviation 4). Linux, init/main.c: run_init_process() prints the errno, ENOEXEC.
    for (const words of [
      "Kernel panic - not syncing: Requested init /init failed (error -8).",
      "---[ end Kernel panic - not syncing: No working init found.  Try passing init= option to kernel. ]---",
    ]) {
      substrate.machines.complaint = `[    1.234567] ${words}`;
      const { message, consoleTail } = await assertRefused(
        node.create({ image: IMAGE, name: "arm" }),
        "AGENT_UNREACHABLE",
        /(?:)/,
        /another processor architecture.*0\.17\.0.*initrd/,
      );
      assert.ok(message.startsWith("no instance can boot on this host: "), message);
      assert.ok(message.includes(words.slice(0, 30)), message);
      assert.deepEqual(consoleTail, [`[    1.234567] ${words}`]);
    }
    const names = (await node.list()).map(({ name }) => name);
    assert.deepEqual(names, []);
  });
});
