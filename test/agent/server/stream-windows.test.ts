import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, test } from "node:test";
import tls from "node:tls";
import { create } from "@bufbuild/protobuf";
import { WriteFileResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Call } from "../../../src/agent/rpc/index.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";

const { writeFile } = GuestAgent.method;
const PATH = "/svc.guest.v1alpha1.GuestAgent/WriteFile";
const KIB = 1024;
const LARGEST = 1024 * KIB;
const FIRST = 256 * KIB;
const SMALLEST = 32 * KIB;
const MANY = 70;

describe("the flow-control windows of a connection", () => {
  test("are wide for one large request, and stay as they are for small ones", async () => {
    await using rig = await start();
    const small = rig.open();
    small.end(framed(Buffer.alloc(KIB)));
    await once(small.resume(), "close");
    assert.equal(rig.windowBytes(), FIRST);
    const large = rig.open();
    large.write(framed(Buffer.alloc(40 * KIB)));
    await rig.windowIs(LARGEST);
    large.destroy();
  });

  test("are narrow while many requests are large, wide again for the last of them, and lose no byte meanwhile", async () => {
    await using rig = await start();
    const contents = Array.from({ length: MANY }, () => randomBytes(600 * KIB));
    const expected = contents.map((content) => sha256(content));
    const streams = contents.map(() => rig.open());
    const answers = streams.map((stream) => once(stream, "close"));
    for (const [index, stream] of streams.entries()) {
      stream.resume();
      const bytes = framed(contents[index] ?? Buffer.alloc(0));
      stream.write(bytes.subarray(0, -KIB));
    }
    await rig.windowIs(SMALLEST);
    for (const [index, stream] of streams.entries()) {
      if (index > 0) stream.end(framed(contents[index] ?? Buffer.alloc(0)).subarray(-KIB));
    }
    await rig.windowIs(LARGEST);
    streams[0]?.end(contents[0]?.subarray(-KIB));
    await Promise.all(answers);
    assert.deepEqual(rig.received().toSorted(), expected.toSorted());
  });

  test("are changed no further for a client that has not acknowledged a change, and its calls go on", async () => {
    await using rig = await start();
    const peer = await SilentPeer.connect(rig.server);
    for (let index = 0; index < MANY; index++) peer.send(2 * index + 1, framed(Buffer.alloc(40 * KIB)));
    await peer.announced(2);
    for (let index = 0; index < MANY; index++) peer.end(2 * index + 1);
    await rig.all(MANY);
    await peer.pinged();
    assert.deepEqual(peer.windows, [FIRST, LARGEST]);
    peer.close();
  });
});

interface Rig extends AsyncDisposable {
  readonly server: TestServer;
  open(): http2.ClientHttp2Stream;
  /** The window of streams, as the server last announced it. */
  windowBytes(): number | undefined;
  windowIs(windowBytes: number): Promise<void>;
  /** SHA-256 of each request that the server has read to its end. */
  received(): readonly string[];
  /** Resolves when so many requests were read to their ends. */
  all(count: number): Promise<void>;
}

async function start(): Promise<Rig> {
  const received: string[] = [];
  let onReceived = (): void => {};
  const server = await startManagement((router) =>
    router.clientStream(writeFile, async (call: Call) => {
      const hash = createHash("sha256");
      for await (const message of call.messages()) {
        hash.update(message);
        call.release(message);
      }
      received.push(hash.digest("hex"));
      onReceived();
      return create(WriteFileResponseSchema);
    }),
  );
  const { ca, client } = server.certificates;
  const session = http2.connect(`https://127.0.0.1:${server.port}`, {
    ca,
    ...client,
    servername: SERVER_NAME,
    maxSessionMemory: 1_000,
  });
  return {
    server,
    open: () => {
      const headers = { ":method": "POST", ":path": PATH, "content-type": "application/grpc" };
      return session.request({ ...headers, "svc-instance-token": TEST_TOKEN }).on("error", () => {});
    },
    windowBytes: () => session.remoteSettings.initialWindowSize,
    windowIs: async (windowBytes) => {
      while (session.remoteSettings.initialWindowSize !== windowBytes) await once(session, "remoteSettings");
    },
    received: () => received,
    all: (count) =>
      new Promise((resolve) => {
        onReceived = (): void => {
          if (received.length === count) resolve();
        };
        onReceived();
      }),
    [Symbol.asyncDispose]: async () => {
      session.destroy();
      await server[Symbol.asyncDispose]();
    },
  };
}

