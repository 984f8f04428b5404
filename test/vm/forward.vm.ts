import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, describe, test } from "node:test";
import { type GuestClient, type GuestError, restoreSequence } from "../../src/node/client/index.ts";
import { until } from "../fixtures/awake.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { relayTo } from "../fixtures/relay.ts";
import { Stage } from "./cases/stage.ts";
import { SOCAT } from "./cases/vsock-cases.ts";

const REACH_MS = 600_000;
const FREEZE_MS = 600_000;
/** More than a transport's 128 tunnels, so that some have a transport of their own. */
const CONNECTIONS = 130;
const ECHO_PORT = 7_000;

/**
 * How many connections are opened at once. An emulated guest would need more than the 5 s of a handshake for a second
 * transport while it starts a process for each of 130 connections.
 */
const BATCH = 10;

/** Opens connections through a forward, each of which has echoed a byte. */
async function connections(port: number, errors: readonly GuestError[]): Promise<Socket[]> {
  const before = errors.length;
  const sockets: Socket[] = [];
  while (sockets.length < CONNECTIONS) {
    const batch = Array.from({ length: BATCH }, () => connect(port, "127.0.0.1"));
    sockets.push(...batch);
    await Promise.all(
      batch.map(async (socket) => {
        socket.write("x");
        assert.equal(String((await once(socket, "data"))[0]), "x");
      }),
    ).catch((cause: unknown) => {
      const messages = errors.slice(before).map(({ message }) => message);
      throw new Error(`after ${sockets.length - BATCH} connections: ${[...new Set(messages)].join("; ")}`, { cause });
    });
  }
  return sockets;
}

describe("a forward into a sandbox", () => {
  const stage = new Stage({
    hostPrograms: SOCAT,
    // An echo server with a process per connection.
    process: { args: ["/bin/socat", `TCP-LISTEN:${ECHO_PORT},fork,backlog=256`, "PIPE"] },
  });
  after(() => stage.end());

  /** Connections of the echo server, by its processes: those of all that the agent has not closed. */
  async function served(client: GuestClient): Promise<number> {
    const { stdout } = await client.run(["/bin/busybox", "pidof", "socat"]);
    return stdout.trim().split(" ").length - 1;
  }

  test("`forward` closes its 130 connections at a standby, and carries 130 new ones after the resume", async (t) => {
    await stage.boot();
    const place = { host: "127.0.0.1", port: stage.machine.agentPort };
    // The sandbox keeps its address; the test's machines do not.
    await using relay = await relayTo(place);
    const { certificates, token } = stage.guest;
    using client = clientOf({ port: relay.port, certificates, token }, { connectTimeoutMs: REACH_MS });
    const errors: GuestError[] = [];
    await using forwarding = await client.ports.forward({
      port: ECHO_PORT,
      requestTimeoutMs: REACH_MS,
      onError: (error) => errors.push(error),
    });
    // The agent answers before its workload listens.
    await client.ports.waitFor(ECHO_PORT, { timeoutMs: REACH_MS });
    const ends = (await connections(forwarding.port, errors)).map(
      (socket) =>
        new Promise<string>((resolve) => {
          socket.once("error", ({ message }) => resolve(message)).once("end", () => resolve("end"));
        }),
    );
    assert.equal(await served(client), CONNECTIONS);
    assert.deepEqual(errors, []);
    {
      using other = stage.client();
      await other.snapshots.prepare({ freezeMs: FREEZE_MS });
    }
    const snapshot = await stage.guest.snapshot(stage.machine, "standby");
    await stage.replaceMachine(() => stage.guest.start(snapshot));
    place.port = stage.machine.agentPort;
    relay.cut();
    relay.mend();
    await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });

    assert.deepEqual([...new Set(await Promise.all(ends))], ["read ECONNRESET"]);
    assert.equal(errors.length, CONNECTIONS);
    t.diagnostic(`reported once each: ${[...new Set(errors.map(({ message }) => message))].join("; ")}`);
    const again = await connections(forwarding.port, errors);
    await until(
      async () => (await served(client)) === CONNECTIONS,
      "the guest has no connection of before the standby",
    );
    assert.equal(errors.length, CONNECTIONS);
    for (const socket of again) socket.destroy();
    await until(async () => (await served(client)) === 0, "the guest has no connection left");
  });
});
