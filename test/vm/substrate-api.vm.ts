import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, globSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Hypeman } from "@onkernel/hypeman";
import { connect, type GuestClient, restoreSequence } from "../../src/node/client/index.ts";
import { type Certificates, issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { PATIENT, refusal, SubstrateDaemon } from "../fixtures/substrate-daemon.ts";
import { tarGz } from "../fixtures/tar-gz.ts";
import { CONSOLE_LOG, qemusBelow } from "./harness/qemu.ts";

const ROOT = join(import.meta.dirname, "../..");
const TOKEN = "substrate-token-0123456789abcdef";
const CREDENTIALS = "/srv/credentials";
const WORKLOAD = ["/bin/sh", "-c", "trap 'exit 42' TERM; while :; do sleep 1 & wait $!; done"];

type Box = Hypeman.Instance;

describe("machines of the development substrate", () => {
  let daemon: SubstrateDaemon;
  let client: Hypeman;
  let certificates: Certificates;
  let box: Box;

  before(async () => {
    daemon = await SubstrateDaemon.start((prepared) => {
      prepared.args = PATIENT;
    });
    client = daemon.client();
    certificates = await issueCertificates();
  });
  after(() => daemon[Symbol.asyncDispose]());

  /** A client of an instance's agent, at the address from the API. */
  function dial({ network }: Box): GuestClient & Disposable {
    const guest = connect({
      address: `${network?.ip}:7071`,
      caPem: certificates.ca,
      certPem: certificates.client.cert,
      keyPem: certificates.client.key,
      token: TOKEN,
      serverName: SERVER_NAME,
    });
    return Object.assign(guest, { [Symbol.dispose]: () => guest.close() });
  }

  async function reach(instance: Box): Promise<GuestClient & Disposable> {
    for (;;) {
      const guest = dial(instance);
      if ((await guest.health({ deadlineMs: 10_000 }).catch(() => undefined)) !== undefined) return guest;
      guest.close();
      await pause(100);
    }
  }

  const consoleOf = ({ id }: Pick<Box, "id">): string =>
    readFileSync(join(daemon.state, "instances", id, CONSOLE_LOG), "latin1");

  /** Waits for a state. Fails with the reason if the instance ends instead. */
  async function becomes(name: string, state: Box["state"]): Promise<Box> {
    for (;;) {
      const found = await client.instances.get(name);
      if (found.state === state) return found;
      assert.notEqual(found.state, "Stopped", consoleOf(found));
      await pause(50);
    }
  }

  async function print(guest: GuestClient, script: string): Promise<string> {
    return (await guest.run({ args: ["/bin/sh", "-c", script] })).stdout.toString().trim();
  }

  /** Number of machines that run, without asking the API. */
  const machines = (): number => qemusBelow(daemon.state).length;

  test("boots an instance whose entrypoint is the agent, from volumes; Health answers at the address that the API tells", async () => {
    const [archive = ""] = globSync(join(ROOT, "dist/guest-agent-*-linux-x64.tar.gz"));
    await client.volumes.createFromArchive(readFileSync(archive), {
      name: "guest-agent",
      id: "guest-agent",
      size_gb: 1,
    });
    const credentials = tarGz([
      { name: "token", content: TOKEN, mode: 0o600 },
      { name: "ca.pem", content: certificates.ca },
      { name: "server.pem", content: certificates.server.cert },
      { name: "server.key", content: certificates.server.key, mode: 0o600 },
      { name: "process.json", content: JSON.stringify({ args: WORKLOAD, env: { API_KEY: "declared" } }), mode: 0o600 },
    ]);
    await client.volumes.createFromArchive(credentials, { name: "box-credentials", id: "box-credentials", size_gb: 1 });
    await daemon.imageReady("busybox");
    const [folder = ""] = /guest-agent-[^/]*-linux-x64(?=\.tar\.gz$)/.exec(archive) ?? [];
    box = await client.instances.create({
      name: "box",
      image: "busybox",
      entrypoint: [`/srv/guest-agent/${folder}/guest-agent`],
      cmd: ["run"],
      env: {
        SVC_GUEST_PORT: "7071",
        SVC_INSTANCE_TOKEN_FILE: `${CREDENTIALS}/token`,
        SVC_TLS_CERT_FILE: `${CREDENTIALS}/server.pem`,
        SVC_TLS_KEY_FILE: `${CREDENTIALS}/server.key`,
        SVC_TLS_CLIENT_CA_FILE: `${CREDENTIALS}/ca.pem`,
        SVC_PROCESS_SPEC_FILE: `${CREDENTIALS}/process.json`,
        SVC_WORKLOAD_SOCKET: "/run/guest/workload.sock",
      },
      volumes: [
        { volume_id: "guest-agent", mount_path: "/srv/guest-agent", readonly: true },
        { volume_id: "box-credentials", mount_path: CREDENTIALS, readonly: true, overlay: true, overlay_size: "64MB" },
      ],
      network: { egress: { enabled: true } },
      tags: { "svc.node_id": "node-7" },
    });
    assert.ok(box.state === "Initializing" || box.state === "Running", box.state);
    assert.ok(!JSON.stringify(box).includes("egress"), "it is taken and never told");
    assert.equal((await becomes("box", "Running")).id, box.id);
    using guest = await reach(box);
    assert.equal(await print(guest, "echo $API_KEY $SVC_GUEST_PORT"), "declared");
    assert.equal(await print(guest, `touch /srv/guest-agent/x 2>&1 | grep -o 'Read-only'`), "Read-only");
    await guest.writeFile(`${CREDENTIALS}/written`, Buffer.from("above"));
    assert.equal(await print(guest, `cat ${CREDENTIALS}/written`), "above");
  });

  test("goes on with its machines when the daemon is killed; the next one has them as Running", async () => {
    using guest = await reach(box);
    const counting = guest.exec({ args: ["/bin/sh", "-c", "while :; do echo beat; sleep 0.1; done"] });
    counting.stderr.resume();
    const fiveBeats = async (): Promise<void> => {
      for (let beats = 0; beats < 5; beats++) await once(counting.stdout, "data");
    };
    await counting.started;
    await fiveBeats();
    await daemon.end("SIGKILL");
    await assert.rejects(client.instances.list(), "while it is down nothing is answered");
    await fiveBeats();
    await daemon.startAgain();
    client = daemon.client();
    await daemon.logged(new RegExp(`instance ${box.id} is adopted`));
    assert.deepEqual(
      (await client.instances.list({ tags: { "svc.node_id": "node-7" } })).map(({ id, state }) => [id, state]),
      [[box.id, "Running"]],
    );
    await fiveBeats();
    counting.cancel();
    await counting.wait().catch(() => undefined);
  });

  test("standby ends the machine, restore continues it: the same address, the same processes, a clock that is behind", async () => {
    let uptime: number;
    {
      using guest = await reach(box);
      await print(guest, "echo kept > /run/marker");
      uptime = Number(await print(guest, "cut -d. -f1 /proc/uptime"));
    }
    assert.equal((await client.instances.standby("box")).state, "Standby");
    assert.equal(machines(), 0);
    assert.deepEqual(await client.instances.list(), [], "the usual listing is of what is awake");
    assert.deepEqual(
      (await client.instances.list({ state: "Standby" })).map(({ name }) => name),
      ["box"],
    );
    const restored = await client.instances.restore("box");
    assert.deepEqual([restored.state, restored.network], ["Running", box.network]);
    const { duties, health } = await restoreSequence(() => Promise.resolve(dial(box)), { reachMs: 600_000 });
    assert.deepEqual([duties.degraded, duties.clockStepped, health.alive], ["", true, true]);
    using guest = dial(box);
    assert.equal(await print(guest, "cat /run/marker"), "kept");
    assert.ok(Number(await print(guest, "cut -d. -f1 /proc/uptime")) >= uptime);
  });

  test("a restore waits for the port of the machine before it, which is held a little longer than its process lives", async () => {
    await client.instances.standby("box");
    const holder = createServer().listen({ port: 7071, host: box.network?.ip ?? "" });
    await once(holder, "listening");
    const restoring = client.instances.restore("box");
    const complaints = join(daemon.state, "instances", box.id, "qemu.log");
    while (!readFileSync(complaints, "utf8").includes("host forwarding")) await pause(20);
    holder.close();
    assert.equal((await restoring).state, "Running");
    await restoreSequence(() => Promise.resolve(dial(box)), { reachMs: 600_000 });
  });

  test("a snapshot leaves its source running; forks of it and of the source run beside it, and outlive both", async () => {
    const snapshot = await client.instances.snapshots.create("box", {
      kind: "Standby",
      name: "base",
      tags: { a: "b" },
    });
    assert.ok(snapshot.size_bytes > 2 ** 24);
    assert.equal((await client.instances.get("box")).state, "Running");
    const one = await client.snapshots.fork(snapshot.id, { name: "fork-1" });
    const refused = client.instances.fork("box", { name: "fork-2" });
    assert.deepEqual(await refusal(refused), { status: 409, code: "invalid_state" }, "from_running has to be said");
    const two = await client.instances.fork("box", { name: "fork-2", from_running: true });
    assert.deepEqual([one.state, two.state], ["Running", "Running"]);
    assert.equal(new Set([box, one, two].map(({ network }) => network?.ip)).size, 3);
    for (const each of [box, one, two]) {
      await restoreSequence(() => Promise.resolve(dial(each)), { reachMs: 600_000 });
      using guest = dial(each);
      await print(guest, `echo ${each.name} > /run/marker`);
    }
    await client.snapshots.delete(snapshot.id);
    await client.instances.delete("box");
    for (const each of [one, two]) {
      using guest = dial(each);
      assert.equal(await print(guest, "cat /run/marker"), each.name, "nothing is shared that one of them writes to");
    }
    await client.instances.delete("fork-2");
    box = one;
  });

  test("a stop reaches the workload through the agent, whose status is told; a start boots from the same disk", async () => {
    const stopped = await client.instances.stop(box.id);
    assert.deepEqual([stopped.state, stopped.exit_code], ["Stopped", 42]);
    assert.equal(machines(), 0);
    await client.instances.start(box.id, {});
    await becomes(box.name, "Running");
    using guest = await reach(box);
    assert.equal(await print(guest, "cat /run/marker"), box.name);
  });

  test("without its image an instance stays on standby", async () => {
    await client.instances.standby(box.id);
    await client.images.delete("busybox");
    assert.deepEqual(await refusal(client.instances.restore(box.id)), { status: 500, code: "internal_error" });
    assert.equal((await client.instances.get(box.id)).state, "Standby");
    await client.images.create({ name: "busybox" });
    await daemon.imageReady("busybox");
    await client.instances.delete(box.id);
    await client.volumes.delete("box-credentials");
  });

  test("of two that want to write to one volume at once, one is made", async () => {
    await client.volumes.create({ name: "wanted", id: "wanted", size_gb: 1 });
    const volumes = [{ volume_id: "wanted", mount_path: "/srv/wanted" }];
    const about = { image: "busybox", cmd: ["sleep", "1000000"], volumes, skip_guest_agent: true, size: "300MB" };
    const both = ["one", "other"].map((name) => client.instances.create({ ...about, name }));
    const refused = await Promise.all(both.map((call) => refusal(call).catch(() => undefined)));
    assert.deepEqual(
      refused.filter((each) => each !== undefined),
      [{ status: 500, code: "internal_error" }],
    );
    const made = await client.instances.list();
    assert.equal(made.length, 1);
    for (const { id } of made) await client.instances.delete(id);
    await client.volumes.delete("wanted");
  });

  test("an instance without the substrate's agent runs, ends, and cannot be put on standby; a writable volume keeps what it wrote", async () => {
    await client.volumes.create({ name: "data", id: "data", size_gb: 1 });
    await client.instances.create({
      name: "plain",
      image: "busybox",
      cmd: [
        "/bin/sh",
        "-c",
        'echo "$0 isn\'t lost" >> /srv/deep/data/file; sync; echo WRITTEN; exec sleep 1000000',
        "it",
      ],
      volumes: [{ volume_id: "data", mount_path: "/srv/deep/data" }],
      skip_guest_agent: true,
      network: { enabled: false },
      size: "300MB",
    });
    const { id, network, size } = await becomes("plain", "Running");
    while (!consoleOf({ id }).includes("WRITTEN")) await becomes("plain", "Running").then(() => pause(50));
    assert.deepEqual([network, size], [{ enabled: false, ip: null, mac: null }, "300.0 MB"]);
    assert.deepEqual(await refusal(client.instances.standby("plain")), { status: 500, code: "internal_error" });
    assert.deepEqual(await refusal(client.instances.fork("plain", { name: "no", from_running: true })), {
      status: 501,
      code: "not_supported",
    });
    assert.equal((await client.instances.get("plain")).state, "Running");
    const stopped = await client.instances.stop("plain");
    assert.deepEqual([stopped.state, stopped.exit_code], ["Stopped", null], "cut off: nobody could be asked");
    const count = "test $(grep -c 'it isn.t lost' /srv/deep/data/file) = 1 && exit 7";
    await client.instances.start("plain", { cmd: ["/bin/sh", "-c", count] });
    const ended = await becomes("plain", "Stopped");
    assert.deepEqual([ended.exit_code, ended.exit_message], [7, "exit 7"]);
    await client.instances.delete("plain");
  });

  test("purging ends what runs, and leaves nothing", async () => {
    await client.instances.create({ name: "last", image: "busybox", cmd: ["sleep", "1000000"] });
    assert.equal(await daemon.end("SIGTERM"), 0);
    await daemon.logged(/machines that go on: 1/);
    assert.equal(machines(), 1);
    const { state } = daemon;
    await daemon[Symbol.asyncDispose]();
    assert.deepEqual([qemusBelow(state), existsSync(state)], [[], false]);
  });
});
