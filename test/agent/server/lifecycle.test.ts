import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { create } from "@bufbuild/protobuf";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema, HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { bytesFieldFrame, Router } from "../../../src/agent/rpc/index.ts";
import { ManagementServer, tokenAuthenticator, tokenField } from "../../../src/agent/server/index.ts";
import { issueCertificates, tlsMaterial } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN, TEST_TOKEN_CHECK } from "../../fixtures/management.ts";
import { stoppedAtData } from "../../fixtures/raw-calls.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { recordingLog } from "../../fixtures/recording-log.ts";
import { CLIENTS, one, RpcFailure } from "../../fixtures/rpc-clients.ts";
import { systemClock } from "../../fixtures/system-clock.ts";

const { health, exec } = GuestAgent.method;
const EMPTY = create(HealthRequestSchema);
const STDOUT = 7;
const token = TEST_TOKEN;

for (const { make, connect } of CLIENTS) {
  describe(`shutdown, as ${make} sees it`, () => {
    test("lets running calls end and takes no new ones", async () => {
      const release = Promise.withResolvers<void>();
      await using server = await startManagement((router) => {
        router.unary(health, () => create(HealthResponseSchema));
        router.bidiStream(exec, async (call) => {
          call.send(bytesFieldFrame(STDOUT, Buffer.from("running")));
          await release.promise;
          call.send(bytesFieldFrame(STDOUT, Buffer.from("done")));
        });
      });
      const client = connect(server);
      const running = client.call(exec, [], { token });
      await running.next();
      const shutdown = server.server.shutdown(5_000);
      // A call that its client was about to send when the announcement came fails in the client.
      let failure: unknown;
      do failure = await one(client.call(health, [EMPTY], { token })).catch((error: unknown) => error);
      while (failure instanceof RpcFailure && failure.message.includes("NGHTTP2_REFUSED_STREAM"));
      assert.ok(failure instanceof RpcFailure);
      assert.equal(failure.code, 14, failure.message);
      release.resolve();
      const rest: string[] = [];
      for await (const { frame } of running) {
        rest.push(frame.case === "stdout" ? Buffer.from(frame.value).toString() : String(frame.case));
      }
      assert.deepEqual(rest, ["done"]);
      await shutdown;
      assert.equal(server.server.sockets, 0);
      client.close();
    });

    test("ends calls with UNAVAILABLE when the grace has passed", async () => {
      const aborted = Promise.withResolvers<unknown>();
      await using server = await startManagement((router) =>
        router.bidiStream(exec, async (call) => {
          call.send(bytesFieldFrame(STDOUT, Buffer.from("running")));
          call.signal.addEventListener("abort", () => aborted.resolve(call.signal.reason));
          await new Promise(() => {});
        }),
      );
      const client = connect(server);
      const running = client.call(exec, [], { token });
      await running.next();
      const ended = running.next().catch((error: unknown) => error);
      await server.server.shutdown(100);
      const failure = await ended;
      assert.ok(failure instanceof RpcFailure);
      assert.equal(failure.code, 14);
      assert.equal(failure.reason, "SHUTTING_DOWN");
      const reason = await aborted.promise;
      assert.ok(reason instanceof AgentError && reason.reason === "SHUTTING_DOWN");
      client.close();
    });
  });
}

describe("the management server", () => {
  test("uses new credentials for new connections, and leaves open ones alone while their authority is one", async () => {
    await using server = await startManagement((router) => router.unary(health, () => create(HealthResponseSchema)));
    const [{ connect }] = CLIENTS as [(typeof CLIENTS)[number]];
    const before = connect(server);
    await one(before.call(health, [EMPTY], { token }));
    // Authorities of the same name: the signer counts.
    const certificates = await issueCertificates();
    const clientCa = `${certificates.ca}\n${server.certificates.ca}`;
    server.server.setCredentials(tlsMaterial(certificates.server, clientCa));
    await one(before.call(health, [EMPTY], { token }));
    assert.equal(server.log.filter(({ event }) => event === "connection_opened").length, 1);
    server.server.setCredentials(tlsMaterial(certificates.server, certificates.ca));
    await server.logged("connection_closed", ({ connection }) => connection === 1);
    const after = connect({ port: server.port, certificates });
    await one(after.call(health, [EMPTY], { token }));
    const old = connect(server);
    await assert.rejects(one(old.call(health, [EMPTY], { token })));
    for (const client of [before, after, old]) client.close();
  });

  test("ends a connection of a replaced authority also when its peer reads nothing and hears nothing", async () => {
    await using server = await startManagement((router) =>
      router.bidiStream(exec, async (call) => {
        const full = Buffer.alloc(64 * 1024);
        while (!call.signal.aborted) {
          call.send(bytesFieldFrame(STDOUT, full));
          await call.drained();
        }
      }),
    );
    using peer = await RawHttp2.dial(server);
    peer.call("Exec", token);
    await stoppedAtData(peer);
    const other = await issueCertificates();
    server.server.setCredentials(tlsMaterial(other.server, other.ca));
    await server.logged("connection_closed", ({ connection }) => connection === 1);
    assert.equal(server.server.sockets, 0);
  });
});

describe("the management socket", () => {
  test("refuses a file, and a folder that cannot be", async (t) => {
    const dir = await folder(t);
    const { server: other } = plainServer();
    await writeFile(join(dir, "file"), "");
    await assert.rejects(other.listenUnix(join(dir, "file")), /is there already and is no socket/);
    for (const elsewhere of [join(dir, "file", "x.sock"), "/proc/none/deep/x.sock"]) {
      await assert.rejects(other.listenUnix(elsewhere), /no folder and cannot become one; name another/);
    }
  });

  test("leaves the path alone where another process has listened since", async (t) => {
    const path = join(await folder(t), "guest.sock");
    const { server } = plainServer();
    await server.listenUnix(path);
    await rm(path);
    const other = net.createServer((socket) => socket.end("other"));
    await once(other.listen(path), "listening");
    await server.shutdown(0);
    assert.equal(String((await once(net.connect(path), "data"))[0]), "other");
    other.close();
  });

  test("closes a connection that sends garbage", async (t) => {
    const path = join(await folder(t), "guest.sock");
    const { server, log } = plainServer();
    await server.listenUnix(path);
    const socket = net.connect(path);
    socket.on("error", () => {});
    socket.write("GET / HTTP/1.1\r\n\r\n");
    await once(socket.resume(), "close");
    const line = await log.logged("connection_failed");
    assert.equal(line.fields["peer"], "unix");
    using next = await RawHttp2.dial({ socketPath: path });
    assert.equal(await next.ask("Health", token), "0");
    await server.shutdown(0);
  });
});

function plainServer(): { server: ManagementServer; log: ReturnType<typeof recordingLog> } {
  const log = recordingLog();
  const router = new Router({ clock: systemClock, log, agentVersion: "0" });
  router.unary(health, () => create(HealthResponseSchema));
  const parts = { authenticate: tokenAuthenticator(TEST_TOKEN_CHECK), tokenField: tokenField(TEST_TOKEN_CHECK) };
  return { server: new ManagementServer({ router, ...parts, log, clock: systemClock }), log };
}

async function folder(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "guest-agent-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}
