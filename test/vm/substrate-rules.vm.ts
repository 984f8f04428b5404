import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Hypeman } from "@onkernel/hypeman";
import { PATIENT, refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { qemusBelow } from "./harness/qemu.ts";

const INTERNAL = { status: 500, code: "internal_error" };
const INVALID = { status: 409, code: "invalid_state" };
const SLEEPER = { image: "busybox", cmd: ["sleep", "1000000"], size: "300MB", vcpus: 1, overlay_size: "1GB" };

/** The part of test/substrate/rules.test.ts that needs machines. Places are in hypeman at 8853445. */
describe("machines of the development substrate have the rules of the real one:", () => {
  let daemon: SubstrateDaemon;
  let client: Hypeman;

  before(async () => {
    daemon = await SubstrateDaemon.start((prepared) => {
      prepared.args = [...PATIENT, "--rules", "qemu", "--memory", "700MB"];
    });
    client = daemon.client();
    await daemon.imageReady("busybox");
  });
  after(() => daemon[Symbol.asyncDispose]());

  /** Starts the next daemon on the same state, with other rules. */
  async function withRules(...args: readonly string[]): Promise<void> {
    await daemon.end("SIGTERM");
    daemon.args = args;
    await daemon.startAgain();
    client = daemon.client();
  }

  async function becomes(name: string, state: Hypeman.Instance["state"]): Promise<void> {
    while ((await client.instances.get(name)).state !== state) await pause(50);
  }

  test("nothing is suspended that initializes (lib/instances/standby.go:53, snapshot.go:120, fork.go:122)", async () => {
    const { state } = await client.instances.create({ ...SLEEPER, name: "box" });
    assert.equal(state, "Initializing");
    assert.deepEqual(await refusal(client.instances.standby("box")), INVALID);
    assert.deepEqual(await refusal(client.instances.snapshots.create("box", { kind: "Standby" })), {
      status: 409,
      code: "conflict",
    });
    assert.deepEqual(await refusal(client.instances.fork("box", { name: "fork", from_running: true })), INVALID);
    await becomes("box", "Running");
  });

  test("a fork of a snapshot keeps the vsock number, and cannot run beside its source; it leaves nothing (lib/instances/snapshot.go:461, lib/hypervisor/qemu/diagnostics.go:22)", async () => {
    const { id } = await client.instances.snapshots.create("box", { kind: "Standby", name: "base" });
    assert.deepEqual(await refusal(client.snapshots.fork(id, { name: "beside" })), INTERNAL);
    await daemon.logged(/failed to fork snapshot: vhost-vsock: unable to set guest cid/);
    assert.equal(qemusBelow(daemon.state).length, 1);
    await client.instances.standby("box");
    for (const name of ["one", "other"]) {
      assert.equal((await client.snapshots.fork(id, { name })).state, "Running");
      await client.instances.delete(name);
    }
    await client.snapshots.delete(id);
    await client.instances.restore("box");
  });

  test("a fork of what runs has it, and its source another (lib/instances/fork.go:72); it is attached to no volume, which can be deleted under it (create.go:444)", async () => {
    await client.instances.delete("box");
    const { id } = await client.volumes.create({ name: "data", id: "data", size_gb: 1 });
    const volumes = [{ volume_id: id, mount_path: "/srv/data", readonly: true }];
    await client.instances.create({ ...SLEEPER, name: "box", volumes });
    await becomes("box", "Running");
    await client.instances.fork("box", { name: "fork", from_running: true });
    assert.equal(qemusBelow(daemon.state).length, 2);
    assert.deepEqual(await refusal(client.volumes.delete(id)), { status: 409, code: "conflict" });
    await client.instances.delete("box");
    await client.volumes.delete(id);
    assert.equal((await client.instances.get("fork")).state, "Running");
    await client.instances.delete("fork");
  });

  test("more memory than there is is refused, and leaves a source asleep (lib/instances/create.go:219-222, restore.go:85-88, fork.go:96-103)", async () => {
    await client.instances.create({ ...SLEEPER, name: "box" });
    await client.instances.create({ ...SLEEPER, name: "second" });
    const refused = { status: 409, code: "insufficient_resources" };
    assert.deepEqual(await refusal(client.instances.create({ ...SLEEPER, name: "third" })), refused);
    await becomes("box", "Running");
    // The fork has taken its source's place by then.
    assert.deepEqual(await refusal(client.instances.fork("box", { name: "fork", from_running: true })), refused);
    assert.equal((await client.instances.get("box")).state, "Standby");
    assert.equal((await client.instances.get("fork")).state, "Running");
    assert.deepEqual(await refusal(client.instances.restore("box")), refused);
    await client.instances.delete("fork");
    assert.equal((await client.instances.restore("box")).state, "Running");
    await client.instances.delete("second");
  });

  test("a standby that is cancelled leaves Paused, which can only be deleted (lib/instances/standby.go:163-168, state.go:32)", async () => {
    await withRules("--patience", "0.0001");
    assert.deepEqual(await refusal(client.instances.standby("box")), INTERNAL);
    await becomes("box", "Paused");
    await withRules(...PATIENT);
    assert.equal((await client.instances.get("box")).state, "Paused", "for the next daemon, too");
    for (const call of [
      () => client.instances.restore("box"),
      () => client.instances.start("box", {}),
      () => client.instances.stop("box"),
      () => client.instances.standby("box"),
    ])
      assert.deepEqual(await refusal(call()), INVALID);
    await client.instances.delete("box");
    assert.deepEqual(qemusBelow(daemon.state), []);
  });

  test("a hypervisor that does not answer is Unknown (lib/instances/query.go:122-136)", async () => {
    const { id } = await client.instances.create({ ...SLEEPER, name: "box" });
    await becomes("box", "Running");
    const [{ pid } = { pid: 0 }] = qemusBelow(daemon.state);
    process.kill(pid, "SIGSTOP");
    // Its threads stop one after another.
    while (!/^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))) await pause(10);
    assert.equal((await client.instances.get("box")).state, "Unknown");
    assert.deepEqual(await refusal(client.instances.standby("box")), INVALID);
    process.kill(pid, "SIGCONT");
    await becomes("box", "Running");
    await client.instances.delete("box");
    assert.equal(existsSync(join(daemon.state, "instances", id)), false);
  });

  test("a stop gives the entrypoint 5 s, and a delete 2 s, whatever it wants (lib/instances/stop.go:22, delete.go:18)", async () => {
    await withRules();
    const deaf = ["/bin/sh", "-c", "trap '' TERM; echo DEAF; while :; do sleep 1; done"];
    const isDeaf = async (): Promise<boolean> => {
      for await (const line of await client.instances.logs("deaf")) if (line === "DEAF") return true;
      return false;
    };
    await client.instances.create({ ...SLEEPER, name: "deaf", cmd: deaf });
    while (!(await isDeaf())) await pause(50);
    let beganMs = performance.now();
    const { exit_code } = await client.instances.stop("deaf");
    assert.equal(exit_code, null, "cut off");
    assert.ok(performance.now() - beganMs >= 5_000);
    await client.instances.start("deaf", {});
    while (!(await isDeaf())) await pause(50);
    beganMs = performance.now();
    await client.instances.delete("deaf");
    assert.ok(performance.now() - beganMs >= 2_000);
    assert.deepEqual(qemusBelow(daemon.state), []);
  });

  test("an instance has 2 processors, 1 GB and a layer of 10 GB where it asks for nothing else (lib/instances/create.go:188-201)", async () => {
    await client.instances.create({ name: "usual", image: "busybox", cmd: ["sleep", "1000000"] });
    const { vcpus, size, overlay_size } = await client.instances.get("usual");
    assert.deepEqual([vcpus, size, overlay_size], [2, "1.0 GB", "10.0 GB"]);
  });
});
