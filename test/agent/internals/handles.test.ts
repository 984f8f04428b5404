import assert from "node:assert/strict";
import { once } from "node:events";
import { fstatSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, Socket } from "node:net";
import { test } from "node:test";
import { descriptorOf, stopReading } from "../../../src/agent/internals/index.ts";

async function listening(): Promise<Server> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function dial(server: Server): Promise<{ readonly client: Socket; readonly accepted: Socket }> {
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  return { client, accepted: (await accepted)[0] };
}

test("a server that listens has a descriptor, of a socket; one that does not has none", async () => {
  const server = await listening();
  const fd = descriptorOf(server);
  assert.ok(fd !== undefined && fstatSync(fd).isSocket());
  server.close();
  await once(server, "close");
  assert.equal(descriptorOf(server), undefined);
});

test("a socket that is no longer read leaves to the kernel what its peer sends", async (t) => {
  const server = await listening();
  t.after(() => server.close());
  const [first, second] = [await dial(server), await dial(server)];
  t.after(() => {
    for (const { client, accepted } of [first, second]) for (const socket of [client, accepted]) socket.destroy();
  });
  first.accepted.resume();
  stopReading(first.accepted);
  await new Promise<void>((resolve, reject) =>
    first.client.write("unread", (error) => (error ? reject(error) : resolve())),
  );
  second.client.end("read");
  second.accepted.resume();
  await once(second.accepted, "end");
  assert.deepEqual([first.accepted.bytesRead, second.accepted.bytesRead], [0, 4]);
});

test("a socket without a handle is left as it is", () => {
  const socket = new Socket();
  stopReading(socket);
  assert.equal(socket.destroyed, false);
});
