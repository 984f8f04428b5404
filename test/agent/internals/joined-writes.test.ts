import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { before, describe, it } from "node:test";
import { connect, createServer } from "node:tls";
import { writeJoined } from "../../../src/agent/internals/index.ts";
import { type Certificates, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";

let certificates: Certificates;
before(async () => {
  certificates = await issueCertificates();
});

/** Both ends of a TLS connection. */
interface Pair extends AsyncDisposable {
  readonly client: Duplex;
  readonly server: Duplex;
}

async function pairOverTls(): Promise<Pair> {
  const { ca, server: own } = certificates;
  const server = createServer(own);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "secureConnection") as Promise<[Duplex]>;
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: "127.0.0.1", ca, servername: SERVER_NAME });
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
  it("arrive as they were, joined in one memory that is used again", async () => {
    await using pair = await pairOverTls();
    const memories = memoriesOf(pair.server);
    for (const pieces of [piecesOf(30, 8_192), piecesOf(20, 9_000)]) {
      const whole = Buffer.concat(pieces);
      const received = receive(pair.client, whole.length);
      await write(pair.server, pieces);
      assert.ok((await received).equals(whole));
    }
    assert.equal(memories.length, 2);
    assert.equal(memories[0], memories[1]);
  });

  it("are not joined where there is one alone, or more than the memory holds", async () => {
    await using pair = await pairOverTls();
    const memories = memoriesOf(pair.server);
    for (const pieces of [piecesOf(1, 8_192), piecesOf(4, 256 * 1024)]) {
      const whole = Buffer.concat(pieces);
      const received = receive(pair.client, whole.length);
      await write(pair.server, pieces);
      assert.ok((await received).equals(whole));
    }
    assert.equal(memories.length, 5);
  });

  it("are not joined while another socket's are not written: the memory is theirs", async () => {
    await using slow = await pairOverTls();
    await using quick = await pairOverTls();
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
    const received = receive(quick.client, 30 * 8_192);
    await write(quick.server, passed);
    assert.ok((await received).equals(Buffer.concat(passed)));
    assert.notEqual(memories[0]?.[0], memories[1]?.[0]);
    assert.equal(memories[1]?.length, passed.length);
    assert.ok((await receive(slow.client, all.length)).equals(all));
    await Promise.all([waiting, last]);
  });

  it("are over where their socket is destroyed, and the memory is there for the next", async () => {
    await using gone = await pairOverTls();
    await using next = await pairOverTls();
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
