import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, it } from "node:test";
import { relayTo } from "../../fixtures/relay.ts";
import { freePort } from "../../../scripts/machine/free-port.ts";
import type { Sockets, Timers } from "../../../src/agent/domain/index.ts";
import { nodeTimers as timers } from "../../../src/agent/platform/index.ts";
import { guestSockets } from "../../../src/agent/platform/sockets.ts";
import { PortWatch } from "../../../src/agent/tunnel/port-watch.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { addon } from "../../fixtures/spawning.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

const LONG_MS = 600_000;
const SOON_MS = 200;
const LOOK_MS = 50;

/** As in an image without /proc. */
const silent = (): Sockets => ({ ...guestSockets(addon), eachListener: () => Promise.resolve(false) });
const watchOf = (sockets: Sockets, its: Timers): PortWatch =>
  new PortWatch({ sockets, timers: its, ownPort: undefined, generation: () => 0 });
const listener80 = {
  inode: 1,
  port: 80,
  family: 4,
  address: "0.0.0.0",
  scope: "ANY",
  isReached: true,
  uid: 0,
} as const;

describe("WaitForPort", () => {
  it("WaitForPort returns once a server listens on any reachable address", async (t) => {
    const hasV6 = networkInterfaces()["lo"]?.some(({ family }) => family === "IPv6") === true;
    for (const host of ["127.0.0.1", "0.0.0.0", ...(hasV6 ? ["::1", "::", "::ffff:127.0.0.1"] : [])]) {
      const port = await freePort();
      let isListening = false;
      const waited = client.ports.waitFor(port, { timeoutMs: LONG_MS }).then(({ scope }) => isListening && scope);
      // The wait has begun, and is not answered.
      await client.health();
      const server = createServer();
      server.once("listening", () => (isListening = true));
      server.listen({ port, host, ipv6Only: host === "::" });
      const isAny = host === "0.0.0.0" || host === "::";
      assert.equal(await waited, isAny ? "any" : "loopback", host);
      server.close();
    }
    if (!hasV6) t.diagnostic("without IPv6");
  });

  it("waitForPort is retried after each lost connection", async () => {
    await using proxy = await relayTo(agent.port);
    using cut = clientOf({ ...agent, port: proxy.port });
    const port = await freePort();
    const waited = cut.ports.waitFor(port, { timeoutMs: LONG_MS });
    for (let cuts = 0; cuts < 5; cuts++) {
      // Behind the wait, on the same connection.
      await cut.health({ waitForReady: true });
      proxy.cut();
      proxy.mend();
    }
    await cut.health({ waitForReady: true });
    await using _server = await listener(undefined, { port, host: "127.0.0.1" });
    await waited;
  });

  it("if a server listens only on 127.0.0.2, WaitForPort's timeout error says so", async () => {
    await using elsewhere = await listener(undefined, { port: 0, host: "127.0.0.2" });
    const metadata = { port: String(elsewhere.port) };
    await assert.rejects(client.ports.waitFor(elsewhere.port, { timeoutMs: SOON_MS }), {
      status: "DEADLINE_EXCEEDED",
      reason: "PORT_NOT_LISTENING",
      metadata,
      message: /; a server listens only on 127\.0\.0\.2: make it listen on 127\.0\.0\.1, too$/,
    });
    const tunnel = client.ports.connect(elsewhere.port).on("error", () => undefined);
    await assert.rejects(tunnel.opened, /\(ECONNREFUSED\); a server listens only on 127\.0\.0\.2/);
  });

  it("WaitForPort ends on cancellation and when the agent stops", async () => {
    await using own = await startAgent();
    using its = clientOf(own);
    const port = await freePort();
    const caller = new AbortController();
    const given = failureOf(its.ports.waitFor(port, { timeoutMs: LONG_MS, signal: caller.signal }));
    const left = failureOf(its.ports.waitFor(port, { timeoutMs: LONG_MS }));
    await its.health();
    caller.abort();
    assert.equal((await given).status, "CANCELLED");
    assert.equal((await own.stop()).code, 0);
    assert.equal((await left).reason, "SHUTTING_DOWN");
  });

  it("WaitForPort rejects invalid ports, the agent's own port, and long timeouts", async () => {
    for (const [port, timeoutMs] of [[0], [65_536], [agent.port], [80, 86_400_001]] as const) {
      const { status, reason } = await failureOf(client.ports.waitFor(port, { timeoutMs }));
      assert.deepEqual([status, reason], ["INVALID_ARGUMENT", "INVALID_FIELD"], `${port} ${timeoutMs}`);
    }
  });

  it("WaitForPort without /proc connects to the port and disconnects immediately", async () => {
    const watch = watchOf(silent(), timers);
    const port = await freePort();
    const { signal } = new AbortController();
    const waited = watch.wait({ port, timeoutMs: LONG_MS }, signal);
    await assert.rejects(watch.wait({ port, timeoutMs: SOON_MS }, signal), { reason: "PORT_NOT_LISTENING" });
    await using server = await listener((socket) => socket.resume(), { port, host: "127.0.0.1" });
    await waited;
    await once(await server.next(), "end");
  });

  it("WaitForPort with a 1 ms timeout works despite 100 other waiting calls", async () => {
    await using server = await listener(undefined, { port: 0, host: "127.0.0.1" });
    const absent = await freePort();
    const others = Array.from({ length: 100 }, () => client.ports.waitFor(absent, { timeoutMs: LONG_MS }));
    for (const other of others) other.catch(() => {});
    for (let time = 0; time < 20; time++) {
      const timeoutMs = [1, 7, 40][time % 3] ?? 1;
      await Promise.all(Array.from({ length: 10 }, () => client.ports.waitFor(server.port, { timeoutMs })));
    }
  });

  it("WaitForPort checks the port once more when a wait times out", async () => {
    const looks: PromiseWithResolvers<boolean>[] = [];
    const watched: Sockets = {
      ...guestSockets(addon),
      eachListener: (take) => {
        const look = Promise.withResolvers<boolean>();
        if (looks.push(look) === 2) take(listener80);
        return look.promise;
      },
    };
    const due = new Map<number, () => void>();
    const manual: Timers = { after: (delayMs, task) => (due.set(delayMs, task), () => due.delete(delayMs)) };
    const watch = watchOf(watched, manual);
    const { signal } = new AbortController();
    const [found, missed] = [80, 81].map((port) => watch.wait({ port, timeoutMs: port }, signal));
    // Both times are over during the first look, which found nobody.
    due.get(80)?.();
    due.get(81)?.();
    looks[0]?.resolve(true);
    while (looks.length < 2) await new Promise(setImmediate);
    looks[1]?.resolve(true);
    await found;
    await assert.rejects(missed ?? Promise.resolve(), { reason: "PORT_NOT_LISTENING" });
    assert.equal(looks.length, 2);
  });

  it("without /proc, an unresponsive port does not delay waits for other ports", async () => {
    const real = guestSockets(addon);
    const sockets: Sockets = {
      ...silent(),
      connectPort: (family, port, signal) =>
        port === 9
          ? new Promise((_, reject) => signal.addEventListener("abort", reject))
          : real.connectPort(family, port, signal),
    };
    const watch = watchOf(sockets, {
      after: (delayMs, task) => (delayMs === LOOK_MS ? timers.after(0, task) : () => {}),
    });
    const caller = new AbortController();
    await using server = await listener((socket) => socket.resume(), { port: 0, host: "127.0.0.1" });
    const silentOnes = Array.from({ length: 3 }, () => watch.wait({ port: 9, timeoutMs: LONG_MS }, caller.signal));
    await watch.wait({ port: server.port, timeoutMs: LONG_MS }, new AbortController().signal);
    caller.abort();
    await Promise.allSettled(silentOnes);
  });

  it("100 concurrent waits for a port share one scan every 50 ms", async () => {
    let looks = 0;
    const delays: number[] = [];
    const due: (() => void)[] = [];
    const watched: Sockets = {
      ...guestSockets(addon),
      eachListener: (take) => {
        looks += 1;
        if (looks > 20) take(listener80);
        return Promise.resolve(true);
      },
    };
    const manual: Timers = {
      after: (delayMs, task) => {
        if (delayMs === LOOK_MS) due.push(task);
        delays.push(delayMs);
        return () => {};
      },
    };
    const watch = watchOf(watched, manual);
    const { signal } = new AbortController();
    const waits = Array.from({ length: 100 }, () => watch.wait({ port: 80, timeoutMs: LONG_MS }, signal));
    const isOver = Promise.all(waits).then(() => true);
    for (let time = 1; time <= 20; time++) {
      assert.equal(looks, time);
      while (due.length === 0) await new Promise(setImmediate);
      due.shift()?.();
    }
    assert.equal(await isOver, true);
    assert.equal(looks, 21);
    while (due.length === 0) await new Promise(setImmediate);
    due.shift()?.();
    assert.deepEqual([looks, due.length], [21, 0]);
    assert.equal(delays.filter((delayMs) => delayMs === LOOK_MS).length, 21);
  });
});
