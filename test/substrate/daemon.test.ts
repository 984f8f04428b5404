import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execaNode } from "execa";
import { RECORD } from "./double/records.ts";
import { refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { layOut } from "./lay-out.ts";

const SCRIPT = join(import.meta.dirname, "main.ts");

const run = (args: readonly string[]) => execaNode(SCRIPT, args, { reject: false });

describe("npm run substrate", () => {
  test("takes instances over that a daemon before has left: stopped, on standby, and by their tags", async () => {
    await using daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "aaaa1", { tags: { "svc.node_id": "node-1", kind: "a" } });
      layOut(state, "aaaa2", { tags: { "svc.node_id": "node-1", kind: "b" } });
      layOut(state, "bbbb3", { tags: { "svc.node_id": "node-2" } }, true);
      // Left half-made by a daemon that was killed.
      mkdirSync(join(state, "instances", "cccc4"));
    });
    const { instances } = daemon.client();
    const names = async (query: Parameters<typeof instances.list>[0]): Promise<string[]> =>
      (await instances.list(query)).map(({ name }) => name).toSorted();
    assert.deepEqual(await names({}), ["box-aaaa1", "box-aaaa2"], "what is on standby is not in the usual listing");
    assert.deepEqual(await names({ state: "Standby" }), ["box-bbbb3"]);
    assert.deepEqual(await names({ state: "Stopped", tags: { kind: "b" } }), ["box-aaaa2"]);
    assert.deepEqual(await names({ state: "Running" }), []);
    assert.deepEqual(await names({ tags: { "svc.node_id": "node-1" } }), ["box-aaaa1", "box-aaaa2"]);
    assert.deepEqual(await names({ tags: { "svc.node_id": "node-1", kind: "a" } }), ["box-aaaa1"]);
    assert.deepEqual(await names({ state: "Standby", tags: { "svc.node_id": "node-1" } }), []);
    assert.equal(existsSync(join(daemon.state, "instances", "cccc4")), false);
  });

  test("finds an instance by its id, its name, or the beginning of its id if that is one's alone", async () => {
    await using daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "aaaa1", { env: { SVC_GUEST_PORT: "7071" } });
      layOut(state, "aaaa2", {});
    });
    const { instances } = daemon.client();
    for (const reference of ["aaaa1", "box-aaaa1"]) assert.equal((await instances.get(reference)).id, "aaaa1");
    assert.deepEqual(await refusal(instances.get("aaaa")), { status: 409, code: "ambiguous" });
    const { network, env, size, state } = await instances.get("aaaa1");
    assert.deepEqual(network, { enabled: true, name: "default", ip: "127.64.0.1", mac: "02:00:00:00:00:01" });
    assert.deepEqual([env, size, state], [{ SVC_GUEST_PORT: "7071" }, "1.0 GB", "Stopped"]);
  });

  test("does with an instance what its state allows, and nothing else", async () => {
    await using daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "stopped", { name: "stopped" });
      layOut(state, "asleep", { name: "asleep" }, true);
    });
    const { instances } = daemon.client();
    for (const call of [
      () => instances.standby("stopped"),
      () => instances.restore("stopped"),
      () => instances.stop("stopped"),
      () => instances.start("asleep", {}),
      () => instances.standby("asleep"),
      () => instances.stop("asleep"),
    ])
      assert.deepEqual(await refusal(call()), { status: 409, code: "invalid_state" });
    // hypeman 8853445: cmd/api/api/snapshots.go:55-56 and instances.go:712-716 have other words for these.
    for (const kind of ["Standby", "Stopped"] as const) {
      const source = kind === "Standby" ? "stopped" : "asleep";
      assert.deepEqual(await refusal(instances.snapshots.create(source, { kind })), { status: 409, code: "conflict" });
    }
    const taken = { status: 409, code: "name_conflict" };
    assert.deepEqual(await refusal(instances.fork("stopped", { name: "asleep" })), taken);
    assert.deepEqual(await refusal(instances.fork("asleep", { name: "No" })), { status: 400, code: "invalid_request" });
  });

  test("does not restore an instance whose image is gone, nor forget it: the cause is in the log", async () => {
    await using daemon = await SubstrateDaemon.start(({ state }) => layOut(state, "asleep", {}, true));
    const { instances } = daemon.client();
    assert.deepEqual(await refusal(instances.restore("asleep")), { status: 500, code: "internal_error" });
    await daemon.logged(/asleep: failed to restore instance: its image .*busybox:latest is gone/);
    assert.equal((await instances.get("asleep")).state, "Standby");
    await instances.delete("asleep");
    assert.deepEqual(await refusal(instances.get("asleep")), { status: 404, code: "not_found" });
    assert.equal(existsSync(join(daemon.state, "instances", "asleep")), false);
  });

  test("forks no instance with a writable volume, and deletes no volume that an instance has", async () => {
    const mount = { volume_id: "data", mount_path: "/srv/data", readonly: false };
    await using daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "asleep", { volumes: [mount] }, true);
    });
    const { instances, volumes } = daemon.client();
    await volumes.create({ name: "data", id: "data", size_gb: 1 });
    assert.deepEqual(await refusal(instances.fork("asleep", { name: "fork" })), { status: 501, code: "not_supported" });
    assert.deepEqual((await volumes.get("data")).attachments, [
      { instance_id: "asleep", mount_path: "/srv/data", readonly: false },
    ]);
    assert.deepEqual(await refusal(volumes.delete("data")), { status: 409, code: "conflict" });
    await instances.delete("asleep");
    await volumes.delete("data");
  });

  test("keeps snapshots of their own: named once for an instance, found by everything, alive without their source", async () => {
    await using daemon = await SubstrateDaemon.start(({ state }) => {
      layOut(state, "asleep", { name: "asleep", tags: { "svc.node_id": "node-1" } }, true);
      layOut(state, "stopped", { name: "stopped" });
    });
    const { instances, snapshots } = daemon.client();
    const tags = { "svc.agent_version": "0.1.0" };
    const first = await instances.snapshots.create("asleep", { kind: "Standby", name: "first", tags });
    assert.deepEqual(
      [first.kind, first.name, first.source_instance_id, first.source_instance_name, first.source_hypervisor],
      ["Standby", "first", "asleep", "asleep", "qemu"],
    );
    const again = instances.snapshots.create("asleep", { kind: "Standby", name: "first" });
    assert.deepEqual(await refusal(again), { status: 409, code: "conflict" });
    const cold = await instances.snapshots.create("stopped", { kind: "Stopped" });
    const ids = async (query: Parameters<typeof snapshots.list>[0]): Promise<string[]> =>
      (await snapshots.list(query)).map(({ id }) => id);
    assert.deepEqual((await ids({})).toSorted(), [first.id, cold.id].toSorted());
    assert.deepEqual(await ids({ tags }), [first.id]);
    assert.deepEqual(await ids({ kind: "Stopped" }), [cold.id]);
    assert.deepEqual(await ids({ name: "first", source_instance_id: "asleep" }), [first.id]);
    assert.deepEqual(await ids({ source_instance_id: "other" }), []);
    await instances.delete("asleep");
    assert.deepEqual(await snapshots.get(first.id), first);
    const fork = await snapshots.fork(first.id, { name: "fork", target_state: "Standby" });
    assert.deepEqual([fork.state, fork.tags], ["Standby", { "svc.node_id": "node-1" }], "a fork has its source's tags");
    assert.notEqual(fork.network?.ip, "127.64.0.1", "and an address of its own");
    await snapshots.delete(first.id);
    assert.deepEqual(await refusal(snapshots.delete(first.id)), { status: 404, code: "not_found" });
  });

  test("has its state to itself as long as it lives, however it ends", async () => {
    await using daemon = await SubstrateDaemon.start();
    for (const args of [["--port", "0"], ["--purge"]]) {
      const { exitCode, stderr } = await run([...args, "--state", daemon.state]);
      assert.equal(exitCode, 1);
      assert.match(stderr, /another daemon has the state folder/);
    }
    await daemon.end("SIGKILL");
    await daemon.startAgain();
    assert.deepEqual(await daemon.client().instances.list(), []);
    assert.equal(await daemon.end("SIGTERM"), 0);
    await daemon.logged(/ended; machines that go on: 0/);
  });

  test("keeps its token, its images and its volumes for the next one", async () => {
    await using daemon = await SubstrateDaemon.start();
    const { token } = daemon;
    await daemon.client().volumes.create({ name: "kept", size_gb: 1 });
    await daemon.imageReady("busybox");
    const { digest } = await daemon.client().images.get("busybox");
    await daemon.end("SIGTERM");
    await daemon.startAgain();
    assert.equal(daemon.token, token);
    assert.equal((await daemon.client().images.get("busybox")).digest, digest);
    assert.deepEqual(
      (await daemon.client().volumes.list()).map(({ name }) => name),
      ["kept"],
    );
  });

  test("outlives an image of which it cannot even note that it failed, as on a full disk", async () => {
    await using daemon = await SubstrateDaemon.start(({ imagesFolder }) =>
      execFileSync("mkfifo", [join(imagesFolder, "slow.tar")]),
    );
    const images = join(daemon.state, "images");
    const isSlow = (id: string): boolean => readFileSync(join(images, id, RECORD), "utf8").includes("slow");
    rmSync(join(images, readdirSync(images).find(isSlow) ?? assert.fail()), { recursive: true });
    writeFileSync(join(daemon.imagesFolder, "slow.tar"), "this is no archive");
    await daemon.logged(/image docker\.io\/library\/slow:latest failed: /);
    await daemon.imageReady("busybox");
    assert.equal(await daemon.end("SIGTERM"), 0);
  });

  test("refuses a state folder whose sockets would have names that are too long", async () => {
    const folder = mkdtempSync(join(tmpdir(), "substrate-"));
    try {
      const { exitCode, stderr } = await run(["--state", join(folder, "x".repeat(80)), "--port", "0"]);
      assert.equal(exitCode, 1);
      assert.match(stderr, /has more than 64 bytes: name another one by --state/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
