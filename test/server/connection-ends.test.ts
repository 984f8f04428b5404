import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { ExecFrameSchema } from "../../src/gen/svc/guest/v1alpha1/exec_pb.ts";
import { ReadFileRequestSchema } from "../../src/gen/svc/guest/v1alpha1/files_pb.ts";
import { RestoreDutiesRequestSchema } from "../../src/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { AgentExit, AgentOptions } from "../fixtures/agent.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { openDescriptors } from "../fixtures/proc.ts";
import { CODE, FRAME, frame, RawHttp2, uint32 } from "../fixtures/raw-http2.ts";
import { type SocketAgent, startSocketAgent } from "../fixtures/socket-agent.ts";

/*
 * No peer can hold the agent's exit, a slot or a descriptor (DESIGN §5). Every client here leaves its connection open
 * for as long as the test runs, and most of them do not read.
 */

/** Long after every deadline of the agent's own, which come to less than 10 s: what has not happened by then never will. */
const HANG_LIMIT_MS = 30_000;
const POLL_MS = 20;
/** More than all buffers between the agent and a client hold. */
const LARGE_FILE_BYTES = 1024 * 1024 * 1024;
const CONNECTION_LIMIT = 64;
const WORKLOAD_EXIT_CODE = 7;
const WRONG_TOKEN = "wrong-token-0123456789";
const DUTIES = toBinary(
  RestoreDutiesRequestSchema,
  create(RestoreDutiesRequestSchema, { entropy: Buffer.alloc(64, 7) }),
);
/** The connection's window before anybody has said otherwise. */
const WINDOW_BYTES = 65_535;
const ENDLESS_OUTPUT = execStart(["cat", "/dev/zero"]);

/** The two ways in: the target of a dial. */
const LISTENERS = {
  "the TCP port": ({ port, certificates }: SocketAgent) => ({ port, certificates }),
  "the unix socket": ({ socketPath }: SocketAgent) => ({ socketPath }),
} as const;

type Dial = () => Promise<RawHttp2>;

/** Clients that stay, each opened up to the point where it becomes a burden. */
const PEERS: readonly {
  readonly who: string;
  readonly open: (dial: Dial, agent: SocketAgent, largeFile: string) => Promise<Disposable>;
}[] = [
  {
    who: "has an idle connection open",
    open: async (dial, { token }) => {
      const peer = await dial();
      assert.equal(await peer.ask("Health", token), "0");
      return peer;
    },
  },
  {
    who: "has an idle connection open and does not read",
    open: async (dial, { token }) => {
      const peer = await dial();
      assert.equal(await peer.ask("Health", token), "0");
      peer.stopReading();
      return peer;
    },
  },
  {
    who: "stopped reading in the middle of a file",
    open: async (dial, { token }, path) => {
      const peer = await dial();
      peer.call("ReadFile", token, toBinary(ReadFileRequestSchema, create(ReadFileRequestSchema, { path })));
      return stoppedAtData(peer);
    },
  },
  {
    who: "stopped reading in the middle of a command's output",
    open: async (dial, { token }) => {
      const peer = await dial();
      peer.call("Exec", token, ENDLESS_OUTPUT, false);
      return stoppedAtData(peer);
    },
  },
  {
    who: "has only ever had a wrong token",
    open: async (dial) => {
      const peer = await dial();
      assert.equal(await peer.ask("Health", WRONG_TOKEN), "16");
      peer.stopReading();
      return peer;
    },
  },
  { who: "has sent no request yet", open: (dial) => dial() },
];

/** Two ways to end an agent, and the exit that they lead to. */
const ENDS: readonly {
  readonly how: string;
  readonly begin: (agent: SocketAgent, release: string) => Promise<void> | void;
  readonly exit: AgentExit;
}[] = [
  { how: "SIGTERM", begin: (agent) => agent.kill("SIGTERM"), exit: { code: 143, signal: null } },
  {
    how: "the workload's own end",
    begin: (_agent, release) => writeFile(release, ""),
    exit: { code: WORKLOAD_EXIT_CODE, signal: null },
  },
];

