import assert from "node:assert/strict";
import { once } from "node:events";
import http2, { type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { respondBeforeTrailers, sendTrailers } from "../../src/rpc/trailers.ts";

/** The stream as another Node might make it: nothing private is where it was. */
function withoutSymbols(stream: ServerHttp2Stream): ServerHttp2Stream {
  return new Proxy(stream, {
    ownKeys: (target) => Reflect.ownKeys(target).filter((key) => typeof key === "string"),
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

test("in a Node whose streams are not as expected, trailers go the public way", async () => {
  const server = http2.createServer();
  server.on("stream", (stream: ServerHttp2Stream) => {
    const other = withoutSymbols(stream);
    respondBeforeTrailers(other, { ":status": 200 });
    stream.once("wantTrailers", () => sendTrailers(other, { "grpc-status": "0", "grpc-message": "as ever" }));
    stream.end("content");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  try {
    const stream = session.request({ ":path": "/" });
    let content = "";
    let trailers: IncomingHttpHeaders = {};
    stream.setEncoding("utf8").on("data", (text: string) => (content += text));
    stream.on("trailers", (received) => (trailers = received));
    await once(stream, "close");
    assert.equal(content, "content");
    assert.deepEqual([trailers["grpc-status"], trailers["grpc-message"]], ["0", "as ever"]);
  } finally {
    session.destroy();
    server.close();
  }
});
