import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { endAll, endExec, keep, keptCommand, listExecs, untilKept } from "../../fixtures/kept-commands.ts";
import { NEEDS_NAMESPACES, needsCgroups, withoutCgroups } from "../../fixtures/namespaces.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { killIfThere, processById, processGone, processesWith } from "../../fixtures/proc.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";

const UNKNOWN = { reason: "EXEC_UNKNOWN" };
/** A grace period that no test may wait for. */
const LONG = 600_000n;

const agent = forAllTests(await startAgent());

/** Leftovers of failed tests. */
const pids: number[] = [];
afterEach(async () => {
  for (const pid of pids.splice(0)) killIfThere(pid);
  await endAll(agent);
});

/** Runs a shell line as a kept command that ends once it has written so many process ids, and returns these. */
async function leftBy(name: string, line: string, count = 1, of = agent): Promise<number[]> {
  using joined = await keep(of, { args: ["sh", "-c", `${line}; cat`], stdin: true, keep: { name } });
  let text = "";
  while (text.split("\n").length <= count) text += await joined.stream.until("\n");
  joined.stream.send({ case: "stdinClose", value: {} });
  await joined.stream.outcome();
  const left = text.trim().split("\n").map(Number);
  pids.push(...left);
  for (const pid of left) assert.ok(isAlive(pid), `${pid} runs`);
  return left;
}

function isAlive(pid: number): boolean {
  return !"ZX".includes(processById(pid)?.state ?? "Z");
}

