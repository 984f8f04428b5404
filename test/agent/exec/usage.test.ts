import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { lacksCgroups, NEEDS_NAMESPACES, withoutCgroups } from "../../fixtures/namespaces.ts";

const BUSY_US = 200_000;
/** Uses more CPU time than that. */
const BURN = `for (let u = {}; !(u.user + u.system > ${BUSY_US}); u = process.cpuUsage()) for (let i = 0; i < 1e6; i++);`;
const burns = [process.execPath, "-e", BURN];
const burnsInShell = `'${burns.join("' '")}'`;
const timeOf = (
  usage: { readonly cpuUserUs: number | bigint; readonly cpuSystemUs: number | bigint } | undefined,
): number => Number(usage?.cpuUserUs ?? 0) + Number(usage?.cpuSystemUs ?? 0);
const PEAK_MIB = 400;
const MIB = 2 ** 20;
const holds = [process.execPath, "-e", `Buffer.alloc(${PEAK_MIB} * ${MIB}, 1); setImmediate(() => {})`];

const agent = forAllTests(await startAgent({ hooks: { post_restore: { args: burns } } }));
const client = forAllTests(clientOf(agent));

describe("a command's resource usage", () => {
  it("a command's usage in a cgroup covers its whole process tree, including a daemon", async (t) => {
    if (lacksCgroups(t, agent)) return;
    // cat ends when the daemon does. That its process was reaped too must not matter: a machine's init may be slow.
    const daemon = `(${burnsInShell} &) | cat`;
    const { usage } = await client.run(["sh", "-c", daemon]);
    assert.equal(usage?.cpuScope, "tree");
    assert.ok(timeOf(usage) >= BUSY_US, JSON.stringify(usage));
  });

  it("without a cgroup, a command's usage covers its process and reaped children", NEEDS_NAMESPACES, async () => {
    await using bare = await startAgent({ through: withoutCgroups() });
    using its = clientOf(bare);
    const { usage } = await its.run(["sh", "-c", `${burnsInShell}; true`]);
    assert.equal(usage?.cpuScope, "process");
    assert.ok(timeOf(usage) >= BUSY_US, JSON.stringify(usage));
  });

  it("without memory.peak, usage omits a memory peak that may be the agent's", async () => {
    const { usage } = await client.run(holds);
    assert.ok((usage?.peakMemoryBytes ?? 0) >= PEAK_MIB * MIB, JSON.stringify(usage));
    const { usage: small } = await client.run(["true"]);
    if (small?.peakMemoryScope !== "tree") assert.equal(small?.peakMemoryBytes, undefined);
  });

  it("resource usage is reported for kept commands and hooks", async () => {
    const kept = client.start(burns, { keep: { name: "burns" }, forget: false });
    kept.stdout.resume();
    kept.stderr.resume();
    const { usage } = await kept.wait();
    assert.ok(timeOf(usage) >= BUSY_US);
    const [listed] = await client.commands.list();
    assert.equal(timeOf(listed?.exit?.usage), timeOf(usage));
    const { exit } = await client.commands.end("burns");
    assert.equal(timeOf(exit?.usage), timeOf(usage));
    const hook = await client.snapshots.hook("post-restore");
    assert.ok(timeOf(hook.usage) >= BUSY_US);
    assert.notEqual(hook.usage?.cpuScope, "unknown");
    assert.equal((await client.snapshots.prepare()).usage, undefined);
  });
});
