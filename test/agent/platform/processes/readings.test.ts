import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as nextTurn, setTimeout as delay } from "node:timers/promises";
import { KILL_WAIT_MS } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { ProcessReadings, SharedReading } from "../../../../src/agent/platform/processes/process-readings.ts";
import { ProcessTable } from "../../../../src/agent/platform/processes/process-table.ts";
import { walkedSession, walkedTree } from "../../../../src/agent/platform/processes/walked-processes.ts";
import { addon, launch, shell } from "../../../fixtures/spawning.ts";

const SIGHUP = 1;
const EMFILE = 24;
const LISTS = 4;
/** More than a turn of the event loop may read. */
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
  it("serves all who ask in one turn: the ends of hundreds of commands cost one", async () => {
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

  it("is not repeated as long as a process that was found lives, whether it is of a session or of a tree", async () => {
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

  it("is not needed for the end of a session whose cgroup is empty, unless one of it was elsewhere", async () => {
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

  it("takes many turns where many processes live", async () => {
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

  it("has the child of a process that was listed and has ended before its row was read", async () => {
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

  it("pauses after the last one unless one is urgent", async () => {
    let readings = 0;
    const shared = new SharedReading(async () => {
      readings += 1;
      await delay(200);
    });
    await shared.next();
    const waits = [shared.next()];
    for (let turn = 0; turn < 3; turn++) await nextTurn();
    assert.equal(readings, 1);
    waits.push(shared.next(true));
    await Promise.all(waits);
    assert.equal(readings, 2);
    await shared.next();
    assert.equal(readings, 3);
  });

  it("that lacks descriptors tells nothing of who has ended", async () => {
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
