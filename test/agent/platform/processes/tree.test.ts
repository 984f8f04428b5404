import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe, it, test } from "node:test";
import { setImmediate as yieldToEventLoop, setTimeout as delay } from "node:timers/promises";
import { KILL_WAIT_MS } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { Cgroups } from "../../../../src/agent/platform/index.ts";
import { ContainedTree } from "../../../../src/agent/platform/processes/cgroup.ts";
import { ProcessReadings, SharedReading } from "../../../../src/agent/platform/processes/process-readings.ts";
import { membersOf, ProcessTable, rowsOf } from "../../../../src/agent/platform/processes/process-table.ts";
import { walkedSession, walkedTree } from "../../../../src/agent/platform/processes/walked-processes.ts";
import { processesWith } from "../../../fixtures/proc.ts";
import { program } from "../../../fixtures/programs/index.ts";
import { addon, launch, request, shell } from "../../../fixtures/spawning.ts";

const RUNNING = 0x52;
const ZOMBIE = 0x5a;
const AGENT = 50;
const SIGCONT = 18;
/** An id above any that a process can have. */
const GONE = 2 ** 30;

/** Ids of the members among rows of pid, parent, group, session, state; the agent is 50, in group and session 50. */
function members(leader: number, ...rows: (readonly number[])[]): number[] | undefined {
  const table = [[1, 0, 1, 1, RUNNING], [AGENT, 1, 50, 50, RUNNING], ...rows].flatMap((row) => [...row, 0]);
  return membersOf(new ProcessTable(rowsOf(Int32Array.from(table))), leader, AGENT)?.map((row) => row.pid);
}

for (const [title, expected, ...rows] of [
  [
    "descendants in other sessions belong to the tree, in any listing order",
    [60, 61, 100],
    [60, 61, 60, 60, RUNNING],
    [61, 100, 100, 100, RUNNING],
    [100, AGENT, 100, 100, RUNNING],
    [70, AGENT, 70, 70, RUNNING],
  ],
  [
    "an orphaned process belongs to the tree by session or group",
    [101, 102],
    [100, AGENT, 100, 100, ZOMBIE],
    [101, 1, 101, 100, RUNNING],
    [102, 1, 100, 50, RUNNING],
  ],
  [
    "processes in a session that a member started belong to the tree",
    [100, 101, 102],
    [100, AGENT, 100, 100, RUNNING],
    [101, 100, 90, 90, RUNNING],
    [102, 1, 95, 90, RUNNING],
  ],
  [
    "the agent's own session and group confer no membership",
    [100, 101],
    [100, AGENT, 100, 50, RUNNING],
    [101, 100, 50, 50, RUNNING],
    [102, AGENT, 50, 50, RUNNING],
    [103, 1, 103, 50, RUNNING],
  ],
] as const)
  test(title, () =>
    assert.deepEqual(
      members(100, ...rows)?.toSorted((one, other) => one - other),
      expected,
    ),
  );

test("membersOf rejects a process table that lacks the agent itself", () => {
  assert.equal(membersOf(new ProcessTable([]), 100, AGENT), undefined);
});

test("the leader of a process tree is signalled before its children", async () => {
  const rows = [
    [process.pid, 1, 50, 50, RUNNING],
    [100, 200, 200, 200, RUNNING],
    [200, process.pid, 200, 200, RUNNING],
  ];
  const signalled: number[][] = [];
  const calls = {
    processSessions: () => Int32Array.from(rows.flatMap(([pid = 0, , , session = 0]) => [pid, session])),
    processRows: () => Int32Array.from(rows.flatMap((row) => [...row, 0])),
    signalProcess: (pid: number, _: number, signal: number) => {
      signalled.push([pid, signal]);
      return 0;
    },
  };
  const recording: Addon = Object.assign(Object.create(addon) as Addon, calls);
  await walkedTree(recording, 200, { readings: new ProcessReadings(recording) }).signal(15);
  assert.deepEqual(
    signalled,
    [15, SIGCONT].flatMap((signal) => [200, 100].map((pid) => [pid, signal])),
  );
});

test("killWithin kills a fork loop to its last process", async () => {
  const path = program("fork_loop");
  await using running = await launch(request([path]));
  await running.stdout.until(/ready/);
  assert.ok((await processesWith(path)).length > 300);
  await running.child.tree.killWithin(KILL_WAIT_MS);
  assert.deepEqual(await processesWith(path), []);
});

