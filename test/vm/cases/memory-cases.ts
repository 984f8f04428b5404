import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type GuestClient } from "../../../src/node/client/index.ts";
import { AGENT_DIRECTORY, shippedAgent } from "../harness/sandbox.ts";
import { Stage } from "./stage.ts";

/** What fills a guest, by an exec's script; each begins again when the kernel has killed its program. */
const HOGS = {
  /** The kernel can kill who wrote it, and that frees nothing. */
  "a file in memory": "busybox mount -t tmpfs none /tmp; while :; do busybox cat /dev/zero >> /tmp/file; done",
  "memory of its own": "while :; do busybox tail /dev/zero; done",
  "memory of one that the kernel never kills": "echo -1000 > /proc/self/oom_score_adj; exec busybox tail /dev/zero",
} as const;
type Hog = keyof typeof HOGS;
/** Limits the memory of its own cgroup, and allocates more. */
const OVER_ITS_LIMIT = `cg=$(busybox cut -d: -f3 /proc/self/cgroup); echo 16M > /sys/fs/cgroup$cg/memory.max
exec busybox dd if=/dev/zero of=/dev/null bs=64M count=1`;
/** The kernel kills in a cgroup that has more than its new limit (memory_max_write of mm/memcontrol.c). */
const LIMIT_WORKLOAD = `cg=$(busybox cut -d: -f3 /proc/$(busybox pidof workload)/cgroup); echo 0 > /sys/fs/cgroup$cg/memory.max`;
/** Share of the available memory that is there again. */
const BACK = 0.7;
const LOOKS = 50;
const PATIENT = { requestTimeoutMs: 300_000 };

/** By the container's oom_score_adj: those of launcher, agent, workload and command. */
const SCORES: Readonly<Record<number, readonly number[]>> = {
  0: [-900, -900, 0, 500],
  // One that the kernel never kills could make it panic: no child is such a one.
  [-1000]: [-1000, -1000, -999, -499],
};
const SHOW_SCORES = `read pid name state launcher more < /proc/$PPID/stat; cd /proc
busybox cat $launcher/oom_score_adj $PPID/oom_score_adj $(busybox pidof workload)/oom_score_adj self/oom_score_adj`;

async function shell(client: GuestClient, script: string): Promise<string> {
  const { exitCode: code, stdout, stderr } = await client.run(["/bin/sh", "-c", script]);
  assert.equal(code, 0, stderr);
  return stdout;
}

async function availableKib(client: GuestClient): Promise<number> {
  return Number(await shell(client, "busybox sed -n 's/^MemAvailable: *\\([0-9]*\\).*/\\1/p' /proc/meminfo"));
}

/** Cases of a guest of that size which execs fill, one after the other. The container has that oom_score_adj. */
export function fullMemoryCases(memoryMib: number, hogs: readonly Hog[], containerScore = 0): void {
  const command = [
    "/bin/sh",
    "-c",
    `echo ${containerScore} > /proc/self/oom_score_adj; exec ${AGENT_DIRECTORY}/guest-agent`,
  ];
  const hooks = { preSnapshot: { args: ["/bin/sh", "-c", OVER_ITS_LIMIT] } };
  const stage = new Stage({ memoryMib, hooks, agent: { ...shippedAgent(), command } });
  after(() => stage.end());

  test(`a guest with ${memoryMib} MB boots`, () => stage.boot());

  test(`with container oom_score_adj ${containerScore}, commands are killed first, the agent last`, async () => {
    using client = stage.client();
    const shown = await shell(client, SHOW_SCORES);
    assert.deepEqual(shown.trim().split("\n").map(Number), SCORES[containerScore]);
  });

  for (const name of hogs) {
    test(`launcher, agent and workload survive an exec that fills memory with ${name}`, async (t) => {
      using client = stage.client();
      const beforeKib = await availableKib(client);
      using filling = stage.client();
      const hog = filling.start(["/bin/sh", "-c", HOGS[name]]);
      hog.stdout.resume();
      hog.stderr.resume();
      const ended = hog.wait().catch(() => undefined);
      const tookMs: number[] = [];
      for (let look = 0; look < LOOKS; look++) {
        const began = performance.now();
        assert.ok((await client.health(PATIENT)).alive);
        tookMs.push(Math.round(performance.now() - began));
      }
      hog.cancel();
      await ended;
      t.diagnostic(`Health took ${tookMs.toSorted((a, b) => a - b).join(" ")} ms`);
      // A command would find no memory: the agent removes it.
      if (name === "a file in memory") await client.files.rm("/tmp/file");
      await shell(client, "busybox umount /tmp || busybox true");
      assert.equal(await shell(client, "echo works"), "works\n");
      await client.files.writeFile("/file", Buffer.from("content"));
      assert.equal((await client.files.stat("/file")).size, 7);
      const afterKib = await availableKib(client);
      assert.ok(afterKib > BACK * beforeKib, `${afterKib} KiB available, ${beforeKib} before`);
      assert.doesNotMatch(
        stage.machine.console,
        /GUEST-ENTRYPOINT-ENDED|Killed process \d+ \((?:workload|node|guest-agent)/,
      );
    });
  }

  test("a hook over its cgroup's memory limit is reported as oom_killed", async () => {
    using client = stage.client();
    const { exitCode, oomKilled, timedOut } = await client.snapshots.prepare();
    assert.deepEqual([exitCode, oomKilled, timedOut], [137, true, false]);
  });

  test("a workload over its memory limit ends the guest with 137", async () => {
    const { machine } = stage;
    using client = stage.client();
    await client.run(["/bin/sh", "-c", LIMIT_WORKLOAD]).catch(() => undefined);
    await machine.ended();
    assert.match(machine.console, /"event":"workload_ended".*"status":137,"signal":9,"oom_killed":true/);
    const reason = "the workload was killed by SIGKILL: out of memory (killed by the kernel's OOM killer)";
    assert.ok(machine.console.includes(`"event":"agent_ended","status":137,"reason":"${reason}"`), machine.console);
    assert.match(machine.console, /GUEST-ENTRYPOINT-ENDED exit 137/);
  });
}
