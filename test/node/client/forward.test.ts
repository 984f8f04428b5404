import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { constants } from "node:os";
import { buffer } from "node:stream/consumers";
import { describe, it } from "node:test";
import { type GuestError, restoreSequence } from "../../../src/node/client/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { clientOf, failureOf, optionsFor } from "../../fixtures/guest-client.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { LargeReads, READ_BYTES } from "../../../src/node/client/grpc/internals/large-reads.ts";

const MIB = 2 ** 20;

const agent = forAllTests(await startAgent());

/** Sends bytes and an end. Resolves with what comes back. */
async function answer(port: number, sent: Buffer): Promise<Buffer> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(sent);
  return buffer(socket);
}

/** Established connections of this process to a local port (proc_net_tcp(5)). */
async function connectionsTo(port: number): Promise<number> {
  const tables = await Promise.all(
    ["tcp", "tcp6"].map((name) => readFile(`/proc/net/${name}`, "utf8").catch(() => "")),
  );
  const remote = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const rows = tables.flatMap((table) =>
    table
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/)),
  );
  return rows.filter(([, , to = "", state]) => to.endsWith(remote) && state === "01").length;
}

/** A listening server's part in Node that accepts connections (lib/net.js, onconnection). */
interface Listening {
  readonly _handle: { onconnection(this: unknown, status: number): void };
}