test("killWithin kills a fork loop whose processes end before a scan completes", async () => {
  await using running = await launch(request([program("fork_loop")]));
  await running.stdout.until(/ready/);
  const slow = (milliseconds: number): void => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
  };
  const calls = {
    processSessions: () => {
      const rows = addon.processSessions();
      // The loop's processes live for 10 ms: as in a busy guest, all have ended before they can be stopped.
      slow(50);
      return rows;
    },
  };
  const slowAddon: Addon = Object.assign(Object.create(addon) as Addon, calls);
  const { pid } = running.child;
  const tree = walkedTree(slowAddon, pid, { readings: new ProcessReadings(slowAddon) });
  assert.equal(await tree.killWithin(KILL_WAIT_MS), true);
  // Every process of the loop has the pipe.
  assert.equal(await running.child.stdout?.drain(), true);
});

test("emptyWithin returns false for a fork loop that outruns scans of /proc", async () => {
  const leader = 2 ** 25;
  for (const walked of [walkedSession, walkedTree]) {
    // Each listing has a new process of the session, which has ended before its row is read.
    for (const session of [leader, -1]) {
      let pid = leader;
      const calls = {
        peekEnd: () => 1,
        processSessions: () => Int32Array.of(process.pid, 1, (pid += 1), session),
        processRows: (pids: Int32Array) =>
          Int32Array.from(pids.includes(process.pid) ? [process.pid, 1, process.pid, 1, RUNNING, 0] : []),
      };
      const looping: Addon = Object.assign(Object.create(addon) as Addon, calls);
      const set = walked(looping, leader, { readings: new ProcessReadings(looping) });
      assert.equal(await set.emptyWithin(0), false, `${walked.name} with session ${session}`);
      calls.processSessions = () => Int32Array.of(process.pid, 1);
      Object.assign(looping, calls);
      assert.equal(await set.emptyWithin(0), true, walked.name);
    }
  }
});

test("killing an ended process tree does not affect the next command's cgroup", async (t) => {
  const cgroups = Cgroups.open(addon);
  const ended = cgroups?.create();
  if (cgroups === undefined || ended === undefined) {
    t.skip("needs cgroups");
    return;
  }
  const { fd } = ended;
  const tree = new ContainedTree(addon, ended, GONE, { readings: new ProcessReadings(addon) });
  tree.release();
  const next = cgroups.create();
  assert.equal(next?.fd, fd, "the next command's cgroup has the number of the ended one's");
  await using living = await launch(request(["/bin/sleep", "1005"]));
  writeFileSync(`/proc/self/fd/${fd}/cgroup.procs`, String(living.child.pid));
  await tree.signal(9);
  assert.equal(await tree.emptyWithin(0), true);
  assert.equal(await tree.killWithin(0), true);
  assert.equal(addon.peekEnd(living.child.pid), 0);
  await living.child.tree.killWithin(KILL_WAIT_MS);
  next?.release();
  cgroups.close();
});

const SIGHUP = 1;
const EMFILE = 24;
const LISTS = 4;
/** More than a tick of the event loop may read. */
const MANY = 1_000;

/** The real calls, counted. */
class Counted {
  lists = 0;
  readonly rows: number[] = [];
  readonly addon: Addon = Object.assign(Object.create(addon) as Addon, {
    processSessions: () => {
      this.lists += 1;
      return addon.processSessions();
    },
    processRows: (pids: Int32Array) => {
      this.rows.push(pids.length);
      return addon.processRows(pids);
    },
  });
  readonly sources = { readings: new ProcessReadings(this.addon) };
}

