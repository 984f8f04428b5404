import assert from "node:assert/strict";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { restoreSequence } from "../../../src/node/client/index.ts";
import { failureOf } from "../../fixtures/guest-client.ts";
import { readClocks } from "../harness/oracle.ts";
import type { Stage } from "./stage.ts";

const STANDBY_MS = 3_000;
const PORT = 8000;
/** Process id and start time of the workload (proc_pid_stat(5)). */
const WORKLOAD = ["/bin/busybox", "sh", "-c", "busybox cut -d ' ' -f 1,22 /proc/$(busybox pidof workload)/stat"];

/** Stamps move back with the clock if repeated duties correct it by some milliseconds; the pause is far longer. */
function assertSameStamp(after: Date | undefined, before: Date | undefined, what: string): void {
  assert.ok(
    Math.abs(Number(after ?? 0) - Number(before ?? 0)) <= 100,
    `${what}: ${String(before)}, then ${String(after)}`,
  );
}

/** Pause to disk: the machine writes its memory and ends; another one continues, and takes over the stage. */
export function standbyCases(stage: Stage): void {
  test("a VM restored from a standby keeps its uptime, activity timestamps and processes", async () => {
    const { guest } = stage;
    let workload: string;
    {
      using client = stage.client();
      workload = (await client.run(WORKLOAD)).stdout;
      assert.match(workload, /^\d+ \d+\n$/);
    }
    using before = stage.client();
    const server = ["/bin/busybox", "nc", "-ll", "-p", String(PORT), "-e", "/bin/busybox", "cat"];
    await before.start(server, { keep: { name: "server" } }).detach();
    await before.ports.waitFor(PORT);
    const tunnel = before.ports.connect(PORT).on("error", () => {});
    await tunnel.opened;
    const broken = failureOf(once(tunnel, "close"));
    const watch = before.ports.watch();
    const listening = (await watch.next()).value?.ports;
    assert.equal(listening?.filter(({ port, command }) => port === PORT && command === "busybox").length, 1);
    const lost = failureOf(Array.fromAsync(watch));
    const [healthBefore, usageBefore] = [await before.health(), await before.usage()];
    const clocksBefore = await readClocks(stage.machine.oraclePort);
    const snapshot = await guest.snapshot(stage.machine, "standby");
    await stage.replaceMachine(async () => {
      await pause(STANDBY_MS);
      return guest.start(snapshot);
    });

    const clocks = await readClocks(stage.machine.oraclePort);
    assert.ok(clocks.uptimeMs >= clocksBefore.uptimeMs, "uptime goes on");
    assert.ok(clocks.driftMs <= clocksBefore.driftMs - STANDBY_MS + 100, `behind by the pause: ${clocks.driftMs} ms`);
    assert.deepEqual([(await lost).status, (await broken).status], ["UNAVAILABLE", "UNAVAILABLE"]);
    const { duties, hook, health } = await restoreSequence(() => stage.client(), { reachTimeoutMs: 60_000 });
    assert.deepEqual([duties.degraded, duties.clockStepped, hook.ran], ["", true, true]);
    assert.equal(health.ready, true);
    assertSameStamp(
      health.lastUserActivity,
      healthBefore.lastUserActivity,
      "a restore does not count as user activity",
    );
    assertSameStamp(health.idleDeclared, healthBefore.idleDeclared, "nor a declaration");
    using client = stage.client();
    assert.equal((await client.run(WORKLOAD)).stdout, workload, "the same workload");
    const anew = client.ports.watch();
    const again = (await anew.next()).value;
    await anew.return?.();
    assert.deepEqual([again?.full, again?.ports], [true, listening], "the same listeners, told whole");
    const echo = client.ports.connect(PORT);
    echo.end("after the standby");
    assert.equal(await text(echo), "after the standby", "by the same server");
    await client.commands.end("server", { forget: true });
    const { generation, cpu, uptimeUs } = await client.usage();
    // The sequence repeats the duties where the first answer came late.
    assert.ok(generation > usageBefore.generation, "another life of the guest");
    assert.ok(
      uptimeUs > usageBefore.uptimeUs && (cpu?.busyUs ?? 0) >= (usageBefore.cpu?.busyUs ?? 0),
      "counters go on",
    );
  });
}