const DATA = 0x0;
const HEADERS = 0x1;
const SETTINGS = 0x4;
const PING = 0x6;
const END_STREAM = 0x1;
const END_HEADERS = 0x4;
const ACK = 0x1;
const INITIAL_WINDOW_SIZE = 0x4;
const FRAME_BYTES = 16 * KIB;

/** Speaks HTTP/2 frame by frame, and never acknowledges settings (RFC 9113, 4.1 and 6.5). */
class SilentPeer {
  readonly windows: number[] = [];
  readonly #socket: tls.TLSSocket;
  #pending = Buffer.alloc(0);
  #onPong = (): void => {};
  #onWindow = (): void => {};

  private constructor(socket: tls.TLSSocket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    this.#frame(SETTINGS, 0, 0, Buffer.alloc(0));
  }

  static async connect(server: TestServer): Promise<SilentPeer> {
    const { ca, client } = server.certificates;
    const to = { port: server.port, host: "127.0.0.1", servername: SERVER_NAME, ALPNProtocols: ["h2"] };
    const socket = tls.connect({ ...to, ca, ...client });
    await once(socket, "secureConnect");
    return new SilentPeer(socket);
  }

  /** Opens a call and sends the bytes, without its end. */
  send(stream: number, bytes: Buffer): void {
    const headers = {
      ":method": "POST",
      ":scheme": "https",
      ":authority": SERVER_NAME,
      ":path": PATH,
      "content-type": "application/grpc",
      "svc-instance-token": TEST_TOKEN,
    };
    this.#frame(HEADERS, END_HEADERS, stream, Buffer.concat(Object.entries(headers).map(literal)));
    for (let at = 0; at < bytes.length; at += FRAME_BYTES) {
      this.#frame(DATA, 0, stream, bytes.subarray(at, at + FRAME_BYTES));
    }
  }

  end(stream: number): void {
    this.#frame(DATA, END_STREAM, stream, Buffer.alloc(0));
  }

  /** Resolves when so many windows were announced. */
  announced(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.#onWindow = (): void => {
        if (this.windows.length >= count) resolve();
      };
      this.#onWindow();
    });
  }

  /** Resolves when all that the server has sent before is here. */
  pinged(): Promise<void> {
    return new Promise((resolve) => {
      this.#onPong = resolve;
      this.#frame(PING, 0, 0, Buffer.alloc(8));
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #frame(type: number, flags: number, stream: number, payload: Buffer): void {
    const head = Buffer.alloc(9);
    head.writeUIntBE(payload.length, 0, 3);
    head[3] = type;
    head[4] = flags;
    head.writeUInt32BE(stream, 5);
    this.#socket.write(Buffer.concat([head, payload]));
  }

  #take(bytes: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, bytes]);
    while (this.#pending.length >= 9) {
      const end = 9 + this.#pending.readUIntBE(0, 3);
      if (this.#pending.length < end) return;
      this.#read(this.#pending.readUInt8(3), this.#pending.readUInt8(4), this.#pending.subarray(9, end));
      this.#pending = this.#pending.subarray(end);
    }
  }

  #read(type: number, flags: number, payload: Buffer): void {
    if (type === PING && flags === ACK) this.#onPong();
    if (type !== SETTINGS || flags === ACK) return;
    for (let at = 0; at < payload.length; at += 6) {
      if (payload.readUInt16BE(at) === INITIAL_WINDOW_SIZE) this.windows.push(payload.readUInt32BE(at + 2));
    }
    this.#onWindow();
  }
}

/** A header field that is not indexed (RFC 7541, 6.2.2). */
function literal([name, value]: [string, string]): Buffer {
  return Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}
