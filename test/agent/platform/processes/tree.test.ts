import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { KILL_WAIT_MS } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { Cgroups } from "../../../../src/agent/platform/index.ts";
import { ContainedTree } from "../../../../src/agent/platform/processes/cgroup.ts";
import { membersOf, ProcessTable, rowsOf } from "../../../../src/agent/platform/processes/process-table.ts";
import { ProcessReadings } from "../../../../src/agent/platform/processes/process-readings.ts";
import { walkedTree } from "../../../../src/agent/platform/processes/walked-processes.ts";
import { processesWith } from "../../../fixtures/processes.ts";
import { program } from "../../../fixtures/programs/index.ts";
import { addon, launch, request } from "../../../fixtures/spawning.ts";

const RUNNING = 0x52;
const ZOMBIE = 0x5a;
const AGENT = 50;
const SIGCONT = 18;
/** An id above any that a process can have. */
const GONE = 2 ** 30;

/** Ids of the members among rows of pid, parent, group, session, state; the agent is 50, in group and session 50. */
function members(leader: number, ...rows: number[][]): number[] | undefined {
  const table = [[1, 0, 1, 1, RUNNING], [AGENT, 1, 50, 50, RUNNING], ...rows].flatMap((row) => [...row, 0]);
  return membersOf(new ProcessTable(rowsOf(Int32Array.from(table))), leader, AGENT)?.map((row) => row.pid);
}

test("descendants belong to the tree, in other sessions too, in whatever order they are listed", () => {
  const rows = [
    [60, 61, 60, 60, RUNNING],
    [61, 100, 100, 100, RUNNING],
    [100, AGENT, 100, 100, RUNNING],
    [70, AGENT, 70, 70, RUNNING],
  ];
  assert.deepEqual(members(100, ...rows)?.toSorted(), [100, 60, 61]);
});

test("a process whose parent has died belongs by its session or its group", () => {
  const rows = [
    [100, AGENT, 100, 100, ZOMBIE],
    [101, 1, 101, 100, RUNNING],
    [102, 1, 100, 50, RUNNING],
  ];
  assert.deepEqual(members(100, ...rows)?.toSorted(), [101, 102]);
});

test("a process in a session that a member began belongs, even if its own parents are gone", () => {
  const rows = [
    [100, AGENT, 100, 100, RUNNING],
    [101, 100, 90, 90, RUNNING],
    [102, 1, 95, 90, RUNNING],
  ];
  assert.deepEqual(members(100, ...rows), [100, 101, 102]);
});

test("the agent's own session and group make nobody a member", () => {
  const rows = [
    [100, AGENT, 100, 50, RUNNING],
    [101, 100, 50, 50, RUNNING],
    [102, AGENT, 50, 50, RUNNING],
    [103, 1, 103, 50, RUNNING],
  ];
  assert.deepEqual(members(100, ...rows), [100, 101]);
});

test("a table that does not show the agent is no table", () => {
  assert.equal(membersOf(new ProcessTable([]), 100, AGENT), undefined);
});

test("the leader gets a signal first, whatever its id: its end is that of the signal, not of a child's", async () => {
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

test("a tree that forks faster than it is killed is killed to the last process", async () => {
  const path = program("fork_loop");
  await using running = await launch(request([path]));
  await running.stdout.until(/ready/);
  assert.ok((await processesWith(path)).length > 300);
  await running.child.tree.killWithin(KILL_WAIT_MS);
  assert.deepEqual(await processesWith(path), []);
});

test("a tree that is still being ended when its child is released does not end the next command's", async (t) => {
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
