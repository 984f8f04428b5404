import assert from "node:assert/strict";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { SessionMemory } from "../../../../src/agent/platform/index.ts";
import { CgroupDirectory } from "../../../../src/agent/platform/processes/cgroup-directory.ts";
import { addon } from "../../../fixtures/spawning.ts";

const MIB = 2 ** 20;

/** A directory as a cgroup's, whose memory.max a test reads. */
function cgroup(t: TestContext, hasLimit = true) {
  const directory = mkdtempSync(join(tmpdir(), "guest-agent-"));
  const file = join(directory, "memory.max");
  writeFileSync(join(directory, "memory.current"), String(30 * MIB));
  if (hasLimit) writeFileSync(file, "");
  const fd = openSync(directory, "r");
  t.after(() => {
    closeSync(fd);
    rmSync(directory, { recursive: true });
  });
  const cut = (): void => writeFileSync(file, "");
  return { fd, limit: () => Number.parseInt(readFileSync(file, "utf8"), 10), cut };
}

test("the session's memory limit changes when the guest's memory grows or shrinks", (t) => {
  const { fd, limit, cut } = cgroup(t);
  let total = 256 * MIB;
  const memory = new SessionMemory(
    new CgroupDirectory(addon, fd),
    { freemem: () => 180 * MIB, totalmem: () => total },
    0,
  );
  assert.equal(limit(), 164 * MIB);
  for (const [now, expected] of [
    [1024, 932],
    [128, 36],
  ] as const) {
    total = now * MIB;
    cut();
    memory.follow();
    assert.equal(limit(), expected * MIB);
  }
  cut();
  total = 120 * MIB;
  memory.follow();
  assert.ok(Number.isNaN(limit()), "30 MiB are in use: the session keeps what it has");
});

test("the session gets no memory limit in tiny guests or without the memory controller", (t) => {
  const { fd, limit } = cgroup(t);
  new SessionMemory(new CgroupDirectory(addon, fd), { freemem: () => 31 * MIB, totalmem: () => 80 * MIB }, 0).follow();
  assert.ok(Number.isNaN(limit()));
  const bare = cgroup(t, false);
  new SessionMemory(
    new CgroupDirectory(addon, bare.fd),
    { freemem: () => 180 * MIB, totalmem: () => 256 * MIB },
    0,
  ).follow();
});