describe("the agent leaves, whatever its peers do,", () => {
  let folder: string;
  let largeFile: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "connection-ends-"));
    largeFile = join(folder, "large");
    await using file = await open(largeFile, "w");
    await file.truncate(LARGE_FILE_BYTES);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  for (const { how, begin, exit } of ENDS) {
    describe(`at ${how},`, { concurrency: 8 }, () => {
      for (const [listener, target] of Object.entries(LISTENERS)) {
        for (const { who, open: openPeer } of PEERS) {
          test(`though a client of ${listener} ${who}`, async () => {
            const release = join(folder, crypto.randomUUID());
            await using agent = await startWithWorkload(release);
            using _peer = await openPeer(() => RawHttp2.dial(target(agent)), agent, largeFile);
            await begin(agent, release);
            assert.deepEqual(await exitOf(agent), exit);
            assertOrderlyEnd(agent);
          });
        }
      }

      test("though a client of the TCP port has not finished its handshake", async () => {
        const release = join(folder, crypto.randomUUID());
        await using agent = await startWithWorkload(release);
        const socket = net.connect({ port: agent.port, host: "127.0.0.1", allowHalfOpen: true });
        socket.on("error", () => {});
        await once(socket, "connect");
        // The beginning of a ClientHello: a record of 512 bytes that never comes.
        socket.write(Buffer.from("1603010200010001fc0303", "hex"));
        await begin(agent, release);
        assert.deepEqual(await exitOf(agent), exit);
        socket.destroy();
      });
    });
  }
});

describe("a slot is not lost", () => {
  test("to 64 restores in a row, each over a connection that its client keeps open and never reads", async () => {
    await using agent = await startSocketAgent();
    using peers = new DisposableStack();
    for (let count = 1; count <= CONNECTION_LIMIT; count++) {
      const peer = peers.use(await RawHttp2.dial(LISTENERS["the TCP port"](agent)));
      peer.stopReading();
      peer.call("RunRestoreDuties", agent.token, DUTIES);
      await until(() => dutiesDone(agent) === count, `the duties of call ${count} are done`);
    }
    using newcomer = clientOf(agent);
    assert.equal((await newcomer.health()).alive, true);
  });

  for (const [listener, target] of Object.entries(LISTENERS)) {
    for (const [how, leave] of [
      ["close", (peer: RawHttp2) => peer[Symbol.dispose]()],
      ["stay", (peer: RawHttp2) => peer.finish()],
    ] as const) {
      test(`to 300 clients of ${listener} that make a call, say goodbye and ${how} without reading`, async () => {
        await using agent = await startSocketAgent();
        using client = await RawHttp2.dial(target(agent));
        assert.equal(await client.ask("Health", agent.token), "0");
        const atFirst = sockets(agent);
        using peers = new DisposableStack();
        for (let count = 0; count < 300; count++) {
          const peer = peers.use(await RawHttp2.dial(target(agent)));
          peer.stopReading();
          peer.call("Health", agent.token, Buffer.alloc(0));
          // With an error and without one.
          peer.send(frame(FRAME.goaway, 0, 0, uint32(0, count % 2 === 0 ? CODE.internal : CODE.none)));
          await peer.flushed();
          leave(peer);
        }
        await until(
          () => sockets(agent) <= atFirst,
          () => `the agent has no more sockets than the ${atFirst} of before: ${sockets(agent)}`,
        );
        using newcomer = await RawHttp2.dial(target(agent));
        assert.equal(await newcomer.ask("Health", agent.token), "0");
        assert.equal(await client.ask("Health", agent.token), "0");
      });
    }
  }
});

