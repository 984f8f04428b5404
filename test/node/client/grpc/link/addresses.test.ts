import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { describe, test } from "node:test";
import { createServer } from "node:tls";
import { CONNECTION_CHANNEL } from "../../../../../src/node/client/grpc/tracing.ts";
import { connect, type ConnectOptions, type GuestError } from "../../../../../src/node/client/index.ts";
import { GuestAgent } from "../../../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type SocketAgent, startSocketAgent } from "../../../../fixtures/agent.ts";
import { issueCertificates } from "../../../../fixtures/certificates.ts";
import { testDirectory } from "../../../../fixtures/files.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { startStandIn } from "../../../../fixtures/stand-in-agent.ts";
import { failureOf, optionsFor, thrownBy } from "../../../../fixtures/guest-client.ts";
import { type VmmBehaviour, vmmSocket } from "../../../../fixtures/vmm-socket.ts";

const agent: SocketAgent = forAllTests(await startSocketAgent());
const directory = forAllTests(await testDirectory());
const PORT = 7071;
let sockets = 0;

/** A VMM's socket in front of the agent, and its address. */
async function vmm(behaviour: VmmBehaviour = "joins") {
  const path = directory.at(`vm-${sockets++}.sock`);
  return Object.assign(await vmmSocket(path, agent.socketPath, behaviour), { address: `vsock+unix:${path}:${PORT}` });
}

function options(address: string | readonly string[], more: Partial<ConnectOptions> = {}): ConnectOptions {
  return { address, token: agent.token, ...more };
}

async function failureAt(address: string | readonly string[], more: Partial<ConnectOptions> = {}): Promise<GuestError> {
  using client = connect(options(address, more));
  return await failureOf(client.health({ requestTimeoutMs: 60_000 }));
}

describe("an address vsock+unix", () => {
  test("vsock+unix sends CONNECT once for each connection", async () => {
    await using device = await vmm();
    using client = connect(options(device.address));
    assert.equal(client.addressInUse, undefined);
    assert.equal((await client.health()).alive, true);
    assert.equal(client.addressInUse, device.address);
    const input = Buffer.alloc(3_000_000, "0123456789");
    const { stdout } = await client.run(["cat"], { input });
    assert.ok(Buffer.from(stdout).equals(input));
    assert.deepEqual(device.asked, [`CONNECT ${PORT}`]);
  });

  test("vsock+unix loses no bytes that arrive together with the VMM's answer", async () => {
    await using server = await startStandIn({ service: GuestAgent, answers: { Health: () => ({ alive: true }) } });
    const path = directory.at(`vm-${sockets++}.sock`);
    await using device = await vmmSocket(path, server.address.replace("unix:", ""));
    // An older agent sends its SETTINGS before its client has said anything. By the end of a call it has.
    device.beforeAnswer = async () => {
      using other = server.redial();
      await other.health();
    };
    using client = connect(options(`vsock+unix:${path}:${PORT}`));
    assert.equal((await client.health()).alive, true);
  });

  test("a vsock+unix client accepts a CONNECT answer that arrives byte by byte", async () => {
    await using device = await vmm("joins slowly");
    using client = connect(options(device.address));
    assert.equal((await client.health()).alive, true);
  });

  test("after a vsock+unix client cancels its command, a new client can connect", async () => {
    await using device = await vmm();
    {
      using client = connect(options(device.address));
      const command = client.start(["sleep", "1000"]);
      await command.started;
      command.cancel();
      await assert.rejects(command.wait());
    }
    using next = connect(options(device.address));
    assert.equal((await next.health()).alive, true);
    assert.equal(device.asked.length, 2);
  });

  for (const [behaviour, words] of [
    ["never answers", /does not answer CONNECT 7071/],
    ["answers OK and nothing more", /it accepts the connection but does not speak HTTP\/2 within \d+ ms$/],
    ["answers OK and half a frame", /it accepts the connection but does not speak HTTP\/2 within \d+ ms$/],
    ["never ends its answer", /answered CONNECT 7071 with "1{100}" instead of OK$/],
    ["closes", /the connection was closed/],
    ["greets", /answered CONNECT 7071 with "220 mail.example ready" instead of OK/],
  ] as const)
    test(`calls fail with UNAVAILABLE if the VMM ${behaviour}`, async () => {
      await using device = await vmm(behaviour);
      const { status, message } = await failureAt(device.address, { connectTimeoutMs: 3_000 });
      assert.equal(status, "UNAVAILABLE");
      assert.match(message, words);
      assert.ok(message.includes(device.address), message);
    });

  test("a call's deadline error names each address and its failed step", async () => {
    await using device = await vmm("never answers");
    using client = connect(options([`unix:${directory.at("nobody.sock")}`, device.address]));
    const { status, message } = await failureOf(client.health({ requestTimeoutMs: 3_000 }));
    assert.equal(status, "DEADLINE_EXCEEDED");
    assert.match(message, /unix:.*nobody\.sock: connect ENOENT/);
    assert.ok(message.includes(`${device.address}: the VMM does not answer CONNECT ${PORT}`), message);
  });

  test("`connectTimeoutMs` may be longer than the longest timer of Node", async () => {
    await using device = await vmm();
    using client = connect(options(device.address, { connectTimeoutMs: 2 ** 40 }));
    assert.equal((await client.health()).alive, true);
  });

  test("a vsock address without a valid port or path is rejected", () => {
    for (const wrong of [
      "vsock+unix:/run/x",
      "vsock+unix:x:1",
      "vsock+unix:/x:0",
      "vsock:3",
      "vsock:x:1",
      "vsock:3:4294967295",
    ]) {
      const { code, message } = thrownBy(() => connect(options(wrong)));
      assert.deepEqual([code, message.includes(wrong)], ["INVALID_ARGUMENT", true], message);
    }
  });
});

