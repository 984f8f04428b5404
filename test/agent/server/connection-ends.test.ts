import assert from "node:assert/strict";
import { once } from "node:events";
import { truncate, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type AgentExit, type SocketAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { awake } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { ENDLESS_OUTPUT, LISTENERS, readRequest, stoppedAtData } from "../../fixtures/raw-calls.ts";
import { callFields, CODE, FLAG, FRAME, frame, headerBlock, RawHttp2 } from "../../fixtures/raw-http2.ts";

/*
 * No peer can delay the agent's exit, and with it the sandbox's end. Every client here leaves its connection open for
 * as long as the test runs, and most of them do not read.
 */

/** More than all buffers between the agent and a client hold. */
const LARGE_FILE_BYTES = 1024 * 1024 * 1024;
const WORKLOAD_EXIT_CODE = 7;
const WRONG_TOKEN = "wrong-token-0123456789";

type Dial = () => Promise<RawHttp2>;

/** A peer whose call was answered with that status. */
async function answered(dial: Dial, token: string, code = "0"): Promise<RawHttp2> {
  const peer = await dial();
  assert.equal(await peer.ask("Health", token), code);
  return peer;
}

/** Clients that stay, each opened up to the point where it is a burden. */
const PEERS: readonly {
  readonly who: string;
  readonly open: (dial: Dial, agent: SocketAgent, largeFile: string) => Promise<Disposable>;
}[] = [
  {
    who: "is idle",
    open: (dial, { token }) => answered(dial, token),
  },
  {
    who: "is idle and reads nothing",
    open: async (dial, { token }) => {
      const peer = await answered(dial, token);
      peer.stopReading();
      return peer;
    },
  },
  {
    who: "stopped reading a file",
    open: async (dial, { token }, path) => {
      const peer = await dial();
      peer.call("ReadFile", token, readRequest(path));
      return stoppedAtData(peer);
    },
  },
  {
    who: "stopped reading output",
    open: async (dial, { token }) => {
      const peer = await dial();
      peer.call("Exec", token, ENDLESS_OUTPUT, false);
      return stoppedAtData(peer);
    },
  },
  {
    who: "has a wrong token",
    open: async (dial) => {
      const peer = await answered(dial, WRONG_TOKEN, "16");
      peer.stopReading();
      return peer;
    },
  },
  { who: "has sent no request", open: (dial) => dial() },
];

/** Two ways to end an agent, and the exit of each. */
const ENDS: readonly {
  readonly how: string;
  readonly begin: (agent: SocketAgent, release: string) => Promise<void> | void;
  readonly exit: AgentExit;
}[] = [
  { how: "SIGTERM", begin: (agent) => agent.kill("SIGTERM"), exit: { code: 143, signal: null } },
  {
    how: "the workload's end",
    begin: (_agent, release) => writeFile(release, ""),
    exit: { code: WORKLOAD_EXIT_CODE, signal: null },
  },
];

const directory = forAllTests(await testDirectory()).path;
const largeFile = join(directory, "large");
await writeFile(largeFile, "");
await truncate(largeFile, LARGE_FILE_BYTES);

describe("the agent exits whatever its peers do", () => {
  for (const { how, begin, exit } of ENDS) {
    describe(`at ${how},`, { concurrency: 8 }, () => {
      for (const [listener, target] of Object.entries(LISTENERS)) {
        for (const { who, open: openPeer } of PEERS) {
          test(`the agent exits although ${listener}'s client ${who}`, async () => {
            const release = join(directory, crypto.randomUUID());
            await using agent = await startWithWorkload(release);
            using _peer = await openPeer(() => RawHttp2.dial(target(agent)), agent, largeFile);
            await begin(agent, release);
            assert.deepEqual(await awake(agent.exited), exit);
            assertOrderlyEnd(agent);
          });
        }
      }

      test("the agent exits although a TCP client's handshake is unfinished", async () => {
        const release = join(directory, crypto.randomUUID());
        await using agent = await startWithWorkload(release);
        const socket = net.connect({ port: agent.port, host: "127.0.0.1", allowHalfOpen: true });
        socket.on("error", () => {});
        await once(socket, "connect");
        // The beginning of a ClientHello: a record of 512 bytes that never comes.
        socket.write(Buffer.from("1603010200010001fc0303", "hex"));
        await begin(agent, release);
        assert.deepEqual(await awake(agent.exited), exit);
        socket.destroy();
      });
    });
  }
});

function startWithWorkload(release: string): Promise<SocketAgent> {
  const script = `until [ -e "$0" ]; do sleep 0.05; done; exit ${WORKLOAD_EXIT_CODE}`;
  return startSocketAgent({ process: { args: ["sh", "-c", script, release] } });
}

/** The workload's end comes first, and nothing that goes wrong after it is the agent's. */
function assertOrderlyEnd({ log }: SocketAgent): void {
  const ended = log.findIndex(({ event }) => event === "workload_ended");
  assert.ok(ended > log.findIndex(({ event }) => event === "management_listening"), JSON.stringify(log));
  const errors = log.filter(({ level }) => level === "error");
  assert.deepEqual(errors, []);
}

/* Peers without an admitted call have nothing to finish: they do not delay the agent's end, whatever they send. */

const FLOOD_BATCH = 100;

/** Sends HEADERS for a request that the agent has reset, for as long as the agent takes them. */
async function flood(agent: SocketAgent): Promise<void> {
  const block = headerBlock(callFields("Health", WRONG_TOKEN));
  // A freed place is taken again, until nobody listens any more.
  for (;;) {
    using peer = await RawHttp2.dial(agent).catch(() => undefined);
    if (peer === undefined) return;
    const stream = peer.open(callFields("Health", WRONG_TOKEN).filter(([name]) => name !== ":path"));
    const piece = frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, block);
    while (!peer.isEnded) {
      peer.send(...Array.from({ length: FLOOD_BATCH }, () => piece));
      await peer.flushed();
    }
  }
}

describe("an agent that is asked to stop", () => {
  test("a stopping agent immediately disconnects unauthenticated peers; authenticated ones may finish", async () => {
    await using agent = await startSocketAgent();
    using known = await RawHttp2.dial(agent);
    assert.equal(await known.ask("Health", agent.token), "0");
    using stranger = await RawHttp2.dial(agent);
    assert.equal(await stranger.ask("Health", WRONG_TOKEN), "16");
    agent.kill("SIGTERM");
    const [farewell, announcement] = await Promise.all(
      [stranger, known].map((peer) => peer.next(({ type }) => type === FRAME.goaway, "a GOAWAY")),
    );
    // The last stream that is accepted (RFC 9113, 6.8): the stranger's first, and any of the other's.
    assert.equal(farewell?.payload.readUInt32BE(0), 1);
    assert.equal(announcement?.payload.readUInt32BE(0), 2 ** 31 - 1);
    assert.equal(farewell.payload.readUInt32BE(4), CODE.none);
    await stranger.ended();
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
  });

  test("SIGTERM ends the agent although unauthenticated peers flood it with HEADERS", async () => {
    await using agent = await startSocketAgent();
    const floods = Array.from({ length: 8 }, () => flood(agent));
    await agent.logged("connection_failed", ({ reason }) => String(reason).includes("ENHANCE_YOUR_CALM"));
    agent.kill("SIGTERM");
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
    await Promise.all(floods);
  });
});
