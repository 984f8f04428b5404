import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { bytesFieldFrame } from "../../../src/agent/rpc/index.ts";
import type { LivenessLimits } from "../../../src/agent/server/peer-liveness.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { until } from "../../fixtures/awake.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import { startManagement, TEST_TOKEN, type TestServer, type TestServerOptions } from "../../fixtures/management.ts";
import { noNamespaces } from "../../fixtures/namespaces.ts";
import { script } from "../../fixtures/programs/index.ts";
import { stoppedAtData } from "../../fixtures/raw-calls.ts";
import { FRAME, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { addon } from "../../fixtures/spawning.ts";

const { exec, health } = GuestAgent.method;
const STDOUT = 7;
/** Far shorter than the real ones. */
const LIVENESS: LivenessLimits = {
  keepAliveIdleMs: 1_000,
  keepAliveIntervalMs: 1_000,
  keepAliveProbes: 1,
  checkIntervalMs: 10,
  unacknowledgedMs: 100,
};

/** A server whose Exec writes for ever. Its limits are short. */
function start(options: TestServerOptions = {}): Promise<TestServer> {
  return startManagement(
    (router) => {
      router.unary(health, () => create(HealthResponseSchema, { alive: true }));
      router.bidiStream(exec, async (call) => {
        const full = Buffer.alloc(64 * 1024);
        while (!call.signal.aborted) {
          call.send(bytesFieldFrame(STDOUT, full));
          await call.drained();
        }
      });
    },
    { ...options, limits: { pingIntervalMs: 20, liveness: LIVENESS, ...options.limits } },
  );
}

describe("a client that is paused", () => {
  test("a client that reads nothing stays connected while its kernel acknowledges data", async () => {
    let asked = 0;
    await using server = await start({
      unacknowledgedMs: (fd) => {
        asked++;
        return addon.unacknowledgedMs(fd);
      },
    });
    using peer = await RawHttp2.dial(server);
    peer.call("Exec", TEST_TOKEN);
    await stoppedAtData(peer);
    const frames = peer.frames.length;
    // Ten times the limit, in checks of the agent.
    await until(() => asked > 100, "the agent has asked its kernel often");
    peer.readOn();
    await until(() => peer.frames.length > frames + 100, "the output goes on");
    assert.ok(!server.log.some(({ event }) => event === "peer_lost"));
  });

  test("a silent client without calls stays connected while connection slots are free", async () => {
    const silent = Promise.withResolvers<void>();
    await using server = await start({ unacknowledgedMs: (fd) => addon.unacknowledgedMs(fd) });
    using peer = await RawHttp2.dial(server);
    assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    peer.stopReading();
    setTimeout(silent.resolve, 20 * LIVENESS.unacknowledgedMs);
    await silent.promise;
    peer.readOn();
    assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
  });

  test("when all slots are taken, a client that was silent too long loses its slot", async () => {
    await using server = await start({ limits: { connections: 3, evictAfterSilentMs: 200 } });
    using first = await RawHttp2.dial(server);
    using second = await RawHttp2.dial(server);
    using third = await RawHttp2.dial(server);
    for (const peer of [first, second, third]) assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    second.stopReading();
    const pings = (): number => first.frames.filter(({ type, flags }) => type === FRAME.ping && flags === 0).length;
    const before = pings();
    await until(() => pings() > before + 2, "the first has answered later PINGs than the second");
    first.stopReading();
    await until(async () => {
      using newcomer = await RawHttp2.dial(server).catch(() => undefined);
      return (await newcomer?.ask("Health", TEST_TOKEN).catch(() => undefined)) === "0";
    }, "a new client has a place");
    const evicted = server.log.find(({ event }) => event === "connection_failed");
    assert.match(
      String(evicted?.fields["reason"]),
      /^evicted for a new connection: its client has not answered for \d+ s/,
    );
    second.readOn();
    await second.ended();
    assert.equal(await third.ask("Health", TEST_TOKEN), "0");
  });
});

test("of 64 clients, only the one silent for 60 s loses its slot", async () => {
  let aheadMs = 0;
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs };
  await using server = await startManagement(
    (router) => router.unary(health, () => create(HealthResponseSchema, { alive: true })),
    { clock, limits: { pingIntervalMs: 20 } },
  );
  using stack = new DisposableStack();
  const peers: RawHttp2[] = [];
  for (let count = 0; count < 64; count++) {
    const peer = stack.use(await RawHttp2.dial(server));
    assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
    peers.push(peer);
  }
  const stopped = peers[31] ?? assert.fail();
  stopped.stopReading();
  const pings = (peer: RawHttp2): number =>
    peer.frames.filter(({ type, flags }) => type === FRAME.ping && flags === 0).length;
  const answered = async (): Promise<void> => {
    const before = peers.map(pings);
    await until(
      () => peers.every((peer, index) => peer === stopped || pings(peer) > (before[index] ?? 0) + 1),
      "all others have answered another PING",
    );
  };
  await answered();
  const stoppedMs = performance.now();
  const newcomer = stack.use(await RawHttp2.dial(server));
  aheadMs += 30_000;
  await answered();
  // On a busy machine 30 s may have passed.
  const refused = await newcomer.ask("Health", TEST_TOKEN);
  if (performance.now() - stoppedMs < 29_000) assert.equal(refused, "8");
  aheadMs += 30_000;
  await answered();
  assert.equal(await newcomer.ask("Health", TEST_TOKEN), "0");
  const { fields } = await server.logged("connection_failed");
  assert.match(String(fields["reason"]), /^evicted for a new connection: its client has not answered for [6-9]\d s$/);
  stopped.readOn();
  await stopped.ended();
  for (const peer of peers) if (peer !== stopped) assert.equal(await peer.ask("Health", TEST_TOKEN), "0");
  const another = stack.use(await RawHttp2.dial(server));
  assert.equal(await another.ask("Health", TEST_TOKEN), "8");
});

test(
  "the agent detects a lost peer whether the connection is idle or has unsent data",
  { skip: noNamespaces() ?? false },
  async () => {
    const { stdout } = await promisify(execFile)("unshare", [
      "--net",
      "--mount",
      "--fork",
      "--kill-child",
      "sh",
      "-c",
      'mount -t sysfs sysfs /sys && exec "$@"',
      "sh",
      ...script("lost-peer"),
    ]);
    const found = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .toSorted((one, other) => Number(one["connection"]) - Number(other["connection"]));
    assert.equal(found.length, 2);
    assert.match(String(found[0]?.["errno"]), /^(?:ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)$/);
    assert.ok(Number(found[1]?.["silent_ms"]) >= 1_000);
  },
);
