// The runner gives this file a network of its own: a machine may have more ports that listen than are listed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type AddressInfo, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, it } from "node:test";
import type { Listener, Sockets } from "../../../src/agent/domain/index.ts";
import type { PortChanges as Changes } from "../../../src/agent/tunnel/index.ts";
import { PortWatch } from "../../../src/agent/tunnel/port-watch.ts";
import { type ListeningPort, type PortChanges, type PortScope } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { inMountNamespace, lacksCgroups, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";

const LISTED = 512;
const WATCHERS = 8;
const LOOK_MS = 500;
const agent = forAllTests(await startAgent());
const command = readFileSync("/proc/self/comm", "utf8").trimEnd();

async function serverAt(host: string): Promise<Server & AsyncDisposable> {
  const server = createServer().listen(0, host);
  await once(server, "listening");
  return server;
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/** Reads on until a message has a port that fits, among those that are new or those that are closed. */
async function told(
  watch: AsyncIterator<PortChanges, undefined>,
  list: "ports" | "closed",
  fits: (port: ListeningPort) => boolean,
): Promise<ListeningPort> {
  for (;;) {
    const found = (await watch.next()).value?.[list].find(fits);
    if (found !== undefined) return found;
  }
}

describe("listening ports", () => {
  it("listPorts returns family, address, scope and process of each listener", async (t) => {
    using client = clientOf(agent);
    const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
    const outer = all.find(({ internal, family }) => !internal && family === "IPv4")?.address;
    const hasV6 = all.some(({ address }) => address === "::1");
    const places: [string, 4 | 6, PortScope][] = [
      ["127.0.0.1", 4, "loopback"],
      ["127.0.0.2", 4, "loopback"],
      ["0.0.0.0", 4, "any"],
      ...(outer === undefined ? [] : [[outer, 4, "address"] as [string, 4, PortScope]]),
    ];
    if (hasV6) places.push(["::1", 6, "loopback"], ["::", 6, "any"]);
    if (hasV6) places.push(["::ffff:127.0.0.1", 6, "loopback"], ["::ffff:0.0.0.0", 6, "any"]);
    t.diagnostic(`${places.length} addresses`);
    for (const [address, family, scope] of places) {
      await using server = await serverAt(address);
      const { ports, truncated } = await client.ports.list();
      const { inode, ...found } = ports.find(({ port }) => port === portOf(server)) ?? assert.fail(address);
      const holder = { uid: process.getuid?.(), pid: process.pid, command };
      assert.deepEqual(found, { port: portOf(server), family, scope, address, ...holder });
      assert.ok(inode > 0 && !truncated);
      assert.deepEqual(
        ports.map(({ port }) => port),
        ports.map(({ port }) => port).toSorted((one, other) => one - other),
      );
      assert.ok(!ports.some(({ port }) => port === agent.port), "the agent's own");
    }
  });

  it("listPorts returns each of 100 listeners once, across several kernel table pages", async () => {
    using client = clientOf(agent);
    const servers = await Promise.all(Array.from({ length: 100 }, () => serverAt("127.0.0.3")));
    const { ports } = await client.ports.list();
    const listed = ports.filter(({ address }) => address === "127.0.0.3").map(({ port }) => port);
    for (const server of servers) assert.equal(listed.filter((port) => port === portOf(server)).length, 1, "each once");
    for (const server of servers) await server[Symbol.asyncDispose]();
  });

  it("watchPorts reports all ports, then opened ports, new owners and closed ports", async () => {
    using client = clientOf(agent);
    await using early = await serverAt("127.0.0.1");
    const watch = client.ports.watch();
    const first = (await watch.next()).value;
    assert.ok(first?.full === true && first.ports.some(({ port }) => port === portOf(early)));
    const server = await serverAt("127.0.0.1");
    const isIt = ({ port }: ListeningPort): boolean => port === portOf(server);
    const port = portOf(server);
    const opened = await told(watch, "ports", isIt);
    assert.deepEqual([opened.pid, opened.command], [process.pid, command]);
    const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
    const heir = spawn("sleep", ["1000"], { stdio: ["ignore", "ignore", "ignore", fd] });
    server.close();
    const inherited = await told(watch, "ports", (one) => one.port === port);
    assert.deepEqual(
      [inherited.inode, inherited.pid, inherited.command],
      [opened.inode, heir.pid ?? assert.fail("no pid"), "sleep"],
    );
    heir.kill("SIGKILL");
    assert.deepEqual(await told(watch, "closed", (one) => one.port === port), inherited);
    await watch.return?.();
  });

  it("watchPorts works in a frozen session and resends all ports after a restore", async (t) => {
    await using own = await startAgent({ process: { args: ["sleep", "1000"] } });
    if (lacksCgroups(t, own)) return;
    using client = clientOf(own);
    using other = clientOf(own);
    const before = await client.health();
    await client.snapshots.prepare({ freezeMs: 600_000 });
    const [watch, lost] = [client.ports.watch(), other.ports.watch()];
    for (const each of [watch, lost]) assert.equal((await each.next()).value?.full, true);
    await using server = await serverAt("127.0.0.1");
    assert.ok((await client.ports.list()).ports.some(({ port }) => port === portOf(server)));
    const { lastUserActivity, lastUserActivityNanos } = before;
    assert.partialDeepStrictEqual(await client.health(), { frozen: true, lastUserActivity, lastUserActivityNanos });
    await client.snapshots.duties({ entropy: Buffer.alloc(32, 1) });
    assert.equal((await failureOf(Array.fromAsync(lost))).status, "UNAVAILABLE");
    let whole = await watch.next();
    while (whole.value?.full !== true) whole = await watch.next();
    assert.ok(whole.value.ports.some(({ port }) => port === portOf(server)));
    const [, refused] = await Promise.all([own.stop(), failureOf(Array.fromAsync(watch))]);
    assert.equal(refused.reason, "SHUTTING_DOWN");
  });

  it("without /proc, port lists fail with PORTS_NOT_KNOWN", NEEDS_NAMESPACES, async () => {
    await using bare = await startAgent({ through: inMountNamespace("mount -t tmpfs none /proc") });
    using client = clientOf(bare);
    for (const asked of [client.ports.list(), client.ports.watch().next()]) {
      await assert.rejects(asked, { status: "FAILED_PRECONDITION", reason: "PORTS_NOT_KNOWN" });
    }
    await using server = await listener(undefined, { port: 0, host: "127.0.0.1" });
    assert.deepEqual(await client.ports.waitFor(server.port), { scope: "unknown" });
  });
});

describe("PortWatch", () => {
  const kind = { family: 4, address: "0.0.0.0", scope: "ANY", isReached: true, uid: 0 } as const;
  /** A watch over sockets that the test names. */
  function scene(open: () => readonly number[], where: Omit<Listener, "inode" | "port"> = kind) {
    const timers = new ManualTimers();
    const counts = { looks: 0, life: 0 };
    const sockets: Sockets = {
      connectPort: () => assert.fail("nobody connects"),
      connectPath: () => assert.fail("nobody connects"),
      eachListener: async (take) => {
        counts.looks += 1;
        for (const port of open()) take({ inode: port, port, ...where });
        return true;
      },
      holders: async () => new Map(),
    };
    const ports = new PortWatch({ sockets, timers, ownPort: 7071, generation: () => counts.life });
    /** Lets time pass, and what that begins come to its end. */
    const pass = async (ms = LOOK_MS): Promise<void> => {
      timers.advance(ms);
      await settled();
    };
    return { counts, pass, ports };
  }
  const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

  it("PortWatch lists the 512 lowest ports and reports truncation", async () => {
    const { ports } = scene(() => Array.from({ length: 3 * LISTED }, (_, number) => 60_000 - number));
    const list = await ports.list();
    const listed = [...list.ports.keys()];
    assert.deepEqual([listed.length, listed.at(-1), list.truncated], [LISTED, 60_000 - 2 * LISTED, true]);
  });

  it("otherAddressOf also finds ports beyond the 512 that PortWatch lists", async () => {
    const address = "127.0.0.2";
    const { ports } = scene(() => Array.from({ length: 3 * LISTED }, (_, number) => 60_000 - number), {
      ...kind,
      address,
      scope: "LOOPBACK",
      isReached: false,
    });
    assert.deepEqual(await Promise.all([ports.otherAddressOf(60_000), ports.otherAddressOf(1)]), [address, undefined]);
  });

  it("PortWatch checks ports once for all eight watchers, and rejects a ninth", async () => {
    let open = [80, 7071];
    const { counts, pass, ports } = scene(() => open);
    const callers = Array.from({ length: WATCHERS + 1 }, () => new AbortController());
    const sent: Changes[][] = [];
    const watches = callers.map(({ signal }) => {
      const messages: Changes[] = [];
      sent.push(messages);
      return ports.watch({ isBehind: () => false, send: (changes) => messages.push(changes), signal });
    });
    const over = Promise.allSettled(watches);
    await assert.rejects(watches[WATCHERS] ?? assert.fail(), { reason: "TOO_MANY_WATCHERS" });
    await settled();
    const first = counts.looks;
    for (let time = 0; time < 10; time++) await pass();
    assert.equal(counts.looks - first, 10);
    for (open of [[80, 90], [90]]) await pass();
    const words = ({ full, ports: opened, closed }: Changes): unknown[] => [
      full,
      opened.map(({ port }) => port),
      closed.map(({ port }) => port),
    ];
    for (const messages of sent.slice(0, WATCHERS))
      assert.deepEqual(messages.map(words), [
        [true, [80], []],
        [false, [90], []],
        [false, [], [80]],
      ]);
    for (const caller of callers) caller.abort(new Error("gone"));
    await over;
    await pass();
    const last = counts.looks;
    await pass(100 * LOOK_MS);
    assert.equal(counts.looks, last);
  });

  it("PortWatch merges changes for slow watchers and resends everything after a restore", async () => {
    let open = [1];
    let isBehind = false;
    const { counts, pass, ports } = scene(() => open);
    const { signal } = new AbortController();
    const sent: Changes[] = [];
    void ports.watch({ isBehind: () => isBehind, send: (one) => sent.push(one), signal }).catch(() => undefined);
    await settled();
    isBehind = true;
    for (open of [[2], [2, 3], [3, 4]]) await pass();
    assert.equal(sent.length, 1);
    isBehind = false;
    await pass();
    counts.life = 1;
    await pass();
    assert.deepEqual(
      sent.map(({ full, ports: opened, closed }) => [full, opened.length, closed.length]),
      [
        [true, 1, 0],
        [false, 2, 1],
        [true, 2, 0],
      ],
    );
  });
});
