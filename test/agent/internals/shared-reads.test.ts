import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect as dial, createServer, type Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { before, describe, it } from "node:test";
import { connect as dialTls, createServer as createTlsServer } from "node:tls";
import { receiveAll } from "../../../src/agent/internals/index.ts";
import { type Certificates, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";

const FIRST = randomBytes(40_000);
const REST = randomBytes(3_000_000);

let certificates: Certificates;
before(async () => {
  certificates = await issueCertificates();
});

/** Both ends of a connection. */
interface Pair extends AsyncDisposable {
  readonly client: Duplex;
  readonly server: Duplex;
}

async function pairOver(kind: "tcp" | "tls"): Promise<Pair> {
  const { ca, server: own } = certificates;
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

/** What a stream has received, and how. */
interface Received {
  readonly bytes: Buffer;
  /** Blocks of memory in which what came after `receiveAll` was passed on. */
  readonly memories: number;
}

/** Sends a part before the peer receives, and the rest afterwards; then ends, and waits for the end. */
async function sendAll({ client, server }: Pair): Promise<Received> {
  client.write(FIRST);
  while (server.readableLength === 0) await once(server, "readable");
  const pieces: Buffer[] = [];
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

describe("all that a socket reads", () => {
  for (const kind of ["tcp", "tls"] as const) {
    it(`is passed on in one memory over ${kind}, what came before included, and then the end`, async () => {
      await using pair = await pairOver(kind);
      const { bytes, memories } = await sendAll(pair);
      assert.ok(bytes.equals(Buffer.concat([FIRST, REST])));
      assert.equal(memories, 1);
    });

    it(`is passed on in the public way where the ${kind} socket is of another shape`, async () => {
      await using pair = await pairOver(kind);
      const { _handle: handle } = pair.server as Duplex & { readonly _handle: object };
      Object.defineProperty(handle, "useUserBuffer", { value: undefined });
      const { bytes, memories } = await sendAll(pair);
      assert.ok(bytes.equals(Buffer.concat([FIRST, REST])));
      assert.ok(memories > 1);
    });
  }

  it("is passed on in the public way from a stream that is no socket", async () => {
    const [client, server] = duplexPair();
    client.write("some ");
    const received: string[] = [];
    receiveAll(server, (bytes) => received.push(bytes.toString()));
    client.end("bytes");
    await once(server, "end");
    assert.equal(received.join(""), "some bytes");
  });

  it("is not left in the memory for the next to see, where it is small", async () => {
    await using pair = await pairOver("tls");
    const seen = Promise.withResolvers<Buffer>();
    receiveAll(pair.server, (bytes) => seen.resolve(bytes));
    pair.client.write("a token");
    assert.ok((await seen.promise).every((byte) => byte === 0));
  });
});