describe("the restore duties", () => {
  for (const [listener, target] of Object.entries(LISTENERS)) {
    test(`end the socket of an older client of ${listener} that does not read`, async () => {
      await using agent = await startSocketAgent();
      const atFirst = sockets(agent);
      using older = await RawHttp2.dial(target(agent));
      older.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await stoppedAtData(older);
      using caller = await RawHttp2.dial(LISTENERS["the TCP port"](agent));
      assert.equal(await caller.ask("RunRestoreDuties", agent.token, DUTIES), "0");
      // A socket that the agent has closed carries nothing more of it; what the kernel had taken may still arrive.
      await until(
        () => sockets(agent) <= atFirst,
        () => `the agent has no more sockets than the ${atFirst} of before: ${sockets(agent)}`,
      );
      older.readOn();
      await older.ended();
    });
  }

  test("are answered also where those of another connection drop the one that waits for the answer", async () => {
    await using agent = await startSocketAgent();
    for (let round = 0; round < 10; round++) {
      using first = await RawHttp2.dial(LISTENERS["the TCP port"](agent), { windowBytes: WINDOW_BYTES });
      first.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await first.next(({ type }) => type === FRAME.data, "a message");
      // Its answer is ready soon, and waits for the window that the command's output has filled.
      const answer = first.status(first.call("RunRestoreDuties", agent.token, DUTIES));
      answer.catch(() => {});
      await until(() => dutiesDone(agent) === 2 * round + 1, "the first duties are done");
      using second = await RawHttp2.dial(LISTENERS["the TCP port"](agent));
      const other = second.ask("RunRestoreDuties", agent.token, DUTIES);
      first.send(frame(FRAME.windowUpdate, 0, 0, uint32(WINDOW_BYTES)));
      assert.equal(await other, "0");
      assert.equal((await answer).get("grpc-status"), "0");
    }
  });
});

function startWithWorkload(release: string, options: AgentOptions = {}): Promise<SocketAgent> {
  const script = `until [ -e "$0" ]; do sleep 0.05; done; exit ${WORKLOAD_EXIT_CODE}`;
  return startSocketAgent({ ...options, process: { args: ["sh", "-c", script, release] } });
}

/** A first frame ExecStart. */
function execStart(args: string[]): Uint8Array {
  return toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "start", value: { args } } }));
}

/** Reads up to the first message of an answer and then no more. */
async function stoppedAtData(peer: RawHttp2): Promise<RawHttp2> {
  await peer.next(({ type }) => type === FRAME.data, "a message");
  peer.stopReading();
  return peer;
}

function dutiesDone(agent: SocketAgent): number {
  return agent.log.filter(({ event }) => event === "restore_duties_done").length;
}

/** The workload's end comes first, and nothing that goes wrong after it is the agent's. */
function assertOrderlyEnd({ log }: SocketAgent): void {
  const ended = log.findIndex(({ event }) => event === "workload_ended");
  assert.ok(ended > log.findIndex(({ event }) => event === "management_listening"), JSON.stringify(log));
  const errors = log.filter(({ level }) => level === "error");
  assert.deepEqual(errors, []);
}

/** Sockets that the agent holds: its listeners and its connections. */
function sockets(agent: SocketAgent): number {
  return openDescriptors(agent.pid).filter((entry) => entry.includes("socket:")).length;
}

async function exitOf(agent: SocketAgent): Promise<AgentExit> {
  let left: AgentExit | undefined;
  agent.exited.then((exit) => (left = exit)).catch(() => undefined);
  await until(() => left !== undefined, "the agent leaves");
  return agent.exited;
}

async function until(holds: () => boolean, what: string | (() => string)): Promise<void> {
  const giveUpMs = performance.now() + HANG_LIMIT_MS;
  while (!holds()) {
    if (performance.now() > giveUpMs) {
      assert.fail(`${HANG_LIMIT_MS / 1000} s have passed before ${typeof what === "string" ? what : what()}`);
    }
    await sleep(POLL_MS);
  }
}
