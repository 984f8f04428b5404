import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { describe, test } from "node:test";
import tls from "node:tls";
import { create } from "@bufbuild/protobuf";
import type { GuestError } from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { until } from "../../fixtures/awake.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { startManagement, TEST_TOKEN, type TestServer, type TestServerOptions } from "../../fixtures/management.ts";
import { CODE, FRAME, frame, type Frame, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { systemClock } from "../../fixtures/clocks.ts";

const { health } = GuestAgent.method;

describe("the management port", () => {
  const STRANGERS: readonly [string, RegExp, (server: TestServer) => Promise<void>][] = [
    [
      "sends plain text",
      /^TLS handshake failed: ERR_SSL_/,
      async ({ port }) => {
        const socket = net.connect(port, "127.0.0.1");
        socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await closed(socket);
      },
    ],
    [
      "speaks HTTP/1.1 inside TLS",
      /does not speak HTTP\/2/,
      async (server) => {
        const socket = await connectTls(server, { ALPNProtocols: [] });
        socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await closed(socket);
      },
    ],
    [
      "offers HTTP/1.1 only",
      /^TLS handshake failed: /,
      (server) => assert.rejects(connectTls(server, { ALPNProtocols: ["http/1.1"] })),
    ],
    [
      "offers TLS 1.2 only",
      /ERR_SSL_UNSUPPORTED_PROTOCOL/,
      (server) => assert.rejects(connectTls(server, { maxVersion: "TLSv1.2" })),
    ],
    [
      "sends garbage after the handshake",
      /^invalid connection preface: not HTTP\/2 \(PROTOCOL_ERROR\)$/,
      async (server) => {
        using peer = await RawHttp2.dial(server, { isSilent: true });
        peer.send(Buffer.alloc(10_000, 0xa5));
        await peer.ended();
      },
    ],
  ];
  for (const [what, reason, act] of STRANGERS)
    test(`a peer that ${what} is disconnected and logged`, async () => {
      await using server = await start();
      await act(server);
      const isRefusal = ({ event }: { event: string }): boolean => /^connection_(?:refused|failed)$/.test(event);
      await until(() => server.log.some(isRefusal), "the log has it");
      const { reason: told, peer } = server.log.find(isRefusal)?.fields ?? {};
      assert.match(String(told), reason);
      assert.match(String(peer), /^127\.0\.0\.1:\d+$/);
      await assertAlive(server);
    });

  test("the agent accepts a client among 200 half-open connections", async () => {
    await using server = await start();
    const sockets = Array.from({ length: 200 }, () => net.connect(server.port, "127.0.0.1"));
    for (const socket of sockets) socket.on("error", () => {});
    await Promise.all(sockets.map((socket) => once(socket, "connect")));
    await assertAlive(server);
    await server.logged("connection_refused", (fields) =>
      /evicted for a new connection/.test(String(fields["reason"])),
    );
    for (const socket of sockets) socket.destroy();
  });

  test("unauthenticated connections cannot displace an authenticated client", async () => {
    await using server = await start({ limits: { connections: 4 } });
    using peers = new DisposableStack();
    const callWith = async (token: string): Promise<RawHttp2> => {
      const peer = peers.use(await RawHttp2.dial(server));
      await peer.ask("Health", token);
      return peer;
    };
    for (let count = 0; count < 4; count++) await callWith("wrong");
    const node = await callWith(TEST_TOKEN);
    assert.equal(await node.ask("Health", TEST_TOKEN), "0");
    // As many as there are places, and as are over the limit.
    for (let count = 0; count < 20; count++) await callWith("wrong");
    const line = await server.logged("connection_failed");
    assert.match(String(line.fields["reason"]), /^evicted for a new connection: no call was authenticated$/);
    assert.equal(await node.ask("Health", TEST_TOKEN), "0");
  });

  const CHECKS: readonly [how: string, leave: (socket: net.Socket) => void][] = [
    ["closes", (socket) => socket.end()],
    // The head of a TLS record (RFC 8446, 5.1) of which the rest never comes.
    ["closes in its handshake", (socket) => socket.end(Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00]))],
    ["resets", (socket) => socket.resetAndDestroy()],
  ];
  for (const [how, leave] of CHECKS) {
    test(`a probe that ${how} logs no failed handshake`, async () => {
      // The longest limit of a timer: only the peer's end can end its connection.
      await using server = await start({ limits: { handshakeTimeoutMs: 2_147_483_647 } });
      const socket = net.connect(server.port, "127.0.0.1");
      await once(socket, "connect");
      leave(socket);
      const { level, fields } = await server.logged("connection_unused");
      assert.equal(level, "debug");
      assert.equal(fields["listener"], "tcp");
      assert.match(String(fields["peer"]), /^127\.0\.0\.1:\d+$/);
      await assertAlive(server);
      assert.deepEqual(
        server.log.filter(({ event }) => event === "connection_refused"),
        [],
      );
    });
  }

  test("a connection whose handshake takes too long is closed", async () => {
    await using server = await start({ limits: { handshakeTimeoutMs: 200 } });
    const socket = net.connect(server.port, "127.0.0.1");
    await closed(socket);
    assert.match(String((await server.logged("connection_refused")).fields["reason"]), /ERR_TLS_HANDSHAKE_TIMEOUT/);
    await until(() => answers(server), "another client is fast enough");
  });

  test("a connection whose request headers never end is closed", async () => {
    await using server = await start({ limits: { handshakeTimeoutMs: 500 } });
    // On a busy machine the limit may end the handshake already.
    await until(async () => {
      // No frame may come within a header block, not even an acknowledgement.
      using peer = await RawHttp2.dial(server, { acknowledges: false }).catch(() => undefined);
      peer?.send(frame(FRAME.headers, 0, 1, Buffer.of(0x82)));
      await peer?.ended();
      const reasons = server.log
        .filter(({ event }) => event === "connection_failed")
        .map(({ fields }) => fields["reason"]);
      for (const reason of reasons) assert.match(String(reason), /^no request/);
      return reasons.length > 0;
    }, "a connection ends for want of a request");
    await until(() => answers(server), "another client is fast enough");
  });

  test("a client that sends no request in time gets GOAWAY with NO_ERROR and a reason", async () => {
    await using server = await start({ limits: { handshakeTimeoutMs: 300 } });
    using peer = await RawHttp2.dial(server);
    const { payload } = await peer.next(({ type }) => type === FRAME.goaway, "a GOAWAY");
    assert.deepEqual(
      [payload.readUInt32BE(4), payload.toString("latin1", 8)],
      [CODE.none, "no request within 300 ms of the handshake"],
    );
    await peer.ended();
    const { fields } = await server.logged("connection_failed");
    assert.equal(fields["reason"], "no request within 300 ms of the handshake");
  });

  test("over the connection limit, a client's calls fail until another client leaves", async () => {
    await using server = await start({ limits: { connections: 2 } });
    using first = await RawHttp2.dial(server);
    using second = await RawHttp2.dial(server);
    for (const peer of [first, second]) assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    using surplus = await RawHttp2.dial(server);
    assert.equal(await surplus.ask("Health", "a wrong token"), "16");
    const refusal = await surplus.status(surplus.call("Health", TEST_TOKEN, Buffer.alloc(0)));
    assert.equal(refusal.get("grpc-status"), "8");
    assert.match(String(refusal.get("grpc-message")), /^the limit of 2 connections is reached/);
    const line = await server.logged("connection_refused");
    assert.match(String(line.fields["reason"]), /connection limit \(2\) reached/);
    first[Symbol.dispose]();
    await server.logged("connection_closed");
    assert.equal(await surplus.ask("Health", TEST_TOKEN), "0", "it has the place now");
    using next = await RawHttp2.dial(server);
    assert.equal(await next.ask("Health", TEST_TOKEN), "8");
  });

  test("each of 72 concurrent clients is served or gets TOO_MANY_CONNECTIONS", async () => {
    const release = Promise.withResolvers<void>();
    await using server = await startManagement((router) =>
      router.unary(health, async () => {
        await release.promise;
        return create(HealthResponseSchema, { alive: true });
      }),
    );
    using clients = new DisposableStack();
    const results: (string | undefined)[] = [];
    const calls = Array.from({ length: 72 }, async () => {
      const client = clients.use(clientOf({ ...server, token: TEST_TOKEN }));
      results.push(
        await client.health().then(
          () => "answered",
          (error: unknown) => (error as GuestError).reason ?? String(error),
        ),
      );
    });
    await until(
      () => results.length === 72 - 64,
      () => `8 calls are refused: ${results.join("; ")}`,
    );
    assert.deepEqual(new Set(results), new Set(["TOO_MANY_CONNECTIONS"]));
    release.resolve();
    await Promise.all(calls);
    assert.equal(results.filter((result) => result === "answered").length, 64);
  });

  test("when a seventeenth surplus connection arrives, the oldest surplus connection is closed", async () => {
    await using server = await start({ limits: { connections: 1 } });
    using first = await RawHttp2.dial(server);
    assert.equal(await first.ask("Health", TEST_TOKEN), "0");
    using peers = new DisposableStack();
    const surplus: RawHttp2[] = [];
    for (let count = 0; count < 17; count++) {
      const peer = peers.use(await RawHttp2.dial(server));
      assert.equal(await peer.ask("Health", TEST_TOKEN), "8");
      surplus.push(peer);
    }
    await surplus[0]?.ended();
    assert.equal(server.server.sockets, 17);
    assert.equal(await surplus[16]?.ask("Health", TEST_TOKEN), "8");
  });

  test("a peer that answers PINGs stays connected and gets its own PINGs answered", async () => {
    await using server = await start({ limits: { pingIntervalMs: 20 } });
    using peer = await RawHttp2.dial(server);
    assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    const isAsked = ({ type, flags }: Frame): boolean => type === FRAME.ping && flags === 0;
    assert.ok(await peer.holds(() => peer.frames.filter(isAsked).length >= 10));
    await peer.pinged();
    assert.ok(!server.log.some(({ event }) => event === "peer_lost"));
  });

  test("refused connections are logged at a bounded rate with a count", async () => {
    let nowMs = 0;
    await using server = await start({ clock: { ...systemClock, monotonicMs: () => nowMs } });
    const lines = (): readonly (typeof server.log)[number][] =>
      server.log.filter(({ event }) => event === "connection_refused");
    const refuse = async (): Promise<void> => {
      const socket = net.connect(server.port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write("not TLS at all");
      await closed(socket);
    };
    for (let i = 0; i < 60; i++) await refuse();
    assert.equal(lines().length, 20, "while no time passes");
    nowMs += 500;
    await refuse();
    assert.deepEqual([lines().length, lines().at(-1)?.fields["suppressed"]], [21, 40]);
    await assertAlive(server);
  });
});

function start(options: TestServerOptions = {}): Promise<TestServer> {
  return startManagement(
    (router) => router.unary(health, () => create(HealthResponseSchema, { alive: true })),
    options,
  );
}

/** Another client still gets its answer. */
async function assertAlive(server: TestServer): Promise<void> {
  using peer = await RawHttp2.dial(server);
  assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
}

function answers(server: TestServer): Promise<boolean> {
  return assertAlive(server).then(
    () => true,
    () => false,
  );
}

/** With TLS 1.3 a refused client sees its handshake succeed first. */
async function connectTls(server: TestServer, options: tls.ConnectionOptions): Promise<tls.TLSSocket> {
  const socket = tls.connect({
    port: server.port,
    host: "127.0.0.1",
    servername: SERVER_NAME,
    ca: server.certificates.ca,
    ALPNProtocols: ["h2"],
    ...server.certificates.client,
    ...options,
  });
  await once(socket, "secureConnect");
  socket.on("error", () => {});
  return socket;
}

/** Resolves when the other side has closed the connection, whatever error came before. */
async function closed(socket: net.Socket): Promise<void> {
  socket.on("error", () => {}).resume();
  if (!socket.destroyed) await new Promise((resolve) => socket.once("close", resolve));
}