describe("EndExec with leftovers", await needsCgroups(), () => {
  it("EndExec ends a command's leftovers in other sessions, even after a double fork", async () => {
    const line =
      "setsid sleep 1000 > /dev/null & echo $!; " +
      "(setsid sh -c 'sleep 1001 & echo $!; exec sleep 1002 > /dev/null' & echo $!); nohup sleep 1003 & echo $!";
    const left = await leftBy("tree", line, 4);
    const other = await leftBy("other", "setsid sleep 1004 > /dev/null & echo $!");
    const ended = await endExec(agent, { name: "tree", leftovers: true, graceMs: LONG });
    assert.deepEqual(
      [ended.exit?.code, ended.forgotten, ended.leftoversEnded, ended.leftoversUnknown],
      [0, true, 4, false],
    );
    for (const pid of left) await processGone(pid);
    assert.ok(other.every(isAlive), "those of another command continue");
    assert.equal(await keptCommand(agent, "tree"), undefined);
  });

  it("EndExec without `leftovers` forgets an ended command but ends no leftover process", async () => {
    const [pid = 0] = await leftBy("kind", "setsid sleep 1000 > /dev/null & echo $!");
    const ended = await endExec(agent, { name: "kind" });
    assert.deepEqual([ended.forgotten, ended.leftoversEnded, ended.leftoversUnknown], [true, undefined, false]);
    assert.ok(isAlive(pid));
  });

  it("after the grace period, EndExec kills leftovers that ignore its signal", async () => {
    const [pid = 0] = await leftBy(
      "stubborn",
      "setsid sh -c \"trap '' TERM HUP; echo \\$\\$; while :; do sleep 0.05; done\" & sleep 0.3",
    );
    const ended = await endExec(agent, { name: "stubborn", leftovers: true, graceMs: 200n });
    assert.ok((ended.leftoversEnded ?? 0) >= 1);
    await processGone(pid);
  });

  it("EndExec ends leftovers that fork again and again", async () => {
    // Each process starts the next one and ends, so that no list of processes is complete.
    const mark = "forks-without-end";
    const script = `trap '' TERM; sleep 0.01; sh -c "$0" "$0" ${mark} > /dev/null 2>&1 &`;
    const args = ["sh", "-c", `setsid sh -c "$0" "$0" ${mark} > /dev/null 2>&1 &`, script];
    using joined = await keep(agent, { args, keep: { name: "forks" } });
    await joined.stream.outcome();
    await until(async () => (await processesWith(mark)).length > 0, "it forks");
    const ended = await endExec(agent, { name: "forks", leftovers: true, graceMs: 50n });
    assert.equal(ended.forgotten, true);
    assert.deepEqual(await processesWith(mark), []);
  });

  it("EndExec resumes stopped leftovers (SIGCONT) so that the signal can end them", async () => {
    const [pid = 0] = await leftBy("stopped", "setsid sleep 1000 > /dev/null & echo $!; kill -STOP $!");
    const ended = await endExec(agent, { name: "stopped", leftovers: true, graceMs: LONG });
    assert.equal(ended.leftoversEnded, 1);
    await processGone(pid);
  });

  it("EndExec reports zero leftovers if the command still runs or has left no process", async () => {
    using _ = await keep(agent, { args: ["sh", "-c", "sleep 1000 & wait"], keep: { name: "runs" } });
    const ended = await endExec(agent, { name: "runs", leftovers: true, forget: true });
    assert.deepEqual([ended.exit?.signal, ended.leftoversEnded], [15, 0]);
    const done = await keep(agent, { args: ["true"], keep: { name: "done" } });
    await done.stream.outcome();
    // Other commands make the agent remove the empty cgroup.
    for (let time = 0; time < 3; time++) {
      const next = await keep(agent, { args: ["true"], keep: { name: `next${time}` } });
      await next.stream.outcome();
    }
    const { leftoversEnded, leftoversUnknown } = await endExec(agent, { name: "done", leftovers: true });
    assert.deepEqual([leftoversEnded, leftoversUnknown], [0, false]);
  });

  it("EndExec does not kill processes left by a replaced or forgotten command", async () => {
    const [first = 0] = await leftBy("name", "setsid sleep 1000 > /dev/null & echo $!");
    const execId = (await keptCommand(agent, "name"))?.execId ?? "";
    using second = await keep(agent, { args: ["sleep", "1001"], keep: { name: "name", replaceEnded: true } });
    await assert.rejects(endExec(agent, { name: "name", execId, leftovers: true }), UNKNOWN);
    assert.ok(isAlive(first) && isAlive(second.started.pid));
    assert.equal((await endExec(agent, { name: "name", leftovers: true, forget: true })).leftoversEnded, 0);
    assert.ok(isAlive(first) && !isAlive(second.started.pid));
    using brief = await keep(agent, {
      args: ["sh", "-c", "setsid sleep 1002 > /dev/null & echo $!"],
      keep: { name: "brief", lingerMs: 1n },
    });
    const left = Number((await brief.stream.outcome()).stdout);
    pids.push(left);
    await untilKept(agent, "brief", (exec) => exec === undefined);
    await assert.rejects(endExec(agent, { name: "brief", leftovers: true }), UNKNOWN);
    assert.ok(isAlive(left));
  });

  it("EndExec reports leftovers that survive SIGKILL, and the exec stays listed", NEEDS_FUSE, async () => {
    await using directory = await testDirectory();
    await using mount = await fuseMount("hanging_mount", directory.at("hung"), ["take"]);
    const taken = once(mount.server.stdout, "data");
    const [pid = 0] = await leftBy("hangs", `setsid stat '${directory.at("hung/file")}' > /dev/null 2>&1 & echo $!`);
    await taken;
    await assert.rejects(endExec(agent, { name: "hangs", leftovers: true, signal: 9 }), {
      reason: "EXEC_NOT_ENDED",
      message: /command hangs has ended, but its remaining processes hang in the kernel/,
    });
    assert.deepEqual(
      (await listExecs(agent)).map(({ name }) => name),
      ["hangs"],
    );
    mount.server.stdin.end();
    await processGone(pid);
    assert.equal((await endExec(agent, { name: "hangs", leftovers: true })).leftoversEnded, 0);
  });
});

describe("EndExec with leftovers without cgroups", NEEDS_NAMESPACES, () => {
  it("without cgroups, EndExec ends no leftovers and reports them as unknown", async () => {
    await using bare = await startAgent({ through: withoutCgroups() });
    const [pid = 0] = await leftBy("left", "setsid sleep 1000 > /dev/null & echo $!", 1, bare);
    const ended = await endExec(bare, { name: "left", leftovers: true });
    assert.deepEqual([ended.forgotten, ended.leftoversEnded, ended.leftoversUnknown], [true, undefined, true]);
    assert.ok(isAlive(pid));
  });
});
