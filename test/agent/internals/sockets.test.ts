import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { fstatSync } from "node:fs";
import { type AddressInfo, connect as dial, createServer, Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { describe, it, test } from "node:test";
import { connect as dialTls, createServer as createTlsServer } from "node:tls";
import { descriptorOf, receiveAll, stopReading, writeJoined } from "../../../src/agent/internals/index.ts";
import { issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";

const { ca, server: own } = await issueCertificates();

/** Both ends of a connection. */
interface Pair extends AsyncDisposable {
  readonly client: Socket;
  readonly server: Socket;
}

async function pairOver(kind: "tcp" | "tls"): Promise<Pair> {
  const event = kind === "tls" ? "secureConnection" : "connection";
  const server = kind === "tls" ? createTlsServer(own) : createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, event) as Promise<[Socket]>;
  const target = { port: (server.address() as AddressInfo).port, host: "127.0.0.1" };
  const client = kind === "tls" ? dialTls({ ...target, ca, servername: SERVER_NAME }) : dial(target);
  const [socket] = await accepted;
  const dispose = async (): Promise<void> => {
    client.destroy();
    socket.destroy();
    server.close();
    await once(server, "close");
  };
  return { client, server: socket, [Symbol.asyncDispose]: dispose };
}

/** Random pieces of one size. */
function piecesOf(count: number, sizeBytes: number): Buffer[] {
  return Array.from({ length: count }, () => randomBytes(sizeBytes));
}

/** Writes the pieces; resolves when that is done. */
function write(socket: Duplex, pieces: readonly Uint8Array[]): Promise<void> {
  const sizeBytes = pieces.reduce((sum, { length }) => sum + length, 0);
  return new Promise((resolve) => writeJoined(socket, pieces, sizeBytes, resolve));
}

/** The next bytes of a stream. */
async function receive(stream: Duplex, sizeBytes: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let left = sizeBytes; left > 0;) {
    const piece = stream.read() as Buffer | null;
    if (piece === null) await once(stream, "readable");
    else pieces.push(piece);
    left -= piece?.length ?? 0;
  }
  return Buffer.concat(pieces);
}

/** Writes the pieces at one end, and sees them come out of the other. */
async function arrives({ client, server }: Pair, pieces: readonly Uint8Array[]): Promise<void> {
  const whole = Buffer.concat(pieces);
  const received = receive(client, whole.length);
  await write(server, pieces);
  assert.ok((await received).equals(whole));
}

/** The memory of everything that is written to a socket from now on. */
function memoriesOf(socket: Duplex): ArrayBufferLike[] {
  const memories: ArrayBufferLike[] = [];
  const original = socket.write.bind(socket) as (bytes: Uint8Array, done?: () => void) => boolean;
  socket.write = ((bytes: Uint8Array, done?: () => void) => {
    memories.push(bytes.buffer);
    return original(bytes, done);
  }) as Duplex["write"];
  return memories;
}

describe("pieces that are written to a TLS socket", () => {
  it("TLS writes coalesce several pieces of data in one reused buffer", async () => {
    await using pair = await pairOver("tls");
    const memories = memoriesOf(pair.server);
    await arrives(pair, piecesOf(30, 8_192));
    await arrives(pair, piecesOf(20, 9_000));
    assert.equal(memories.length, 2);
    assert.equal(memories[0], memories[1]);
  });

  it("one piece alone, or a too large piece, is written to TLS without coalescing", async () => {
    await using pair = await pairOver("tls");
    const memories = memoriesOf(pair.server);
    await arrives(pair, piecesOf(1, 8_192));
    await arrives(pair, piecesOf(4, 256 * 1024));
    assert.equal(memories.length, 5);
  });

  it("TLS writes are not coalesced while another socket uses the shared buffer", async () => {
    await using slow = await pairOver("tls");
    await using quick = await pairOver("tls");
    const [held, passed] = [piecesOf(30, 8_192), piecesOf(30, 8_192)];
    // Nobody reads: at some point the socket takes no more, and the last write waits.
    let waiting: Promise<void> | undefined;
    const sent: Buffer[] = [];
    while (slow.server.writableLength === 0 || sent.length < 2) {
      waiting = write(slow.server, held);
      sent.push(...held);
    }
    const memories = [memoriesOf(slow.server), memoriesOf(quick.server)];
    const all = Buffer.concat([...sent, ...held]);
    const last = write(slow.server, held);
    await arrives(quick, passed);
    assert.notEqual(memories[0]?.[0], memories[1]?.[0]);
    assert.equal(memories[1]?.length, passed.length);
    assert.ok((await receive(slow.client, all.length)).equals(all));
    await Promise.all([waiting, last]);
  });

  it("destroying a socket settles its pending writes and frees the shared buffer", async () => {
    await using gone = await pairOver("tls");
    await using next = await pairOver("tls");
    gone.server.on("error", () => {});
    const waiting: Promise<void>[] = [];
    // Nobody reads.
    while (gone.server.writableLength === 0 || waiting.length < 2)
      waiting.push(write(gone.server, piecesOf(30, 8_192)));
    gone.server.destroy();
    await Promise.all(waiting);
    await write(gone.server, piecesOf(3, 100));
    const memories = memoriesOf(next.server);
    await write(next.server, piecesOf(3, 100));
    assert.equal(memories.length, 1);
  });
});

