import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import type { StreamSocket } from "../../../src/agent/domain/index.ts";
import { descriptorOf } from "../../../src/agent/internals/index.ts";
import type { Addon, FdWatch } from "../../../src/agent/native/index.ts";
import { guestSockets } from "../../../src/agent/platform/sockets.ts";
import { until } from "../../fixtures/awake.ts";
import { addon } from "../../fixtures/spawning.ts";

const WINDOW_BYTES = 64 * 1024;
const CHUNK_BYTES = 32 * 1024;

/** The addon, and the number of events that its watches have reported. */
function countingAddon(): { readonly counting: Addon; readonly events: () => number } {
  let count = 0;
  class CountingWatch extends addon.FdWatch {
    constructor(fd: number, onEvents: (events: number) => void) {
      super(fd, (events) => {
        count++;
        onEvents(events);
      });
    }
  }
  const FdWatchClass: new (fd: number, onEvents: (events: number) => void) => FdWatch = CountingWatch;
  const counting = Object.assign(Object.create(addon) as Addon, { FdWatch: FdWatchClass });
  return { counting, events: () => count };
}

/** A connection of `guestSockets` to a server of this process, and that server's descriptor of it. */
async function connected(t: TestContext, over: Addon): Promise<{ socket: StreamSocket; peer: Socket; peerFd: number }> {
  const accepted = Promise.withResolvers<Socket>();
  const server = createServer({ pauseOnConnect: true }, accepted.resolve).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const socket = await guestSockets(over).connectPort(4, port, new AbortController().signal);
  t.after(() => socket.close());
  const peer = await accepted.promise;
  t.after(() => peer.destroy());
  const peerFd = descriptorOf(peer);
  assert.ok(peerFd !== undefined);
  return { socket, peer, peerFd };
}

test("a socket does not busy-loop while its receiver accepts no more data", async (t) => {
  const { counting, events } = countingAddon();
  const { socket, peerFd } = await connected(t, counting);
  let roomBytes = WINDOW_BYTES;
  socket.start({
    room: () => Math.max(0, roomBytes),
    chunk: (bytes, release) => {
      roomBytes -= bytes.length;
      release();
    },
    end: () => {},
    failed: () => {},
  });
  // The client of a tunnel sends a little more than the server in the guest takes.
  let isTaken = true;
  while (isTaken) {
    isTaken = false;
    socket.write(Buffer.alloc(CHUNK_BYTES), () => {
      isTaken = true;
    });
  }
  // The server answers until the client's window is used up.
  const piece = Buffer.alloc(WINDOW_BYTES);
  assert.equal(addon.write(peerFd, piece, 0, piece.length), piece.length);
  await until(() => roomBytes <= 0, "the window is used up");
  // In one tick it reads and answers: the socket is readable and writable at the same time.
  while (addon.read(peerFd, piece, 0, piece.length) > 0);
  addon.write(peerFd, piece, 0, CHUNK_BYTES);
  await until(() => isTaken, "the upload has ended");
  const before = events();
  for (let tick = 0; tick < 1_000; tick++) await immediate();
  assert.ok(events() - before <= 2, `${events() - before} events in 1,000 ticks`);
});

test("a socket reports a reset by its peer exactly once", async (t) => {
  const { counting, events } = countingAddon();
  const { socket, peer } = await connected(t, counting);
  const failures: string[] = [];
  socket.start({
    room: () => WINDOW_BYTES,
    chunk: (_, release) => release(),
    end: () => {},
    failed: (errno) => failures.push(errno),
  });
  peer.resetAndDestroy();
  await until(() => failures.length > 0, "the failure is reported");
  const before = events();
  for (let tick = 0; tick < 100; tick++) await immediate();
  assert.deepEqual([failures, events() - before], [["ECONNRESET"], 0]);
});
