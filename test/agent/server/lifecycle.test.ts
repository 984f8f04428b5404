import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema, HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { bytesFieldFrame } from "../../../src/agent/rpc/index.ts";
import { issueCertificates, tlsMaterial } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { stoppedAtData } from "../../fixtures/raw-calls.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { grpcJsClient, one, RpcFailure } from "../../fixtures/rpc-clients.ts";

const { health, exec } = GuestAgent.method;
const STDOUT = 7;
const token = TEST_TOKEN;

describe("the management server", () => {
  test("lets running calls end at its shutdown, and takes no new ones", async () => {
    const release = Promise.withResolvers<void>();
    await using server = await startManagement((router) => {
      router.unary(health, () => create(HealthResponseSchema));
      router.bidiStream(exec, async (call) => {
        call.send(bytesFieldFrame(STDOUT, Buffer.from("running")));
        await release.promise;
        call.send(bytesFieldFrame(STDOUT, Buffer.from("done")));
      });
    });
    const client = grpcJsClient(server);
    const running = client.call(exec, [], { token });
    await running.next();
    const shutdown = server.server.shutdown(5_000);
    // A call that its client was about to send when the announcement came fails in the client.
    let failure: unknown;
    do failure = await one(client.call(health, [create(HealthRequestSchema)], { token })).catch((e: unknown) => e);
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