/** Resolves when a socket is closed, for whatever reason. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on("error", () => undefined).once("close", () => resolve());
  });
}

describe("client.forward", () => {
  it("`forward` connects a local port to the guest until close() is called", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    const forwarding = await client.ports.forward({ port: server.port });
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

  it("`forward` reports each failed accept and keeps listening", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    const listening = Promise.withResolvers<Listening>();
    const note = (message: unknown): void => listening.resolve((message as { readonly server: Listening }).server);
    subscribe("tracing:net.server.listen:asyncEnd", note);
    const errors: GuestError[] = [];
    await using forwarding = await client.ports.forward({ port: server.port, onError: (error) => errors.push(error) });
    unsubscribe("tracing:net.server.listen:asyncEnd", note);
    const open = connect(forwarding.port, "127.0.0.1");
    open.write("x");
    await once(open, "data");
    // As libuv calls it where accept(2) fails: it hides the first EMFILE of a process itself (uv__emfile_trick).
    const { _handle: handle } = await listening.promise;
    for (let times = 0; times < 3; times++) handle.onconnection(-constants.errno.EMFILE);
    assert.deepEqual(
      errors.map(({ status, code }) => [status, code]),
      Array.from({ length: 3 }, () => ["RESOURCE_EXHAUSTED", "LISTEN_FAILED"]),
    );
    open.end("y");
    assert.equal((await buffer(open)).toString(), "y");
    const sent = randomBytes(1_000);
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
  });

  it("`forward` carries 256 connections and reports why more are refused", async () => {
    await using many = await startAgent();
    await using server = await listener(echo);
    using client = clientOf(many);
    const refused: GuestError[] = [];
    const onError = (error: GuestError): number => refused.push(error);
    // The limit of connections is not one of a forwarding: both share the client's.
    await using one = await client.ports.forward({ port: server.port, onError });
    await using other = await client.ports.forward({ port: server.port, onError });
    const sockets = Array.from({ length: 260 }, (_, at) =>
      connect({ port: (at % 2 === 0 ? one : other).port, host: "127.0.0.1" }),
    );
    let echoed = 0;
    const ends = sockets.map((socket) => {
      socket.on("data", () => echoed++).write("x");
      return closed(socket);
    });
    await until(() => echoed === 256 && refused.length === 4, "256 are carried, and 4 refused");
    assert.deepEqual([...new Set(refused.map(({ reason }) => reason))], ["TOO_MANY_TUNNELS"]);
    assert.ok((await client.health()).ready);
    for (const socket of sockets) socket.destroy();
    await Promise.all(ends);
    // What a connection of its own carried has ended, and so has it: the client's remains.
    await until(async () => (await connectionsTo(many.port)) === 1, "one connection is left");
    const sent = randomBytes(1024);
    assert.ok((await answer(one.port, sent)).equals(sent));
  });

  it("`forward` listens on both localhost addresses, or reports which one is in use", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    await using forwarding = await client.ports.forward({ port: server.port });
    for (const host of ["127.0.0.1", "::1"]) {
      const socket = connect({ port: forwarding.port, host });
      socket.write("x");
      assert.equal(String((await once(socket, "data"))[0]), "x");
      socket.destroy();
    }
    await forwarding.close();
    await using taken = await listener(echo, { port: 0, host: "::1" });
    const failure = await failureOf(client.ports.forward({ port: server.port, listen: taken.port }));
    assert.deepEqual(
      [failure.code, /::1, port \d+ \(the port is free on 127\.0\.0\.1;/.test(failure.message)],
      ["LISTEN_FAILED", true],
    );
    await using alone = await client.ports.forward({ port: server.port, listen: taken.port, host: "127.0.0.1" });
    assert.equal(alone.port, taken.port);
  });

  it("`forward` carries new connections after a standby and restore", async () => {
    await using suspended = await startAgent();
    await using server = await listener(echo);
    await using relay = await relayTo(suspended.port);
    using client = clientOf({ ...suspended, port: relay.port });
    await using forwarding = await client.ports.forward({ port: server.port, onError: () => undefined });
    const sockets = Array.from({ length: 130 }, () => connect(forwarding.port, "127.0.0.1"));
    let echoed = 0;
    const ends = sockets.map((socket) => {
      socket.on("data", () => echoed++).write("x");
      return closed(socket);
    });
    await until(() => echoed === 130, "all are carried");
    relay.cut();
    await Promise.all(ends);
    relay.mend();
    await restoreSequence(() => clientOf(suspended));
    const sent = randomBytes(1024);
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
  });

  it("`forward` calls the `connectOptions` callback once for all waiting connections", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent, { token: "of-the-instance-before" });
    let asked = 0;
    const connectOptions = (): ReturnType<typeof optionsFor> => {
      asked++;
      return optionsFor(agent);
    };
    await using forwarding = await client.ports.forward({ port: server.port, connectOptions });
    const sent = randomBytes(MIB);
    const answers = await Promise.all(Array.from({ length: 4 }, () => answer(forwarding.port, sent)));
    for (const got of answers) assert.ok(got.equals(sent));
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
    assert.equal(asked, 1);
  });

  it("`forward` reports a hanging `connectOptions` callback and calls it for later connections", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent, { token: "of-the-instance-before", connectTimeoutMs: 2_000 });
    const told: GuestError[] = [];
    let asked = 0;
    const connectOptions = (): ReturnType<typeof optionsFor> | Promise<never> =>
      ++asked === 1 ? new Promise<never>(() => undefined) : optionsFor(agent);
    const onError = (error: GuestError): number => told.push(error);
    await using forwarding = await client.ports.forward({ port: server.port, connectOptions, onError });
    await closed(connect(forwarding.port, "127.0.0.1").resume());
    assert.deepEqual(
      told.map(({ status, code }) => [status, code]),
      [["UNAVAILABLE", "DIAL_TIMED_OUT"]],
    );
    const sent = randomBytes(1024);
    assert.ok((await answer(forwarding.port, sent)).equals(sent));
  });

  it("`forward` stops waiting for the `connectOptions` callback after `requestTimeoutMs` or `close`", async () => {
    using client = clientOf(agent, { token: "of-the-instance-before", connectTimeoutMs: Infinity });
    const told = Promise.withResolvers<GuestError>();
    const asked = Promise.withResolvers<void>();
    const connectOptions = (): Promise<never> => {
      asked.resolve();
      return new Promise(() => undefined);
    };
    // The first call connects, so that the limit is only that of the callback.
    await failureOf(client.health());
    const options = { port: 1, connectOptions, requestTimeoutMs: 2_000, onError: told.resolve };
    await using forwarding = await client.ports.forward(options);
    await closed(connect(forwarding.port, "127.0.0.1").resume());
    const { status, message } = await told.promise;
    assert.deepEqual([status, /before there was a new connection/.test(message)], ["DEADLINE_EXCEEDED", true]);
    await using other = await client.ports.forward({ port: 1, connectOptions });
    const waiting = closed(connect(other.port, "127.0.0.1").resume());
    await asked.promise;
    await other.close();
    await waiting;
  });

  it("`forward` keeps transfers intact while other connections are reset", async () => {
    await using server = await listener(echo);
    using client = clientOf(agent);
    await using forwarding = await client.ports.forward({ port: server.port });
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

  it("`forward` reports each connection that cannot be opened", async () => {
    using client = clientOf(agent, { token: "of-the-instance-before" });
    const told = Promise.withResolvers<GuestError>();
    const connectOptions = (): ReturnType<typeof optionsFor> => ({ ...optionsFor(agent), token: "of-another" });
    await using forwarding = await client.ports.forward({ port: 1, connectOptions, onError: told.resolve });
    const [error] = (await once(connect(forwarding.port, "127.0.0.1").resume(), "error")) as [NodeJS.ErrnoException];
    assert.equal(error.code, "ECONNRESET");
    assert.equal((await told.promise).status, "UNAUTHENTICATED");
  });
});

const SENT = randomBytes(16 * 2 ** 20);

describe("LargeReads", () => {
  it("LargeReads receives all bytes and reuses at most three large buffers", async () => {
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

  it("LargeReads does not overwrite bytes that the caller has not released", async () => {
    const reads = new LargeReads();
    assert.ok((await received((socket) => reads.begin(socket))).equals(SENT));
  });

  it("LargeReads delivers a small read in a small buffer", async () => {
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

  it("LargeReads works if Node's sockets cannot use a caller's buffer", async () => {
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
