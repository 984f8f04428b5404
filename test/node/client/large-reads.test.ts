import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { describe, it } from "node:test";
import { LargeReads, READ_BYTES } from "../../../src/node/client/internals/large-reads.ts";

const SENT = randomBytes(16 * 2 ** 20);

describe("large reads", () => {
  it("bring all bytes of an accepted socket, in memory that is used again", async () => {
    const reads = new LargeReads();
    const memories = new Set<ArrayBufferLike>();
    const got = await received(
      (socket) => reads.begin(socket),
      (bytes) => {
        if (bytes.buffer.byteLength === READ_BYTES) memories.add(bytes.buffer);
        reads.release(bytes);
      },
    );
    assert.ok(got.equals(SENT));
    assert.ok(memories.size > 0 && memories.size < 4, `${memories.size} large buffers for reads one by one`);
  });

  it("leave the bytes alone that were not released", async () => {
    const reads = new LargeReads();
    assert.ok((await received((socket) => reads.begin(socket))).equals(SENT));
  });

  it("hold no large buffer for a small part that waits", async () => {
    const reads = new LargeReads();
    const sizes: number[] = [];
    const got = await received(
      (socket) => reads.begin(socket),
      (bytes) => sizes.push(bytes.buffer.byteLength),
      Buffer.from("a small part"),
    );
    assert.equal(got.toString(), "a small part");
    assert.ok(sizes.length > 0 && sizes.every((sizeBytes) => sizeBytes < READ_BYTES), String(sizes));
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

/** What an accepted socket reads of what is sent. @param look called with each part, whose memory it may release */
async function received(
  begin: (socket: Socket) => void,
  look?: (bytes: Buffer) => void,
  sent: Buffer = SENT,
): Promise<Buffer> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, "connection");
  const client = connect(port, "127.0.0.1");
  const [socket] = (await accepted) as [Socket];
  begin(socket);
  client.end(sent);
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
