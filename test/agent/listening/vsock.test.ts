import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import type { VsockConnection, VsockListener } from "../../../src/agent/domain/index.ts";
import { descriptorOf } from "../../../src/agent/internals/index.ts";
import { vsockListener } from "../../../src/agent/platform/vsock.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { until } from "../../fixtures/awake.ts";
import { tlsMaterial } from "../../fixtures/certificates.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { addon } from "../../fixtures/spawning.ts";

/*
 * The tests' machine must not open sockets of AF_VSOCK. Here the connections of a unix socket stand for them, with any
 * peer's CID; test/vm has the real ones.
 */

const HOST = 2;
/** Type of a frame (RFC 9113, 6.5). */
const SETTINGS = 4;
const ANOTHER_PEER = { 1: "a loopback connection", 3: "another guest, or a Nitro enclave's parent" } as const;

/** A vsock listener whose connections come over a unix socket, all from this CID. */
function listenerOn(path: string, cid: number): { readonly listener: VsockListener; readonly server: Server } {
  const server = createServer({ pauseOnConnect: true });
  return {
    server,
    listener: {
      start: (accepted) => {
        server.on("connection", (socket) => {
          const fd = addon.duplicate(descriptorOf(socket) ?? -1);
          accepted({ fd, cid, port: 1024 });
          // The duplicate stays connected.
          socket.destroy();
        });
        server.listen(path);
      },
      close: () => server.close(),
    },
  };
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
      const { listener, server: unix } = listenerOn(directory.at("vsock"), HOST);
      server.server.serveVsock(listener, withTls ? tlsMaterial(own, ca) : undefined);
      await once(unix, "listening");
      const { certificates } = server;
      using peer = await RawHttp2.dial({ socketPath: directory.at("vsock"), ...(withTls && { certificates }) });
      assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
      assert.equal(await peer.ask("Health", "a wrong token"), "16");
      const { fields } = await server.logged("connection_opened");
      assert.equal(fields["peer"], "vsock:2:1024");
      await server[Symbol.asyncDispose]();
      await peer.ended();
      assert.equal(unix.listening, false);
    });

  test("a vsock port sends nothing before its client does", async () => {
    // firecracker-go-sdk 1.0.0 does (vsock/dial.go, tryConnReadUntil); test/foreign/vsock.nightly.ts runs it.
    await using directory = await testDirectory();
    await using server = await start();
    const { listener, server: unix } = listenerOn(directory.at("vsock"), HOST);
    server.server.serveVsock(listener, undefined);
    await once(unix, "listening");
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
      const { listener, server: unix } = listenerOn(directory.at("vsock"), HOST);
      server.server.serveVsock(listener, withTls ? tlsMaterial(own, ca) : undefined);
      await once(unix, "listening");
      const { certificates } = server;
      using peer = await RawHttp2.dial({ socketPath: directory.at("vsock"), ...(withTls && { certificates }) });
      for (let n = 0; n < 3; n++) assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    });

  for (const [cid, who] of Object.entries(ANOTHER_PEER))
    test(`a vsock port closes and logs ${who} (CID ${cid})`, async () => {
      await using directory = await testDirectory();
      await using server = await start();
      const { listener, server: unix } = listenerOn(directory.at("vsock"), Number(cid));
      server.server.serveVsock(listener, undefined);
      await once(unix, "listening");
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

  test("the addon accepts 40 connections in one tick until the listener closes", async () => {
    const fd = addon.listenPort(0);
    const probe = createServer().listen({ fd: addon.duplicate(fd) });
    await once(probe, "listening");
    const { port } = probe.address() as AddressInfo;
    probe.close();
    const accepted: VsockConnection[] = [];
    const listener = vsockListener(addon, fd);
    listener.start((connection) => accepted.push(connection), assert.fail);
    const sockets = Array.from({ length: 40 }, () => connect(port, "127.0.0.1"));
    await until(() => accepted.length === 40, "all are accepted");
    assert.equal(new Set(accepted.map((connection) => connection.fd)).size, 40);
    listener.close();
    listener.close();
    for (const socket of sockets) socket.destroy();
    for (const connection of accepted) closeSync(connection.fd);
    const refused = connect(port, "127.0.0.1");
    const [error] = (await once(refused, "error")) as [NodeJS.ErrnoException];
    assert.equal(error.code, "ECONNREFUSED");
  });
});
