import assert from "node:assert/strict";
import { linkSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, it } from "node:test";
import { startAgent } from "../../../fixtures/agent.ts";
import { TreeCalls } from "../../../fixtures/file-tree.ts";
import { testMount } from "../../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const FILES = 1_000_000;
/** Growth that the agent is allowed; all entries at once would be several times as much. */
const MORE_BYTES = 96 * 2 ** 20;

/** Anonymous memory of a process. */
function ownBytes(pid: number): number {
  const [, kib = ""] = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) * 1_024;
}

describe("a folder of a million files", NEEDS_ROOT, () => {
  it("is told from its first batch on, and removed, in bounded memory", async (t) => {
    await using mount = await testMount("tmpfs", () => "size=64m,nr_inodes=1100000,mode=0755");
    const top = mount.at("top");
    mkdirSync(top);
    writeFileSync(`${top}/0`, "");
    // Hard links: a file for each name would take a GiB of this machine.
    for (let index = 1; index < FILES; index++) linkSync(`${top}/0`, `${top}/${index}`);
    await using agent = await startAgent();
    using calls = new TreeCalls(agent);
    await calls.names({ path: mount.path });
    const before = ownBytes(agent.pid);
    const seen = new Uint8Array(FILES);
    let peak = 0;
    let largest = 0;
    let told = 0;
    for await (const { entries } of calls.batches({ path: top })) {
      for (const { name } of entries) seen[Number(Buffer.from(name).toString())] = 1;
      told += entries.length;
      largest = Math.max(largest, entries.length);
      if (told % 64 === 0) peak = Math.max(peak, ownBytes(agent.pid));
    }
    t.diagnostic(`${((peak - before) / 2 ** 20).toFixed(0)} MiB more, batches of ${largest} entries at most`);
    assert.deepEqual([told, seen.every((value) => value === 1)], [FILES, true]);
    assert.ok(largest <= 256, "a batch is sent as soon as it is there");
    assert.ok(peak - before < MORE_BYTES, `${peak - before} bytes`);
    const { removed, left } = await calls.remove({ path: top, recursive: true });
    assert.deepEqual([removed, left], [FILES + 1, 0]);
    assert.ok(ownBytes(agent.pid) - before < MORE_BYTES);
  });
});