describe("a reading of /proc", () => {
  it("one scan of /proc serves 250 concurrent requests", async () => {
    await using running = await launch(shell("echo up; exec sleep 1006"));
    await running.stdout.until(/up/);
    const { pid } = running.child;
    const counted = new Counted();
    for (const walked of [walkedSession, walkedTree]) {
      counted.lists = 0;
      const sets = Array.from({ length: 250 }, () => walked(counted.addon, pid, counted.sources));
      await Promise.all(sets.map((set) => set.signal(0)));
      // A table lists again what is born meanwhile.
      assert.ok(counted.lists <= LISTS, `${walked.name}: ${counted.lists}`);
    }
  });

  it("emptyWithin does not read /proc again while a known process is alive", async () => {
    await using running = await launch(shell("trap '' HUP; echo up; while :; do sleep 0.01; done"));
    await running.stdout.until(/up/);
    const { pid } = running.child;
    for (const walked of [walkedSession, walkedTree]) {
      const counted = new Counted();
      const set = walked(counted.addon, pid, counted.sources);
      await set.signal(SIGHUP);
      const { lists } = counted;
      assert.equal(await set.emptyWithin(100), false);
      assert.equal(counted.lists, lists, walked.name);
    }
    assert.equal(await running.child.session.killWithin(KILL_WAIT_MS), true);
  });

  it("an empty session is recognized by its cgroup, without reading /proc", async () => {
    for (const isInside of [true, false]) {
      await using running = await launch(shell("echo up; exec sleep 1008"));
      await running.stdout.until(/up/);
      const { pid, ended } = running.child;
      const counted = new Counted();
      const cgroup = { holds: () => isInside, populated: () => addon.peekEnd(pid) === 0 };
      const set = walkedSession(counted.addon, pid, counted.sources, cgroup);
      await set.signal(SIGHUP);
      await ended;
      const { lists } = counted;
      assert.equal(await set.emptyWithin(KILL_WAIT_MS), true);
      assert.equal(counted.lists === lists, isInside);
    }
  });

  it("a scan of many processes is split over several event loop turns", async () => {
    const counted = new Counted();
    const pids = Int32Array.from({ length: MANY }, (_, index) => (index === 0 ? process.pid : 2 ** 25 + index));
    const crowded: Addon = Object.assign(Object.create(counted.addon) as Addon, {
      processSessions: () => Int32Array.from([...pids].flatMap((pid) => [pid, pid])),
    });
    let turns = 0;
    const count = (): void => void ((turns += 1), (counting = setImmediate(count)));
    let counting = setImmediate(count);
    await new ProcessReadings(crowded).table.next(true);
    clearImmediate(counting);
    assert.ok(Math.max(...counted.rows) <= 256, String(counted.rows));
    assert.ok(turns >= counted.rows.length, `${turns} turns`);
  });

  it("a /proc scan includes children of a process that ends during the scan", async () => {
    const [ended, born] = [2 ** 25, 2 ** 25 + 1];
    const lists = [[ended], [born], [born]];
    const racing = {
      processSessions: () => Int32Array.from([process.pid, ...(lists.shift() ?? [])].flatMap((pid) => [pid, pid])),
      processRows: (pids: Int32Array) =>
        Int32Array.from([...pids].flatMap((pid) => (pid === ended ? [] : [pid, 1, pid, pid, 0x52, 0]))),
    };
    const table = await new ProcessReadings(racing).table.next();
    assert.ok(table instanceof ProcessTable);
    assert.deepEqual(
      [process.pid, ended, born].map((pid) => table.get(pid)?.pid),
      [process.pid, undefined, born],
    );
  });

  it("scans of /proc keep a minimum interval unless a request is urgent", async () => {
    let readings = 0;
    const shared = new SharedReading(async () => {
      readings += 1;
      await delay(200);
    });
    await shared.next();
    const waits = [shared.next()];
    for (let turn = 0; turn < 3; turn++) await yieldToEventLoop();
    assert.equal(readings, 1);
    waits.push(shared.next(true));
    await Promise.all(waits);
    assert.equal(readings, 2);
    await shared.next();
    assert.equal(readings, 3);
  });

  it("if a /proc scan fails with EMFILE, running processes count as alive", async () => {
    await using running = await launch(shell("echo up; exec sleep 1007"));
    await running.stdout.until(/up/);
    let isShort = false;
    const short: Addon = Object.assign(Object.create(addon) as Addon, {
      processRows: (pids: Int32Array) => (isShort ? -EMFILE : addon.processRows(pids)),
    });
    const set = walkedTree(short, running.child.pid, { readings: new ProcessReadings(short) });
    await set.signal(0);
    isShort = true;
    assert.equal(await set.emptyWithin(10), false);
    assert.equal(addon.peekEnd(running.child.pid), 0);
  });
});
