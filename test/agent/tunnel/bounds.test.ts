import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { PassThrough, type Writable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { after, describe, it } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type { GuestClient, GuestTunnel } from "../../../src/node/client/index.ts";
import { Tunnel, type TunnelFrame, TunnelFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { memoryOf } from "../../fixtures/proc.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { grpcJsClient } from "../../fixtures/rpc-clients.ts";

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const raw = grpcJsClient(agent);
after(() => raw.close());

const MIB = 2 ** 20;
const LIMIT = 256;
/** Tunnels of one connection; fewer than the agent allows. */
const OF_A_CLIENT = 100;
/** Far more than the windows and kernel buffers of one connection hold, far less than is sent. */
const BUFFERS_BYTES = 24 * MIB;
const FLOOD_BYTES = 48 * MIB;
const ROUND_TRIPS = 300;
/** Counted for a data frame on top of its bytes. */
const FRAME_OVERHEAD_BYTES = 64;
/** The agent from its sources has 100 MiB at the start. */
const PEAK_LIMIT_BYTES = 256 * MIB;

type FrameInit = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;
const frame = (init: FrameInit): TunnelFrame => create(TunnelFrameSchema, { frame: init });
const open = (port: number): TunnelFrame => frame({ case: "open", value: { target: { case: "port", value: port } } });

/** A tunnel whose frames the test makes itself. */
function openRaw(frames: AsyncIterable<TunnelFrame> | readonly TunnelFrame[]): AsyncGenerator<TunnelFrame> {
  return raw.call(Tunnel.method.open, frames, { token: agent.token });
}
/** A tunnel to a socket, whose client takes a byte at first. */
function openNarrow(path: string): { requests: PassThrough; answers: AsyncGenerator<TunnelFrame> } {
  const requests = new PassThrough({ objectMode: true });
  requests.write(frame({ case: "open", value: { target: { case: "path", value: path }, windowBytes: 1 } }));
  return { requests, answers: openRaw(requests as AsyncIterable<TunnelFrame>) };
}
/** Sends a byte and gets it back, that many times. */
async function roundTrips(tunnel: GuestTunnel, times: number): Promise<void> {
  for (let time = 0; time < times; time++) {
    tunnel.write("x");
    await once(tunnel, "data");
  }
}

/** Writes as fast as it can until all is written, and counts the bytes. */
function flood(socket: Writable, piece: Buffer): { written: number } {
  const progress = { written: 0 };
  const next = (): void => {
    if (progress.written >= FLOOD_BYTES) socket.end();
    else
      socket.write(piece, () => {
        progress.written += piece.length;
        next();
      });
  };
  next();
  return progress;
}

describe("the bounds of tunnels", () => {
  it("a window update overtakes tunnel data that the server has not read", async () => {
    const path = directory.at("paused");
    await using server = await listener((socket) => socket.pause(), { path });
    const { requests, answers } = openNarrow(path);
    let halfBytes = 0;
    let isWidened = false;
    let came = 0;
    const receive = async (): Promise<void> => {
      for await (const { frame: answer } of answers) {
        if (answer.case === "opened") halfBytes = answer.value.windowBytes / 2;
        else if (answer.case === "window") isWidened = true;
        else if (answer.case === "data") came++;
      }
    };
    receive().catch(() => undefined);
    const socket = await server.next();
    socket.write(Buffer.alloc(MIB));
    await until(() => came === 1 && halfBytes > 0, "the client's window is used up");
    // More than the kernel takes: when it has taken the first, the second waits in the agent and the third fills its
    // window.
    const half = frame({ case: "data", value: Buffer.alloc(halfBytes - FRAME_OVERHEAD_BYTES) });
    requests.write(half);
    requests.write(half);
    await until(() => {
      if (!isWidened) socket.read();
      return isWidened;
    }, "the first half is taken");
    requests.write(half);
    requests.write(frame({ case: "window", value: { bytes: MIB } }));
    await until(() => came > 1, "the agent knows of the wider window");
    requests.end();
  });

  it("a tunnel sends at most 64 KiB more than the client's window allows", async () => {
    const path = directory.at("much");
    await using _server = await listener((socket) => void socket.end(Buffer.alloc(2 * MIB)), { path });
    const { requests, answers } = openNarrow(path);
    // Steps of more than 64 KiB and less than the kernel holds.
    const stepBytes = 100 * 1024;
    let windowBytes = 1;
    let countedBytes = 0;
    for await (const { frame: answer } of answers) {
      if (answer.case === "end") break;
      if (answer.case !== "data") continue;
      countedBytes += answer.value.length + FRAME_OVERHEAD_BYTES;
      const overBytes = countedBytes - windowBytes;
      assert.ok(overBytes <= 64 * 1024, `${overBytes} bytes more than the window`);
      if (overBytes < 0) continue;
      requests.write(frame({ case: "window", value: { bytes: overBytes + stepBytes } }));
      windowBytes += overBytes + stepBytes;
    }
    assert.ok(countedBytes > 2 * MIB, "all came");
  });

  it("tunnels apply backpressure in both directions and lose no byte", async () => {
    const piece = randomBytes(MIB);
    const all = createHash("sha256");
    for (let sent = 0; sent < FLOOD_BYTES; sent += piece.length) all.update(piece);
    const sha256 = all.digest("hex");
    await using echoes = await listener(echo);
    await using server = await listener((socket) => socket.pause());
    using client = clientOf(agent);
    const other = client.ports.connect(echoes.port);
    const down = client.ports.connect(server.port);
    const downSocket = await server.next();
    const up = client.ports.connect(server.port);
    const upSocket = await server.next();
    const [fromGuest, fromClient] = [flood(downSocket, piece), flood(up, piece)];
    await roundTrips(other, ROUND_TRIPS);
    assert.ok(fromGuest.written < BUFFERS_BYTES, `${fromGuest.written} bytes are on their way to the client`);
    assert.ok(fromClient.written < BUFFERS_BYTES, `${fromClient.written} bytes are on their way to the guest`);
    const read = async (from: GuestTunnel | Socket): Promise<string> => {
      const hash = createHash("sha256");
      from.on("data", (bytes: Buffer) => hash.update(bytes));
      // Resume the paused socket: a listener alone does not.
      from.resume();
      await once(from, "end");
      return hash.digest("hex");
    };
    assert.deepEqual(await Promise.all([read(down), read(upSocket)]), [sha256, sha256]);
    for (const tunnel of [other, down, up]) tunnel.destroy();
  });

  it("199 stalled tunnels do not delay 57 other tunnels", async () => {
    await using own = await startAgent();
    await using echoes = await listener(echo);
    const piece = Buffer.alloc(MIB);
    // Over a unix socket, for which the kernel buffers little.
    const path = directory.at("stuck.sock");
    const serve = (socket: Socket): void => void flood(socket.pause(), piece);
    await using _stuck = await listener(serve, { path });
    const clients = Array.from({ length: 3 }, () => clientOf(own));
    const clientAt = (number: number): GuestClient => clients[Math.floor(number / OF_A_CLIENT)] as GuestClient;
    const tunnels: GuestTunnel[] = [];
    const connect = (number: number, target: number | string): GuestTunnel => {
      const tunnel = clientAt(number).ports.connect(target);
      // The promise reports this failure.
      tunnels.push(tunnel.on("error", () => {}));
      return tunnel;
    };
    try {
      const still = Array.from({ length: 2 * OF_A_CLIENT - 1 }, (_, number) => connect(number, path));
      for (const tunnel of still) flood(tunnel, piece);
      await Promise.all(still.map((tunnel) => tunnel.opened));
      // On a connection whose other tunnels all stall: shared windows are used up.
      const beside = connect(OF_A_CLIENT, echoes.port);
      const others = Array.from({ length: LIMIT - still.length - 1 }, () => connect(2 * OF_A_CLIENT, echoes.port));
      await roundTrips(beside, ROUND_TRIPS);
      for (const tunnel of others) await roundTrips(tunnel, 1);
      const large = randomBytes(4 * MIB);
      beside.end(large);
      assert.ok((await buffer(beside)).equals(large));
      const last = connect(0, echoes.port);
      await roundTrips(last, 1);
      const tooMany = connect(2 * OF_A_CLIENT, echoes.port);
      await assert.rejects(tooMany.opened, { status: "RESOURCE_EXHAUSTED", reason: "TOO_MANY_TUNNELS" });
      const { peakBytes } = memoryOf(own.pid);
      assert.ok(peakBytes < PEAK_LIMIT_BYTES, `the agent had ${peakBytes} bytes`);
      // A place is free once its tunnel is closed and the agent knows.
      last.destroy();
      await until(async () => {
        using again = connect(2 * OF_A_CLIENT, echoes.port);
        return await again.opened.then(
          () => true,
          () => false,
        );
      }, "the place of a closed tunnel was free");
    } finally {
      for (const tunnel of tunnels) tunnel.destroy();
      for (const client of clients) client.close();
    }
  });

  it("a tunnel rejects misordered frames and resets its connection to the server", async () => {
    await using server = await listener((socket) => socket.resume());
    const first = open(server.port);
    const end = frame({ case: "end", value: {} });
    const data = frame({ case: "data", value: Buffer.from("a part") });
    for (const frames of [
      [],
      [data],
      [end],
      [first, first, end],
      [first, frame({ case: "opened", value: {} }), end],
      [first, create(TunnelFrameSchema), end],
      [first, data],
    ]) {
      await assert.rejects(Array.fromAsync(openRaw(frames)), { code: status.INVALID_ARGUMENT, reason: "FRAME_ORDER" });
    }
    const nowhere = Array.fromAsync(openRaw([frame({ case: "open", value: {} })]));
    await assert.rejects(nowhere, { code: status.INVALID_ARGUMENT, reason: "INVALID_FIELD" });
    await until(() => server.sockets.every((socket) => socket.destroyed), "all connections were closed");
    // The last one was reset: a server must not take a part for the whole.
    assert.equal((server.sockets.at(-1)?.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");
  });

  it("a tunnel works for a client that ignores the tunnel's flow-control windows", async () => {
    await using server = await listener(echo);
    const piece = randomBytes(MIB);
    const frames = [open(server.port), ...Array.from({ length: 16 }, () => frame({ case: "data", value: piece }))];
    const got: Uint8Array[] = [];
    let ended = false;
    for await (const { frame: told } of openRaw([...frames, frame({ case: "end", value: {} })])) {
      assert.ok(!ended);
      if (told.case === "data") got.push(told.value);
      ended = told.case === "end";
    }
    assert.ok(ended);
    assert.ok(Buffer.concat(got).equals(Buffer.concat(Array.from({ length: 16 }, () => piece))));
  });
});
