import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connect } from "../../src/node/client/index.ts";
import { startSocketAgent } from "../fixtures/agent.ts";
import { failureOf } from "../fixtures/guest-client.ts";
import { dialWithin, refuses, SOCAT, VsockStage } from "./cases/vsock-cases.ts";
import { ask } from "./harness/oracle.ts";
import { VSOCK_PORT } from "./harness/vsock.ts";

const ROOT = join(import.meta.dirname, "../..");
const GUESTCTL = join(ROOT, "dist/guestctl");
/** More than the kernel's and the device's buffers together. */
const FILE_BYTES = 1024 * 1024;
const CID = 3;
const LOOPBACK = 1;
const FILE = "/srv/app/data";
const CALL_LIMIT_MS = 120_000;
/** Client's limit at a device that is stuck. */
const STUCK_LIMIT_MS = 4_000;

describe("a guest reached only over vsock, without TLS", () => {
  let stage: VsockStage;
  before(async () => {
    const guestctl = globSync("**/*.mjs", { cwd: GUESTCTL });
    stage = await VsockStage.boot(
      {
        vsock: "alone",
        hostPrograms: { ...SOCAT, "bin/node": process.execPath },
        files: guestctl.map((path) => ({ path: `opt/guestctl/${path}`, content: readFileSync(join(GUESTCTL, path)) })),
      },
      CID,
    );
  });
  after(() => stage[Symbol.asyncDispose]());

  test("Health, commands, files and kept commands work over the vsock device's socket", async () => {
    const { machine } = stage;
    using client = stage.client();
    const { alive, ready } = await client.health();
    assert.deepEqual([alive, ready], [true, true]);
    assert.equal(client.addressInUse, machine.vsockAddress);
    const data = randomBytes(FILE_BYTES);
    await client.files.writeFile(FILE, data);
    assert.ok((await client.files.readFile(FILE)).equals(data));
    const copied = await client.run(["/bin/busybox", "cat"], { input: data, encoding: "buffer" });
    assert.deepEqual([copied.exitCode, copied.stdout.equals(data)], [0, true]);
    const keep = { name: "kept" };
    await client.start(["/bin/sh", "-c", "echo before; read line; echo $line"], { stdin: true, keep }).detach();
    using again = stage.client();
    const kept = again.commands.attach("kept", { stdoutOffset: 0, stderrOffset: 0 });
    kept.stderr.resume();
    kept.stdin.end("after\n");
    assert.equal((await kept.stdout.toArray()).join(""), "before\nafter\n");
    assert.equal((await kept.wait()).exitCode, 0);
  });

  test("the agent requires the token over vsock without TLS", async () => {
    using client = connect({ address: stage.machine.vsockAddress, token: "wrong" });
    assert.equal((await failureOf(client.health())).status, "UNAUTHENTICATED");
  });

  test("an agent that listens only on vsock has no network listener", async () => {
    using client = stage.client();
    const { stdout } = await client.run(["/bin/busybox", "netstat", "-ltn"]);
    assert.match(stdout, /:7070 /, "the test's own oracle");
    assert.doesNotMatch(stdout, new RegExp(`:${VSOCK_PORT} `));
  });

  for (const [cid, who] of [
    [LOOPBACK, "the loopback"],
    [CID, "the guest's own CID"],
  ] as const)
    test(`the vsock listener closes and logs a connection from inside, by ${who}`, async () => {
      using client = stage.client();
      await refuses(stage.machine, LOOPBACK, async () => assert.equal((await dialWithin(client, cid)).length, 0));
    });

  test("the client times out if the vsock device answers but the agent does not", async () => {
    const { machine, guest } = stage;
    assert.deepEqual(await ask(machine.oraclePort, ["kill agent 19"]), ["0"]);
    using client = guest.vsockClient(machine, { connectTimeoutMs: STUCK_LIMIT_MS });
    const { status, message } = await failureOf(client.health({ requestTimeoutMs: CALL_LIMIT_MS }));
    assert.equal(status, "UNAVAILABLE");
    assert.match(message, /it accepts the connection but does not speak HTTP\/2/);
    assert.deepEqual(await ask(machine.oraclePort, ["kill agent 18"]), ["0"]);
    using again = stage.client();
    assert.equal((await again.health()).alive, true);
  });

  test("guestctl in a guest reaches an agent on the host by vsock:2:PORT", async () => {
    // What a guest sends to CID 2 comes out there (Firecracker: docs/vsock.md, "Guest-Initiated Connections").
    const socket = `${stage.host.device.socket}_${VSOCK_PORT}`;
    await using agent = await startSocketAgent({ env: { SVC_GUEST_SOCKET: socket } });
    using client = stage.client();
    await client.files.writeFile("/srv/app/creds/token", agent.token, { mode: 0o600, parents: true });
    const address = `vsock:2:${VSOCK_PORT}`;
    const guestctl = ["/bin/node", "/opt/guestctl/guestctl.mjs", "-H", address, "-c", "/srv/app/creds"];
    const health = await client.run([...guestctl, "health", "--json"]);
    assert.equal(health.exitCode, 0, health.stderr);
    const answer = JSON.parse(health.stdout) as Readonly<Record<string, unknown>>;
    assert.deepEqual([answer["alive"], answer["address_in_use"]], [true, address]);
    const args = [...guestctl, "exec", "-i", "--", "sh", "-c", 'cat; echo "$PPID"; exit 7'];
    const { stdout, exitCode, stderr } = await client.run(args, { input: "hello\n" });
    assert.equal(exitCode, 7, stderr);
    assert.equal(stdout, `hello\n${agent.pid}\n`);
  });
});

describe("a guest reached over vsock and TCP, both with mutual TLS", () => {
  let stage: VsockStage;
  before(async () => {
    stage = await VsockStage.boot({ vsock: "beside TCP" }, CID);
  });
  after(() => stage[Symbol.asyncDispose]());

  test("the agent rejects a vsock client without a certificate", async () => {
    const { machine, guest } = stage;
    using client = connect({ address: machine.vsockAddress, token: guest.token, connectTimeoutMs: STUCK_LIMIT_MS });
    assert.equal((await failureOf(client.health({ requestTimeoutMs: CALL_LIMIT_MS }))).status, "UNAVAILABLE");
  });

  test("the client uses its second address if the vsock device never answers", async () => {
    const { machine, guest, host } = stage;
    const addresses = [machine.vsockAddress, `127.0.0.1:${machine.agentPort}`];
    using first = guest.client(machine, { address: addresses });
    assert.equal((await first.health()).alive, true);
    assert.equal(first.addressInUse, addresses[0]);
    host.signal("SIGSTOP");
    using client = guest.client(machine, { address: addresses, connectTimeoutMs: 2 * STUCK_LIMIT_MS });
    assert.equal((await client.health({ requestTimeoutMs: CALL_LIMIT_MS })).alive, true);
    assert.equal(client.addressInUse, addresses[1]);
    host.signal("SIGCONT");
    await host.device.answers();
    using again = guest.client(machine, { address: addresses });
    await again.health();
    assert.equal(again.addressInUse, addresses[0]);
  });
});
