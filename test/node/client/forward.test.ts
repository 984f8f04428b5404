import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { describe, it } from "node:test";
import { type GuestError, restoreSequence } from "../../../src/node/client/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { clientOf, optionsFor } from "../../fixtures/guest-client.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { LargeReads, READ_BYTES } from "../../../src/node/client/internals/large-reads.ts";

const MIB = 2 ** 20;

const agent = forAllTests(await startAgent());

/** Sends bytes and an end. Resolves with what comes back. */
async function answer(port: number, sent: Buffer): Promise<Buffer> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(sent);
  return buffer(socket);
}

/** Resolves when a socket is closed, for whatever reason. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on("error", () => undefined).once("close", () => resolve());
  });
}

describe("client.forward", () => {
  it("leads a port here to one in the guest until it is closed, and breaks off what is connected then", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    const forwarding = await client.forward({ port: server.port });
    const sent = randomBytes(MIB);
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
    const open = connect(forwarding.port, "127.0.0.1");
    open.write("x");
    await once(open, "data");
    const [inGuest] = server.sockets.slice(-1);
    assert.ok(inGuest);
    const ends = Promise.all([closed(open), closed(inGuest)]);
    await forwarding.close();
    await ends;
  });

  it("ends 130 connections at a standby, whether carried or waiting, and carries new ones after the restore", async () => {
    await using suspended = await startAgent();
    await using server = await listener(echo);
    await using relay = await relayTo(suspended.port);
    using client = clientOf({ ...suspended, port: relay.port });
    await using forwarding = await client.forward({ port: server.port, onError: () => undefined });
    const sockets = Array.from({ length: 130 }, () => connect(forwarding.port, "127.0.0.1"));
    let echoed = 0;
    const ends = sockets.map((socket) => {
      socket.on("data", () => echoed++).write("x");
      return closed(socket);
    });
    // As many as one HTTP/2 connection of the agent carries: the others wait.
    await until(() => echoed === 128, "128 are carried");
    relay.cut();
    await Promise.all(ends);
    relay.mend();
    await restoreSequence(() => clientOf(suspended));
    const sent = randomBytes(1024);
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
  });

  it("asks for options once when its token is not taken any more, and loses no byte of those who wait", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent, { token: "of-the-instance-before" });
    let asked = 0;
    const connectOptions = (): ReturnType<typeof optionsFor> => {
      asked++;
      return optionsFor(agent);
    };
    await using forwarding = await client.forward({ port: server.port, connectOptions });
    const sent = randomBytes(MIB);
    const answers = await Promise.all(Array.from({ length: 4 }, () => answer(forwarding.port, sent)));
    for (const got of answers) assert.ok(got.equals(sent));
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
    assert.equal(asked, 1);
  });

  it("carries to each who writes much at once its own bytes, whoever is broken off meanwhile", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    await using forwarding = await client.forward({ port: server.port });
    const sent = Array.from({ length: 4 }, () => randomBytes(8 * MIB));
    const answers = Promise.all(sent.map((bytes) => answer(forwarding.port, bytes)));
    for (const bytes of sent) {
      const broken = connect(forwarding.port, "127.0.0.1");
      const end = closed(broken);
      broken.write(bytes);
      await once(broken, "data");
      broken.resetAndDestroy();
      await end;
    }
    for (const [index, got] of (await answers).entries()) assert.ok(sent[index]?.equals(got));
  });

  it("tells of each connection that cannot be opened, also where its new options do not help", async () => {
    using client = clientOf(agent, { token: "of-the-instance-before" });
    const told = Promise.withResolvers<GuestError>();
    const connectOptions = (): ReturnType<typeof optionsFor> => ({ ...optionsFor(agent), token: "of-another" });
    await using forwarding = await client.forward({ port: 1, connectOptions, onError: told.resolve });
    const [error] = (await once(connect(forwarding.port, "127.0.0.1").resume(), "error")) as [NodeJS.ErrnoException];
    assert.equal(error.code, "ECONNRESET");
    assert.equal((await told.promise).status, "UNAUTHENTICATED");
  });
});

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
  await using server = await listener();
  const client = connect(server.port, "127.0.0.1");
  const socket = await server.next();
  begin(socket);
  client.end(sent);
  const parts: Buffer[] = [];
  socket.on("data", (bytes: Buffer) => {
    parts.push(look === undefined ? bytes : Buffer.from(bytes));
    look?.(bytes);
  });
  await once(socket, "end");
  return Buffer.concat(parts);
}
