import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Stage } from "./stage.ts";

const MEBIBYTE = 2 ** 20;
const MEMORY_LIMIT_BYTES = 16 * MEBIBYTE;
/** The end of a sandbox with the test's own workload. The machine is gone afterwards. */
export function endCase(stage: Stage): void {
  test("SIGTERM to init ends the machine with the workload's exit status", async () => {
    const { machine } = stage;
    using client = stage.client();
    await client.run(["/bin/busybox", "kill", "-TERM", "1"]);
    await machine.ended();
    assert.match(machine.console, /GUEST-ENTRYPOINT-ENDED exit 42/);
  });
}

/** What a sandbox that was never restored must do. The first case boots the machine. */
export function sandboxCases(stage: Stage, series: string): void {
  test("init starts the agent in the container's file system, and Health answers", async () => {
    await stage.boot();
    using client = stage.client();
    assert.equal((await client.health()).alive, true);
    const { stdout } = await client.run(["/bin/busybox", "uname", "-r"]);
    assert.ok(stdout.startsWith(`${series}.`), stdout);
  });

  test("a timed-out command is killed with all descendants, also those that called setsid", async () => {
    using client = stage.client();
    const script = "trap '' TERM; busybox setsid busybox sleep 41414 & busybox sleep 41415 & wait; wait; wait";
    const { timedOut } = await client.run(["/bin/busybox", "sh", "-c", script], { timeoutMs: 1_000 });
    assert.equal(timedOut, true);
    const { stdout } = await client.run(["/bin/busybox", "ps"]);
    assert.doesNotMatch(stdout, /sleep 4141/);
  });

  test("Health reports that the workload declared itself idle", async () => {
    using client = stage.client();
    const before = await client.health();
    assert.equal(before.idleDeclared, undefined);
    await client.run(["/bin/busybox", "killall", "-USR1", "workload"]);
    while ((await client.health()).idleDeclared === undefined) await pause(50);
  });

  test("only the command that exceeds its cgroup's memory limit ends with oom_killed", async () => {
    using client = stage.client();
    const grow = ["/bin/busybox", "sh", "-c", "read go; exec busybox dd if=/dev/zero of=/dev/null bs=64M count=1"];
    const [limited, free] = [client.start(grow, { stdin: true }), client.start(grow, { stdin: true })];
    for (const each of [limited, free]) each.stderr.resume();
    const pid = await limited.started;
    const limit = `cg=$(busybox cut -d: -f3 /proc/${pid}/cgroup); echo ${MEMORY_LIMIT_BYTES} > /sys/fs/cgroup$cg/memory.max`;
    const { exitCode: code, stderr } = await client.run(["/bin/busybox", "sh", "-c", limit]);
    assert.equal(code, 0, stderr);
    for (const each of [limited, free]) {
      each.stdout.resume();
      each.stdin.end("go\n");
    }
    const [killed, spared] = [await limited.wait(), await free.wait()];
    assert.deepEqual([killed.oomKilled, killed.signal, killed.exitCode], [true, "SIGKILL", 137]);
    assert.deepEqual([spared.oomKilled, spared.exitCode], [false, 0]);
    const { sessionOomKills } = await client.usage();
    assert.equal(sessionOomKills, 1);
    // memory.peak came with Linux 5.19.
    assert.deepEqual([killed.usage?.cpuScope, killed.usage?.peakMemoryScope], ["tree", "tree"]);
    assert.ok((spared.usage?.peakMemoryBytes ?? 0) >= 64 * MEBIBYTE, JSON.stringify(spared.usage));
    assert.ok((killed.usage?.peakMemoryBytes ?? Infinity) <= MEMORY_LIMIT_BYTES, JSON.stringify(killed.usage));
  });
}
