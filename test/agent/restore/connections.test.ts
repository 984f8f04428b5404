import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdtempDisposableSync, writeFileSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { ExecStream } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";
import { openDescriptors, processById } from "../../fixtures/proc.ts";
import { DUTIES } from "../../fixtures/raw-calls.ts";
import { CODE, RawHttp2 } from "../../fixtures/raw-http2.ts";

const ENTROPY = new Uint8Array(64).fill(7);

/** A connection that the agent has accepted. */
async function dial(agent: RunningAgent): Promise<RawHttp2> {
  const peer = await RawHttp2.dial(agent);
  await peer.pinged();
  return peer;
}

it("a rehearsal of restore steps starts no process and changes nothing observable", NEEDS_INSIGHT, async () => {
  using directory = mkdtempDisposableSync(join(tmpdir(), "guest-agent-test-"));
  const mark = join(directory.path, "started");
  // The command that is rehearsed.
  writeFileSync(join(directory.path, "true"), `#!/bin/sh\necho > ${mark}\n`, { mode: 0o755 });
  await using agent = await startAgent({ env: { PATH: directory.path, SVC_LOG_LEVEL: "debug" } });
  using other = await dial(agent);
  using client = clientOf(agent);
  const visible = async () => {
    const { guestTime: _, guestTimeNanos: __, ...health } = await client.health();
    const [{ generation }, execs] = await Promise.all([client.usage(), client.commands.list()]);
    return { health, generation, execs, descriptors: openDescriptors(agent.pid) };
  };
  await visible();
  const before = await visible();
  for (let round = 0; round < 2; round++) await client.snapshots.prepare();
  assert.deepEqual(await visible(), before);
  assert.equal(existsSync(mark), false);
  await other.pinged();
  await client.snapshots.duties({ entropy: ENTROPY });
  assert.equal((await agent.logged("restore_duties_done"))["dropped_connections"], 1);
  const events = agent.log.map(({ event, cause = "" }) => `${event} ${String(cause)}`.trim());
  assert.deepEqual(events.slice(0, events.indexOf("restore_duties_done")), [
    "agent_started",
    "workload_socket_listening",
    "management_listening",
    ...Array<string>(2).fill("connection_opened"),
    ...Array<string>(2).fill("credentials_renewed snapshot"),
    "credentials_renewed restore",
  ]);
  using next = clientOf(agent);
  await next.run(["true"]);
  assert.equal(existsSync(mark), true);
});

describe("connections after the restore steps", () => {
  it("the restore steps close all connections except the one that requested them", async () => {
    await using agent = await startAgent();
    const older = await Promise.all([dial(agent), dial(agent), dial(agent)]);
    const halfOpen = connectTcp(agent.port, "127.0.0.1");
    halfOpen.on("error", () => {});
    await once(halfOpen, "connect");
    const halfOpenClosed = once(halfOpen.resume(), "close");
    using caller = clientOf(agent);
    assert.equal((await caller.snapshots.duties({ entropy: ENTROPY })).entropyBytesMixed, ENTROPY.length);
    await Promise.all([...older.map((peer) => peer.ended()), halfOpenClosed]);
    // Not by the limit of a handshake.
    assert.match(
      String((await agent.logged("connection_refused"))["reason"]),
      /^the handshake was not complete when the agent closed all connections after a restore/,
    );
    assert.equal((await agent.logged("restore_duties_done"))["dropped_connections"], older.length);
    assert.equal((await caller.health()).alive, true, "the caller dials again");
  });

  it("the caller's connection accepts no new calls after the restore steps", async () => {
    await using agent = await startAgent();
    using peer = await dial(agent);
    assert.equal(await peer.ask("RunRestoreDuties", agent.token, DUTIES), "0");
    assert.equal(await peer.goawayCode(), CODE.none);
  });
});

describe("a TLS session", () => {
  it("TLS sessions are never resumed, before or after restore steps", async () => {
    await using agent = await startAgent();
    using caller = clientOf(agent);
    let ticket: Buffer | undefined;
    for (let round = 0; round < 3; round++) {
      const { ca, client } = agent.certificates;
      // Not by the name localhost: a minimal Debian has no /etc/hosts.
      const options = { host: "127.0.0.1", port: agent.port, ca, ...client, servername: SERVER_NAME };
      const parameters = { ALPNProtocols: ["h2"], minVersion: "TLSv1.3", ...(ticket && { session: ticket }) } as const;
      const socket = connectTls({ ...options, ...parameters });
      socket.on("session", (session) => (ticket = session));
      socket.on("error", () => {});
      await once(socket, "secureConnect");
      // The server's first frame comes after the tickets.
      await once(socket, "data");
      assert.equal(socket.isSessionReused(), false);
      socket.destroy();
      if (round > 0) await caller.snapshots.duties({ entropy: ENTROPY });
    }
  });
});

function ms(time: Date | undefined): number {
  return time === undefined ? Number.NaN : time.getTime();
}

describe("commands that a restore ends", () => {
  it("commands ended by a restore do not count as user activity", async () => {
    await using agent = await startAgent();
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "trap '' HUP; echo $$; exec sleep 1000"] });
    const pid = Number(await stream.until("\n"));
    using terminal = new ExecStream(agent);
    terminal.start({ args: ["cat"], terminal: {} });
    await terminal.next();
    using caller = clientOf(agent);
    const asked = ms((await caller.health()).guestTime);
    await caller.snapshots.duties({ entropy: ENTROPY });
    const answered = ms((await caller.health()).guestTime);
    await Promise.all([assert.rejects(stream.outcome()), assert.rejects(terminal.outcome())]);
    let looksAfterwards = 20;
    while (looksAfterwards > 0) {
      const { lastUserActivity } = await caller.health();
      assert.ok(ms(lastUserActivity) >= asked && ms(lastUserActivity) <= answered);
      if (processById(pid) === undefined) looksAfterwards--;
      else await setTimeout(50);
    }
  });
});
