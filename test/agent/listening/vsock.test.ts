import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync, renameSync } from "node:fs";
import { constants } from "node:os";
import { connect, createServer } from "node:net";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import type { VsockPeer } from "../../../src/agent/domain/index.ts";
import { descriptorOf } from "../../../src/agent/internals/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { tlsMaterial } from "../../fixtures/certificates.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { addon } from "../../fixtures/spawning.ts";

/*
 * The tests' machine must not open sockets of AF_VSOCK. Here a unix socket stands for the vsock port: Node knows the
 * type of neither when it gets the descriptor, and any CID can be given to the peers. test/vm has the real ones.
 */

const HOST = 2;
/** Type of a frame (RFC 9113, 6.5). */
const SETTINGS = 4;
const ANOTHER_PEER = { 1: "a loopback connection", 3: "another guest, or a Nitro enclave's parent" } as const;

/** A listening socket at this path, as the addon opens one. */
async function listeningAt(path: string): Promise<number> {
  const server = createServer().listen(`${path}.bound`);
  await once(server, "listening");
  // Node removes the path that it has bound when it closes its own descriptor.
  renameSync(`${path}.bound`, path);
  const fd = addon.duplicate(descriptorOf(server) ?? -1);
  server.close();
  return fd;
}

/** All peers have this CID. */
function peersOf(cid: number): VsockPeer {
  return () => [cid, 1024];
}

function start(): Promise<TestServer> {
  return startManagement((router) =>
    router.unary(GuestAgent.method.health, () => create(HealthResponseSchema, { alive: true })),
  );
}

describe("a vsock port", () => {
  for (const withTls of [false, true])
    test(`a vsock port serves the host ${withTls ? "with" : "without"} TLS until the agent stops`, async () => {
      await using directory = await testDirectory();
      const server = await start();
      const { ca, server: own } = server.certificates;
      const fd = await listeningAt(directory.at("vsock"));
      await server.server.listenVsock(fd, peersOf(HOST), withTls ? tlsMaterial(own, ca) : undefined);
      const { certificates } = server;
      using peer = await RawHttp2.dial({ socketPath: directory.at("vsock"), ...(withTls && { certificates }) });
      assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
      assert.equal(await peer.ask("Health", "a wrong token"), "16");
      const { fields } = await server.logged("connection_opened");
      assert.equal(fields["peer"], "vsock:2:1024");
      await server[Symbol.asyncDispose]();
      await peer.ended();
      const refused = connect(directory.at("vsock"));
      const [error] = (await once(refused, "error")) as [NodeJS.ErrnoException];
      assert.equal(error.code, "ECONNREFUSED");
    });

  test("a vsock port sends nothing before its client does", async () => {
    // firecracker-go-sdk 1.0.0 does (vsock/dial.go, tryConnReadUntil); test/foreign/vsock.nightly.ts runs it.
    await using directory = await testDirectory();
    await using server = await start();
    await server.server.listenVsock(await listeningAt(directory.at("vsock")), peersOf(HOST), undefined);
    const silent = connect(directory.at("vsock"));
    await once(silent, "connect");
    // Accepted after it.
    using peer = await RawHttp2.dial({ socketPath: directory.at("vsock") });
    assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    assert.deepEqual([silent.read(), silent.bytesRead], [null, 0]);
    silent.write(Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1"));
    const [first] = (await once(silent, "data")) as [Buffer];
    assert.equal(first[3], SETTINGS);
    silent.destroy();
  });

  for (const withTls of [false, true])
    test(`a vsock port sends an answer completely, ${withTls ? "with" : "without"} TLS`, async () => {
      await using directory = await testDirectory();
      const services = Array.from({ length: 2_500 }, (_, n) => `service.number.${n}`);
      await using server = await startManagement((router) =>
        router.unary(GuestAgent.method.health, () => create(HealthResponseSchema, { alive: true, services })),
      );
      const { ca, server: own } = server.certificates;
      const fd = await listeningAt(directory.at("vsock"));
      await server.server.listenVsock(fd, peersOf(HOST), withTls ? tlsMaterial(own, ca) : undefined);
      const { certificates } = server;
      using peer = await RawHttp2.dial({ socketPath: directory.at("vsock"), ...(withTls && { certificates }) });
      for (let n = 0; n < 3; n++) assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    });

  test("a vsock port with TLS names its listener in the log if the peer leaves during the handshake", async () => {
    await using directory = await testDirectory();
    await using server = await start();
    const { ca, server: own } = server.certificates;
    const fd = await listeningAt(directory.at("vsock"));
    await server.server.listenVsock(fd, peersOf(HOST), tlsMaterial(own, ca));
    const socket = connect(directory.at("vsock"));
    await once(socket, "connect");
    socket.end();
    const { fields } = await server.logged("connection_unused");
    assert.deepEqual([fields["listener"], fields["peer"]], ["vsock", "vsock:2:1024"]);
  });

  for (const [cid, who] of Object.entries(ANOTHER_PEER))
    test(`a vsock port closes and logs ${who} (CID ${cid})`, async () => {
      await using directory = await testDirectory();
      await using server = await start();
      const fd = await listeningAt(directory.at("vsock"));
      await server.server.listenVsock(fd, peersOf(Number(cid)), undefined);
      const socket = connect(directory.at("vsock"));
      socket.on("error", () => {});
      await once(socket, "close");
      const { fields } = await server.logged("connection_refused");
      assert.deepEqual(
        [fields["listener"], fields["peer"], fields["reason"]],
        ["vsock", `vsock:${cid}:1024`, "the peer is not the host (CID 2)"],
      );
      assert.equal(server.server.sockets, 0);
    });

  test("a vsock peer that disconnects at once does not block 40 others", async () => {
    await using directory = await testDirectory();
    await using server = await start();
    let isGone = true;
    const peer: VsockPeer = () => (isGone ? -constants.errno.ENOTCONN : [HOST, 1024]);
    await server.server.listenVsock(await listeningAt(directory.at("vsock")), peer, undefined);
    const gone = connect(directory.at("vsock"));
    await once(gone, "close");
    isGone = false;
    const peers = await Promise.all(
      Array.from({ length: 40 }, () => RawHttp2.dial({ socketPath: directory.at("vsock") })),
    );
    for (const each of peers) assert.equal(await each.ask("Health", TEST_TOKEN), "0");
    assert.equal(server.server.sockets, 40);
    assert.ok(!server.log.some(({ event }) => event === "connection_refused"));
    for (const each of peers) each[Symbol.dispose]();
  });

  test("the addon's vsockPeer returns a negative errno if the descriptor has no peer", () => {
    assert.equal(addon.vsockPeer(-1), -constants.errno.EBADF);
    const fd = addon.listenPort(0);
    assert.equal(addon.vsockPeer(fd), -constants.errno.ENOTCONN);
    closeSync(fd);
  });
});
