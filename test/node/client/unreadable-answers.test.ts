import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type OutgoingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { describe, test } from "node:test";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";
import { testFolder } from "../../fixtures/files.ts";
import { failureOf } from "../../fixtures/guest-client.ts";

/** A client of a server on a unix socket that gives every call the same answer. */
async function clientOf(answer: {
  headers?: OutgoingHttpHeaders;
  messages: readonly Buffer[];
}): Promise<{ client: GuestClient } & AsyncDisposable> {
  const folder = await testFolder();
  const path = folder.at("agent.sock");
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer();
  server.on("session", (session) => sessions.add(session));
  server.on("stream", (stream: ServerHttp2Stream) => {
    const headers = { ":status": 200, "content-type": "application/grpc", ...answer.headers };
    stream.respond(headers, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(Buffer.concat(answer.messages));
  });
  server.listen(path);
  await once(server, "listening");
  const client = connect({ address: `unix:${path}`, token: "any" });
  return {
    client,
    [Symbol.asyncDispose]: async () => {
      client.close();
      for (const session of sessions) session.destroy();
      server.close();
      await folder[Symbol.asyncDispose]();
    },
  };
}

const EMPTY = Buffer.from([0, 0, 0, 0, 0]);
/** It has no bytes, but is marked as compressed. */
const COMPRESSED = Buffer.from([1, 0, 0, 0, 0]);

const CALLS: readonly (readonly [shape: string, call: (client: GuestClient) => Promise<unknown>])[] = [
  ["one answer", (client) => client.health()],
  ["a stream of answers", (client) => client.readFile("/x").bytes()],
  ["streams both ways", (client) => client.exec({ args: ["true"] }).wait()],
];

describe("an answer that the client cannot read", () => {
  for (const [shape, call] of CALLS) {
    test(`in an unknown compression fails a call with ${shape}, and not the program`, async () => {
      await using server = await clientOf({ headers: { "grpc-encoding": "unheard-of" }, messages: [COMPRESSED] });
      const error = await failureOf(call(server.client));
      assert.deepEqual([error.status, error.code], ["INTERNAL", "ANSWER_UNREADABLE"]);
      assert.match(error.message, /cannot be read: .*compress/);
    });
  }

  test("as there are two instead of one, fails a call, which would wait for ever", async () => {
    await using server = await clientOf({ messages: [EMPTY, EMPTY] });
    const error = await failureOf(server.client.health());
    assert.equal(error.status, "UNIMPLEMENTED");
    assert.match(error.message, /Too many responses/);
  });

  test("as there is none instead of one, fails a call", async () => {
    await using server = await clientOf({ messages: [] });
    assert.equal((await failureOf(server.client.health())).status, "UNIMPLEMENTED");
  });
});
