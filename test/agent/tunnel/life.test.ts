import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import type { GuestClient, GuestError, GuestTunnel } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { activityNs, clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";
import { openDescriptors } from "../../fixtures/proc.ts";

const ENTROPY = new Uint8Array(64).fill(7);

async function open(client: GuestClient, port: number): Promise<GuestTunnel> {
  const tunnel = client.ports.connect(port).on("error", () => {});
  await tunnel.opened;
  return tunnel;
}

/** Why a tunnel ends. */
function failure(tunnel: GuestTunnel): Promise<GuestError> {
  return failureOf(once(tunnel, "close").then(() => undefined));
}

describe("a tunnel's life", () => {
  it("tunnel openings and data count as user activity, idle tunnels do not", async () => {
    await using agent = await startAgent();
    await using server = await listener(echo);
    using client = clientOf(agent);
    const before = await activityNs(client);
    const tunnel = await open(client, server.port);
    const opened = await activityNs(client);
    assert.ok(opened > before, "opening it is activity");
    await client.ports.waitFor(server.port);
    assert.equal(await activityNs(client), opened, "silence and waiting are none");
    tunnel.write("x");
    await once(tunnel, "data");
    const answered = await activityNs(client);
    assert.ok(answered > opened, "its bytes are");
    (await server.next()).write("unasked");
    await once(tunnel, "data");
    assert.ok((await activityNs(client)) > answered, "and those from the guest");
    tunnel.destroy();
  });

  it("the restore steps end tunnels on both sides; new tunnels work", async () => {
    await using agent = await startAgent();
    await using server = await listener(echo);
    using client = clientOf(agent);
    const tunnel = await open(client, server.port);
    const socket = await server.next();
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const ends = Promise.all([failure(tunnel), closed]);
    using node = clientOf(agent);
    await node.snapshots.duties({ entropy: ENTROPY });
    const [{ status }] = await ends;
    assert.equal(status, "UNAVAILABLE");
    assert.equal(socket.errored === null, false, "it was reset in the guest");
    const next = await open(client, server.port);
    next.end("again");
    assert.equal(String((await once(next, "data"))[0]), "again");
    await once(next, "close");
  });

  it("a stopping agent delivers the workload's last bytes through tunnels, then closes them", async () => {
    // The workload's server sends its last words when it gets SIGTERM.
    const script = `const { createServer } = require("net"); const open = new Set();
      createServer((s) => { open.add(s); s.on("error", () => {}); }).listen(0, "127.0.0.1", function () { console.log("port " + this.address().port); });
      process.on("SIGTERM", () => { let left = open.size; for (const s of open) s.end("goodbye", () => --left === 0 && process.exit(0)); });`;
    await using agent = await startAgent({ process: { args: [process.execPath, "-e", script] } });
    await agent.printed(/port \d+\n/);
    const port = Number(/port (\d+)/.exec(agent.output.stdout)?.[1]);
    await using outside = await listener((socket) => socket.pause());
    using client = clientOf(agent);
    const told = await open(client, port);
    // One tunnel that nobody reads, and one whose server does not know of the agent's end.
    const [unread, elsewhere] = [await open(client, port), await open(client, outside.port)];
    elsewhere.write(Buffer.alloc(2 ** 22));
    let words = "";
    told.on("data", (bytes: Buffer) => (words += String(bytes)));
    const ended = Promise.all([told, elsewhere].map(failure));
    const { code } = await agent.stop();
    for (const { status, reason } of await ended) assert.deepEqual([status, reason], ["UNAVAILABLE", "SHUTTING_DOWN"]);
    assert.deepEqual([code, words], [0, "goodbye"]);
    unread.destroy();
  });

  it("tunnels leave no descriptor open, however they end", NEEDS_INSIGHT, async () => {
    await using agent = await startAgent();
    await using server = await listener(echo);
    using client = clientOf(agent);
    const sockets = (): number => openDescriptors(agent.pid).filter((entry) => entry.includes("socket:")).length;
    (await open(client, server.port)).destroy();
    await until(() => server.sockets.every((socket) => socket.destroyed), "the first tunnel was closed");
    const before = sockets();
    for (let round = 0; round < 20; round++) {
      const tunnels = await Promise.all(Array.from({ length: 20 }, () => open(client, server.port)));
      for (const [number, tunnel] of tunnels.entries()) {
        if (number % 3 === 0) tunnel.destroy();
        else if (number % 3 === 1) tunnel.resume().end("x");
        else server.sockets[server.sockets.length - 1 - number]?.resetAndDestroy();
      }
      for (const tunnel of tunnels) tunnel.destroy();
    }
    await until(
      () => sockets() === before,
      () => `${sockets()} sockets were ${before} again`,
    );
  });
});