describe("several addresses", () => {
  for (const behaviour of [
    "never answers",
    "answers OK and nothing more",
    "answers OK and half a frame",
    "closes",
  ] as const)
    test(`the client uses the next address if the VMM ${behaviour}`, async () => {
      await using device = await vmm(behaviour);
      const second = `unix:${agent.socketPath}`;
      using client = connect(options([device.address, second], { connectTimeoutMs: 2_000 }));
      assert.equal((await client.health({ requestTimeoutMs: 60_000 })).alive, true);
      assert.equal(client.addressInUse, second);
    });

  for (const [behaviour, step] of [
    ["never answers", "the VMM does not answer CONNECT 7071"],
    ["answers OK and nothing more", "it accepts the connection but does not do a TLS handshake"],
  ] as const)
    test(`with TLS, the client uses the next address if the VMM ${behaviour}`, async () => {
      await using device = await vmm(behaviour);
      const tcp = optionsFor(agent);
      const failures: string[] = [];
      const listen = (message: unknown): void => {
        const { event, reason = "" } = message as { readonly event: string; readonly reason?: string };
        if (event === "failed") failures.push(reason);
      };
      subscribe(CONNECTION_CHANNEL, listen);
      const addresses = [device.address, String(tcp.address)];
      using client = connect({ ...tcp, address: addresses, connectTimeoutMs: 4_000 });
      assert.equal((await client.health({ requestTimeoutMs: 60_000 })).alive, true);
      unsubscribe(CONNECTION_CHANNEL, listen);
      assert.equal(client.addressInUse, tcp.address);
      assert.equal(failures.length, 1);
      assert.ok(failures[0]?.startsWith(`${device.address}: ${step} within `), String(failures));
    });

  test("each silent address gets an equal share of the connect timeout", async () => {
    await using first = await vmm("never answers");
    await using second = await vmm("answers OK and nothing more");
    await using third = await vmm("never answers");
    const message = (await failureAt([first.address, second.address, third.address], { connectTimeoutMs: 3_000 }))
      .message;
    const limitsMs = [...message.matchAll(/ within (\d+) ms/g)].map(([, ms]) => Number(ms));
    assert.equal(limitsMs.length, 3, message);
    // An attempt that ends late takes from those after it.
    assert.equal(limitsMs[0], 900);
    assert.ok(
      limitsMs.every((ms) => ms > 0 && ms <= 900),
      message,
    );
  });

  test("if a TLS server closes the connection, the error says so at once", async () => {
    const tcp = optionsFor(agent);
    const { server, ca } = await issueCertificates();
    const path = directory.at("closes.sock");
    await using closes = createServer({ cert: server.cert, key: server.key, ALPNProtocols: ["h2"] }, (socket) => {
      socket
        .on("error", () => socket.destroy())
        .resume()
        .end();
    }).listen(path);
    await once(closes, "listening");
    await using _device = await vmmSocket(directory.at("closes-vm.sock"), path);
    const address = `vsock+unix:${directory.at("closes-vm.sock")}:${PORT}`;
    using client = connect({ ...tcp, caPem: ca, address, connectTimeoutMs: Number.POSITIVE_INFINITY });
    const { code, message } = await failureOf(client.health({ requestTimeoutMs: 60_000 }));
    assert.equal(code, "CONNECTION_CLOSED");
    const cause = "it accepts the connection but does not speak HTTP/2: the connection was closed";
    assert.equal(message, `${address}: ${cause}`);
  });

  test("of several addresses, the client uses the first one that answers", async () => {
    await using device = await vmm();
    const tcp = optionsFor(agent);
    const nobody = `unix:${directory.at("nobody.sock")}`;
    using client = connect({ ...tcp, address: [nobody, String(tcp.address), `unix:${agent.socketPath}`] });
    assert.equal((await client.health()).alive, true);
    assert.equal(client.addressInUse, tcp.address);
    assert.equal(device.asked.length, 0);
  });

  test("if no address answers, the error names each address and its cause", async () => {
    await using device = await vmm("closes");
    const nobody = `unix:${directory.at("nobody.sock")}`;
    const { status, message } = await failureAt([nobody, device.address], { connectTimeoutMs: 2_000 });
    assert.equal(status, "UNAVAILABLE");
    assert.match(message, new RegExp(`${nobody}: .*ENOENT.*; ${device.address.replace("+", "\\+")}: `));
  });

  test("after a refused token or certificate, the client tries no further address", async () => {
    const tcp = optionsFor(agent);
    const other = await issueCertificates();
    const addresses = [String(tcp.address), `unix:${agent.socketPath}`];
    {
      using client = connect({ ...tcp, address: addresses, caPem: other.ca });
      const { code, message } = await failureOf(client.health({ requestTimeoutMs: 60_000 }));
      assert.equal(code, "SERVER_CERTIFICATE_UNTRUSTED");
      assert.ok(!message.includes(agent.socketPath), message);
    }
    {
      const { cert, key } = other.client;
      using client = connect({ ...tcp, address: addresses, certPem: cert, keyPem: key });
      assert.equal((await failureOf(client.health({ requestTimeoutMs: 60_000 }))).code, "CLIENT_CERTIFICATE_REFUSED");
    }
    using client = connect({ ...tcp, address: addresses, token: "wrong" });
    assert.equal((await failureOf(client.health({ requestTimeoutMs: 60_000 }))).status, "UNAUTHENTICATED");
    assert.equal(client.addressInUse, addresses[0]);
  });

  test("a client that reconnects tries its addresses in order, from the first", async () => {
    await using device = await vmm("closes");
    using client = connect(options([device.address, `unix:${agent.socketPath}`]));
    await client.health();
    // The duties end the connection.
    await client.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    device.behaviour = "joins";
    assert.equal((await client.health({ waitForReady: true, requestTimeoutMs: 60_000 })).alive, true);
    assert.equal(client.addressInUse, device.address);
  });
});
