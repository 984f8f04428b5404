import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { describe, it } from "node:test";
import { LargeReads, READ_BYTES } from "../../../src/node/client/tunnel/large-reads.ts";

const SENT = randomBytes(16 * 2 ** 20);

describe("large reads", () => {
  it("bring all bytes of an accepted socket, in memory that is used again", async () => {
    const reads = new LargeReads();
    const memories = new Set<ArrayBufferLike>();
    const got = await received(
      (socket) => reads.begin(socket),
      (bytes) => {
        memories.add(bytes.buffer);
        reads.release(bytes);
      },
    );
    assert.ok(got.equals(SENT));
    assert.ok(memories.size < 4, `${memories.size} buffers for reads one by one`);
    for (const { byteLength } of memories) assert.equal(byteLength, READ_BYTES);
  });

  it("leave the bytes alone that were not released", async () => {
    const reads = new LargeReads();
    assert.ok((await received((socket) => reads.begin(socket))).equals(SENT));
  });

  it("bring them also where a version of Node has no such reads", async () => {
    const reads = new LargeReads();
    const got = await received((socket) => {
      const { _handle: handle } = socket as Socket & { readonly _handle?: object };
      assert.ok(handle !== undefined && "useUserBuffer" in handle, "this Node has no such reads");
      Object.defineProperty(handle, "useUserBuffer", { value: undefined });
      reads.begin(socket);
    });
    assert.ok(got.equals(SENT));
  });
});

/** What an accepted socket reads of SENT. @param look called with each part, whose memory it may release */
async function received(begin: (socket: Socket) => void, look?: (bytes: Buffer) => void): Promise<Buffer> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const accepted = once(server, "connection");
  const client = connect(address.port, "127.0.0.1");
  const [socket] = (await accepted) as [Socket];
  begin(socket);
  client.end(SENT);
  const parts: Buffer[] = [];
  socket.on("data", (bytes: Buffer) => {
    parts.push(look === undefined ? bytes : Buffer.from(bytes));
    look?.(bytes);
  });
  await once(socket, "end");
  socket.destroy();
  server.close();
  return Buffer.concat(parts);
}
