import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import type { TlsMaterial } from "../../../src/agent/domain/index.ts";
import { messageFrame } from "../../../src/agent/rpc/codec.ts";
import { bytesFieldFrame, type Call, Router } from "../../../src/agent/rpc/index.ts";
import { serverInMemory, warmUp } from "../../../src/agent/server/warm-up.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { awake } from "../../fixtures/awake.ts";
import { issueCertificates, tlsMaterial } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { stoppedAtData } from "../../fixtures/raw-calls.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import { recordingLog } from "../../fixtures/recorders.ts";
import { grpcJsClient, one, RpcFailure } from "../../fixtures/rpc-clients.ts";
import { addon } from "../../fixtures/spawning.ts";

const { health, exec, runRestoreDuties } = GuestAgent.method;
const STDOUT = 7;
const token = TEST_TOKEN;

describe("the management server", () => {
  test("shutdown waits for running calls and rejects new ones", async () => {
    const release = Promise.withResolvers<void>();
    await using server = await startManagement((router) => {
      router.unary(health, () => create(HealthResponseSchema));
      router.bidiStream(exec, async (call) => {
        call.send(bytesFieldFrame(STDOUT, Buffer.from("running")));
        await release.promise;
        call.send(bytesFieldFrame(STDOUT, Buffer.from("done")));
      });
    });
    using client = grpcJsClient({ ...server, token });
    const running = client.call(exec, []);
    await running.next();
    const shutdown = server.server.shutdown(5_000);
    // A call that its client was about to send when the announcement came fails in the client.
    let failure: unknown;
    do failure = await one(client.call(health, [{}])).catch((e: unknown) => e);
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
  });

  test("replacing the CA ends old connections even if clients do not read", async () => {
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

/** Beside any load. */
const GENEROUS_MS = 600_000;
const SHORT_MS = 500;
const ANSWER = messageFrame(HealthResponseSchema, create(HealthResponseSchema, { alive: true }));

/** A router with a Health that counts its calls, and the numbers of running calls reported at each begin and end. */
function countingRouter() {
  const log = recordingLog();
  const running: number[] = [];
  let answered = 0;
  const router = new Router({ clock: systemClock, log, agentVersion: "1", onCalls: (count) => running.push(count) });
  router.unary(GuestAgent.method.health, () => {
    answered++;
    return ANSWER;
  });
  return { router, log, running, answered: () => answered };
}

// As the agent does before it listens: the server then refuses a certificate that is not a client's.
assert.deepEqual([addon.boundHandshakes(), addon.relaxCertificateChecks()], [1, 1]);

async function issued(): Promise<TlsMaterial> {
  const { ca, server } = await issueCertificates();
  return tlsMaterial(server, ca);
}

test("warmUp makes one Health call and logs nothing", async () => {
  for (const tls of [await issued(), undefined]) {
    const { router, log, running, answered } = countingRouter();
    await warmUp(serverInMemory(router, systemClock), tls, { limitMs: GENEROUS_MS });
    assert.deepEqual([answered(), running, log.lines], [1, [1, 0], []]);
  }
});

test("warmUp leaves no timer behind", async (t) => {
  const { router } = countingRouter();
  const tls = await issued();
  const started = t.mock.method(globalThis, "setInterval");
  const stopped = t.mock.method(globalThis, "clearTimeout");
  await warmUp(serverInMemory(router, systemClock), tls, { limitMs: GENEROUS_MS });
  const timers = started.mock.calls.map(({ result }) => result);
  assert.equal(timers.length, 1, "the connection would send its pings");
  while (!stopped.mock.calls.some(({ arguments: [timer] }) => timer === timers[0])) {
    await new Promise((resolve) => setImmediate(resolve));
  }
});

test("warmUp with invalid credentials ends silently", async () => {
  const { router, log, answered } = countingRouter();
  const nonsense = tlsMaterial({ cert: "no certificate", key: "no key" }, "no authority");
  await warmUp(serverInMemory(router, systemClock), nonsense);
  assert.equal(answered(), 0);
  assert.deepEqual(log.lines, []);
});

type Hang = (call: Call) => Promise<never>;
const HANGING: readonly (readonly [name: string, isRehearsal: boolean, add: (router: Router, hang: Hang) => void])[] = [
  ["warm-up with a hanging Health", false, (router, hang) => router.unary(health, (_request, call) => hang(call))],
  ["rehearsal with a hanging Exec", true, (router, hang) => router.bidiStream(exec, hang)],
  ["rehearsal with hanging duties", true, (router, hang) => router.unary(runRestoreDuties, (_, call) => hang(call))],
];
for (const [name, isRehearsal, add] of HANGING)
  test(`a ${name} times out and aborts the call`, async () => {
    const router = new Router({ clock: systemClock, log: recordingLog(), agentVersion: "1" });
    const aborted = Promise.withResolvers<void>();
    add(router, ({ signal }) => {
      signal.addEventListener("abort", () => aborted.resolve());
      return new Promise(() => {});
    });
    const server = serverInMemory(router, systemClock);
    await awake(warmUp(server, undefined, { isRehearsal, limitMs: SHORT_MS }));
    await aborted.promise;
    assert.equal(server.sockets, 0);
  });

for (const secured of [true, false])
  test(`a rehearsal ${secured ? "through" : "without"} TLS makes the post-restore calls and disconnects`, async () => {
    const { router, log, running, answered } = countingRouter();
    const server = serverInMemory(router, systemClock);
    const made: unknown[] = [];
    router.bidiStream(exec, async (call) => {
      const message = await call.messages().next();
      if (message !== undefined) made.push(call.decode(exec.input, message).frame.case);
    });
    router.unary(runRestoreDuties, ({ entropy, hostTime }, { connection }) => {
      made.push(entropy.length, hostTime !== undefined, connection.peer.certificate !== undefined);
      made.push(server.dropOtherConnections(connection));
      return create(runRestoreDuties.output);
    });
    await warmUp(server, secured ? await issued() : undefined, { isRehearsal: true, limitMs: GENEROUS_MS });
    assert.equal(answered(), 1);
    assert.deepEqual(new Set(made), new Set(["start", 32, true, secured, 1]));
    assert.equal(running.at(-1), 0);
    assert.equal(server.sockets, 0);
    assert.deepEqual(log.lines, []);
  });
