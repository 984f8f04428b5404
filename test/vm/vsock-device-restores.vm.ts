import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { readUntil } from "../fixtures/guest-client.ts";
import { dialWithin, plugged, refuses, SOCAT, VsockStage, withConsole } from "./cases/vsock-cases.ts";
import { VsockHost } from "./harness/vsock.ts";

const CID = 3;
const RESTORES = 20;
/** Prints a numbered line again and again. */
const COUNTER = "i=0; while :; do i=$((i+1)); echo $i; busybox usleep 50000; done";

describe("a snapshot of a guest whose vsock device was unplugged", () => {
  let stage: VsockStage;
  let snapshot = "";
  before(async () => {
    stage = await VsockStage.boot({ vsock: "alone", hostPrograms: SOCAT }, CID);
    {
      using client = stage.client();
      await client.start(["/bin/sh", "-c", COUNTER], { keep: { name: "counter" } }).detach();
    }
    await stage.machine.unplugVsock();
    snapshot = await stage.guest.snapshot(stage.machine);
    await stage.endMachine();
  });
  after(() => stage[Symbol.asyncDispose]());

  test(`${RESTORES} clones answer on their vsock listener and continue a kept command`, async (t) => {
    const { guest } = stage;
    const timesMs: number[] = [];
    const drawn = new Set<string>();
    for (let n = 0; n < RESTORES; n++) {
      // Every clone has another CID than its source.
      await using host = await VsockHost.start(CID + 1 + n);
      await using clone = await guest.start(snapshot);
      await withConsole(clone, async () => {
        timesMs.push(await plugged(guest, clone, host.device));
        {
          using client = guest.vsockClient(clone);
          await client.health({ waitForReady: true });
          const duties = await client.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() });
          assert.deepEqual([duties.entropyCredited, duties.clockStepped, duties.degraded], [true, true, ""]);
        }
        using client = guest.vsockClient(clone);
        // On a busy machine, the first request may come after the agent's limit for it. Only a repeatable call waits then.
        await client.health({ waitForReady: true });
        const uuid = await client.run(["/bin/busybox", "cat", "/proc/sys/kernel/random/uuid"]);
        drawn.add(uuid.stdout);
        const counter = client.commands.attach("counter", { stdoutOffset: 0, stderrOffset: 0 });
        counter.stderr.resume();
        // More than the snapshot has of it.
        const next = (await counter.attached).stdoutEnd;
        let seen = "";
        while (seen.length <= next) seen += await readUntil(counter, "\n");
        assert.ok(seen.startsWith("1\n2\n"), seen.slice(0, 100));
        await counter.detach();
      });
    }
    assert.equal(drawn.size, RESTORES, "all clones draw different numbers");
    const sorted = timesMs.toSorted((a, b) => a - b).map((ms) => Math.round(ms));
    t.diagnostic(`ms until it answered: least ${sorted[0]}, median ${sorted[RESTORES / 2]}, most ${sorted.at(-1)}`);
  });

  test("a guest refuses vsock connections from a second guest of its host", async () => {
    const { guest } = stage;
    await using hosts = await VsockHost.start(CID, CID + 1);
    const [device, other] = hosts.devices;
    assert.ok(device !== undefined && other !== undefined);
    await using target = await guest.start(snapshot);
    await using attacker = await guest.start(snapshot);
    await plugged(guest, target, device);
    await plugged(guest, attacker, other);
    {
      using client = guest.vsockClient(attacker);
      await refuses(target, CID + 1, async () => assert.equal((await dialWithin(client, CID)).length, 0));
    }
  });
});
