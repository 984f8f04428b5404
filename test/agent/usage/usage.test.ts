import assert from "node:assert/strict";
import { readFileSync, statfsSync } from "node:fs";
import { describe, it } from "node:test";
import { type GuestClient, type GuestUsage } from "../../../src/node/client/index.ts";
import { Usage, type UsageReport } from "../../../src/agent/usage/index.ts";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { inMountNamespace, lacksCgroups, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";

const WATCHERS = 8;
const ENTROPY = Buffer.alloc(32, 1);
const agent = forAllTests(await startAgent());

/** Columns of the line of a file of /proc that matches. */
function columns(file: string, line: RegExp): number[] {
  return (line.exec(readFileSync(`/proc/${file}`, "utf8"))?.[1] ?? "").trim().split(/ +/).map(Number);
}

/** Counters of this machine, by files and columns of proc(5). */
function countersHere(): number[] {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = columns("stat", /^cpu +(.*)/);
  const interfaces = readFileSync("/proc/net/dev", "utf8").split("\n").slice(2, -1);
  // Read once: the loopback's counters may rise between two readings.
  const others = interfaces.map((line) => line.split(":")).filter(([name = ""]) => name.trim() !== "lo");
  const bytes = others.map(([, values = ""]) => values.trim().split(/ +/).map(Number));
  const sum = (column: number): number => bytes.reduce((total, of) => total + (of[column] ?? 0), 0);
  return [(user + nice + system + irq + softirq) * 10_000, steal * 10_000, sum(0), sum(8)];
}

function countersOf({ cpu, networks }: GuestUsage): number[] {
  const sum = (of: "receivedBytes" | "sentBytes"): number => networks.reduce((total, one) => total + one[of], 0);
  return [cpu?.busyUs ?? -1, cpu?.stealUs ?? -1, sum("receivedBytes"), sum("sentBytes")];
}

/** In a plain chroot the root directory is not a mount point, so no mount has its path (proc_pid_mountinfo(5)). */
const isRootMounted = /^(?:\S+ ){4}\/ /m.test(readFileSync("/proc/self/mountinfo", "utf8"));
const NEEDS_MOUNTED_ROOT = { skip: isRootMounted ? false : "needs a root directory that is a mount point" } as const;

const NEEDS_FUSE_AND_ROOT = NEEDS_FUSE.skip === false ? NEEDS_MOUNTED_ROOT : NEEDS_FUSE;

/** A report in which "/" has answered: it has a second for that, and the threads of a busy machine need more. */
async function answered(client: GuestClient): Promise<GuestUsage> {
  for (;;) {
    const usage = await client.usage();
    if (usage.fileSystems.some(({ path, problem }) => path === "/" && problem === "")) return usage;
  }
}

describe("the usage of a guest", () => {
  it("GetUsage returns the kernel's counters", NEEDS_MOUNTED_ROOT, async () => {
    using client = clientOf(agent);
    const before = countersHere();
    const usage = await answered(client);
    const after = countersHere();
    for (const [index, value] of countersOf(usage).entries()) {
      const [least = 0, most = 0] = [before[index], after[index]];
      assert.ok(value >= least && value <= most, JSON.stringify([index, least, value, most]));
    }
    assert.equal(usage.memory?.totalBytes, (columns("meminfo", /^MemTotal: +(\d+)/m)[0] ?? 0) * 1024);
    assert.equal(usage.cpu?.count, readFileSync("/proc/stat", "utf8").match(/^cpu\d/gm)?.length);
    const { bsize, blocks } = statfsSync("/");
    const [root] = usage.fileSystems;
    assert.deepEqual([root?.path, root?.problem, root?.totalBytes], ["/", "", bsize * blocks]);
    assert.ok((root?.availableBytes ?? 0) > 0 && (usage.processes ?? 0) > 1);
    const paths = usage.fileSystems.map(({ path }) => path);
    assert.deepEqual(paths, [...new Set(paths)]);
    assert.ok(!usage.fileSystems.some(({ type }) => ["proc", "sysfs", "cgroup2", "devpts"].includes(type)));
  });

  it("GetUsage without /proc omits unknown values instead of returning 0", NEEDS_NAMESPACES, async () => {
    await using bare = await startAgent({ through: inMountNamespace("mount -t tmpfs none /proc") });
    using client = clientOf(bare);
    const told = await client.usage();
    const { guestTime, guestTimeNanos: _nanos, uptimeUs, sessionOomKills: _kills, ...rest } = told;
    assert.ok(guestTime !== undefined && uptimeUs > 0);
    const none = { fileSystems: [], fileSystemsTruncated: false, networks: [], networksTruncated: false };
    assert.deepEqual(rest, { generation: 0, ...none });
  });

  it("GetUsage names a hung file system and still reports the others", NEEDS_FUSE_AND_ROOT, async () => {
    await using directory = await testDirectory();
    await using mount = await fuseMount("hanging_mount", directory.at("hung"));
    await using own = await startAgent();
    using client = clientOf(own);
    const hung = async (): Promise<unknown> =>
      (await client.usage()).fileSystems.filter(({ path }) => path === directory.at("hung"));
    for (let time = 0; time < 3; time++)
      assert.deepEqual(await hung(), [{ path: directory.at("hung"), type: "fuse", problem: "NO_ANSWER" }]);
    const { fileSystems } = await answered(client);
    assert.ok(fileSystems.some(({ path, totalBytes }) => path === "/" && (totalBytes ?? 0) > 0));
    await mount[Symbol.asyncDispose]();
    assert.deepEqual(await hung(), []);
  });

  it("watchUsage accepts eight watchers and intervals of 1 s to a day", async () => {
    using client = clientOf(agent);
    for (const intervalMs of [1, 999, 86_400_001, 2 ** 32 - 1]) {
      const refused = await failureOf(client.watchUsage({ intervalMs }).next());
      assert.deepEqual([refused.code, refused.metadata["field"]], ["INVALID_FIELD", "interval_ms"], `${intervalMs}`);
    }
    const watches = Array.from({ length: WATCHERS }, () => client.watchUsage({ intervalMs: 1_000 }));
    const first = await Promise.all(watches.map(async (watch) => (await watch.next()).value?.uptimeUs ?? 0));
    const refused = { status: "RESOURCE_EXHAUSTED", reason: "TOO_MANY_WATCHERS", message: /call GetUsage/ };
    await assert.rejects(client.watchUsage().next(), refused);
    const [left, ...others] = watches;
    await left?.return?.();
    for (let isIn = false; !isIn;) {
      const again = client.watchUsage();
      isIn = await again.next().then(
        () => true,
        () => false,
      );
      await again.return?.();
    }
    const second = await Promise.all(others.map(async (watch) => (await watch.next()).value?.uptimeUs ?? 0));
    for (const [index, uptimeUs] of second.entries()) assert.ok(uptimeUs - (first[index + 1] ?? 0) >= 990_000);
    for (const watch of others) await watch.return?.();
  });

  it("GetUsage works while frozen, counts restores, and is not user activity", async (t) => {
    await using own = await startAgent({ process: { args: ["sleep", "1000"] } });
    if (lacksCgroups(t, own)) return;
    using client = clientOf(own);
    const before = await client.health();
    await client.snapshots.prepare({ freezeMs: 600_000 });
    const watch = client.watchUsage();
    assert.equal((await watch.next()).value?.generation, 0);
    assert.equal((await client.usage()).generation, 0);
    const { lastUserActivity, lastUserActivityNanos } = before;
    assert.partialDeepStrictEqual(await client.health(), { frozen: true, lastUserActivity, lastUserActivityNanos });
    using other = clientOf(own);
    await other.snapshots.duties({ entropy: ENTROPY });
    assert.equal((await failureOf(watch.next())).status, "UNAVAILABLE");
    assert.equal((await other.usage()).generation, 1);
    const last = other.watchUsage();
    await last.next();
    const [ended, refused] = await Promise.all([own.stop(), failureOf(last.next())]);
    assert.deepEqual([ended.code, refused.reason], [143, "SHUTTING_DOWN"]);
  });
});

describe("readings of the usage", () => {
  const report = { fileSystems: { items: [], truncated: false } } as unknown as UsageReport;
  const clock = { wallNs: () => 1n, monotonicMs: () => 1 };
  const fileSystem = { space: () => assert.fail("there are none") };

  it("concurrent GetUsage calls share one reading", async () => {
    const begun: ((value: UsageReport) => void)[] = [];
    const usage = new Usage({
      readCounters: () => new Promise((resolve) => begun.push(resolve)),
      fileSystem,
      clock,
      timers: new ManualTimers(),
      generation: () => begun.length,
    });
    const first = usage.get();
    await Promise.resolve();
    const later = [usage.get(), usage.get(), usage.get()];
    begun[0]?.(report);
    await first;
    await new Promise(setImmediate);
    begun[1]?.(report);
    const generations = (await Promise.all([first, ...later])).map(({ generation }) => generation);
    assert.deepEqual([begun.length, ...generations], [2, 1, 2, 2, 2]);
  });

  it("the agent takes no usage readings while its only watcher is slow", async () => {
    const timers = new ManualTimers();
    let readings = 0;
    const readCounters = async (): Promise<UsageReport> => {
      readings++;
      return report;
    };
    const usage = new Usage({ readCounters, fileSystem, clock, timers, generation: () => 0 });
    let isBehind = false;
    const sent: UsageReport[] = [];
    const { signal } = new AbortController();
    const over = usage.watch(1_000, { isBehind: () => isBehind, send: (one) => sent.push(one), signal });
    for (isBehind of [false, true, true, false]) {
      await new Promise(setImmediate);
      timers.advance(1_000);
    }
    await new Promise(setImmediate);
    assert.deepEqual([readings, sent.length], [3, 3]);
    const leaving = new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "over");
    usage.shutDown(leaving);
    await assert.rejects(over, leaving);
  });
});