const FIRST = randomBytes(40_000);
const REST = randomBytes(3_000_000);

/** Sends a part before the peer receives, and the rest afterwards; then ends, and waits for the end. */
async function sendAll({ client, server }: Pair) {
  client.write(FIRST);
  while (server.readableLength === 0) await once(server, "readable");
  const pieces: Buffer[] = [];
  /** In which what came after `receiveAll` was passed on. */
  const memories = new Set<ArrayBufferLike>();
  let isEarly = true;
  const ended = once(server, "end");
  receiveAll(server, (bytes) => {
    pieces.push(Buffer.from(bytes));
    if (!isEarly) memories.add(bytes.buffer);
  });
  isEarly = false;
  client.end(REST);
  await ended;
  return { bytes: Buffer.concat(pieces), memories: memories.size };
}

describe("receiveAll", () => {
  for (const kind of ["tcp", "tls"] as const) {
    it(`receiveAll reads everything over ${kind} through one buffer`, async () => {
      await using pair = await pairOver(kind);
      const { bytes, memories } = await sendAll(pair);
      assert.ok(bytes.equals(Buffer.concat([FIRST, REST])));
      assert.equal(memories, 1);
    });

    it(`receiveAll falls back to public events for an unusual ${kind} socket`, async () => {
      await using pair = await pairOver(kind);
      const { _handle: handle } = pair.server as Socket & { readonly _handle: object };
      Object.defineProperty(handle, "useUserBuffer", { value: undefined });
      const { bytes, memories } = await sendAll(pair);
      assert.ok(bytes.equals(Buffer.concat([FIRST, REST])));
      assert.ok(memories > 1);
    });
  }

  it("receiveAll works with a stream that is not a socket", async () => {
    const [client, server] = duplexPair();
    client.write("some ");
    const received: string[] = [];
    receiveAll(server, (bytes) => received.push(bytes.toString()));
    client.end("bytes");
    await once(server, "end");
    assert.equal(received.join(""), "some bytes");
  });

  it("receiveAll overwrites its buffer with zeros after delivering a small read", async () => {
    await using pair = await pairOver("tls");
    const seen = Promise.withResolvers<Buffer>();
    receiveAll(pair.server, (bytes) => seen.resolve(bytes));
    pair.client.write("a token");
    assert.ok((await seen.promise).every((byte) => byte === 0));
  });
});

test("descriptorOf(server) returns a socket while the server listens, and undefined afterwards", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const fd = descriptorOf(server);
  assert.ok(fd !== undefined && fstatSync(fd).isSocket());
  server.close();
  await once(server, "close");
  assert.equal(descriptorOf(server), undefined);
});

test("after stopReading(), data that the peer sends stays in the kernel", async () => {
  await using first = await pairOver("tcp");
  await using second = await pairOver("tcp");
  first.server.resume();
  stopReading(first.server);
  await new Promise<void>((resolve, reject) =>
    first.client.write("unread", (error) => (error ? reject(error) : resolve())),
  );
  second.client.end("read");
  second.server.resume();
  await once(second.server, "end");
  assert.deepEqual([first.server.bytesRead, second.server.bytesRead], [0, 4]);
});

test("stopReading ignores a socket without a handle", () => {
  const socket = new Socket();
  stopReading(socket);
  assert.equal(socket.destroyed, false);
});
