/**
 * What the agent's own platform can do at best: gRPC's frames over node:http2 with mutual TLS 1.3, and no work behind them.
 * Health gets fixed bytes, ReadFile as many zeros as the file has bytes, WriteFile counts what comes.
 * Usage: node node-http2-server.ts CREDENTIALS-FOLDER; prints its port.
 */
import { readFileSync, statSync } from "node:fs";
import {
  createSecureServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

const WINDOW_BYTES = 4 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
const PREFIX_BYTES = 5;
/** FileChunk.data and WriteFileResponse.bytes_written. */
const DATA_TAG = 0x12;
const BYTES_WRITTEN_TAG = 0x08;

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return [...bytes, rest];
}

function frame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

const ALIVE = frame(Uint8Array.of(0x08, 1, 0x10, 1));
const CHUNK = frame(Buffer.concat([Uint8Array.of(DATA_TAG, ...varint(CHUNK_BYTES)), Buffer.alloc(CHUNK_BYTES)]));

function pathOf(request: Buffer): string {
  const [length = 0] = request.subarray(PREFIX_BYTES + 1);
  return request.subarray(PREFIX_BYTES + 2, PREFIX_BYTES + 2 + length).toString();
}

function sendFile(stream: ServerHttp2Stream, sizeBytes: number): void {
  let left = sizeBytes;
  const more = (): void => {
    while (left > 0) {
      left -= CHUNK_BYTES;
      if (!stream.write(CHUNK)) {
        stream.once("drain", more);
        return;
      }
    }
    stream.end();
  };
  more();
}

/** The content of a header and of data messages, whose lengths take four bytes at most with their tags. */
function countContent(stream: ServerHttp2Stream): void {
  let skip = 0;
  let content = -1;
  let prefix: number[] = [];
  stream.on("data", (bytes: Buffer) => {
    let at = 0;
    while (at < bytes.length) {
      if (skip > 0) {
        const step = Math.min(skip, bytes.length - at);
        skip -= step;
        at += step;
        continue;
      }
      prefix.push(bytes[at++] ?? 0);
      if (prefix.length < PREFIX_BYTES) continue;
      skip = Buffer.from(prefix).readUInt32BE(1);
      // The first message is the header; every other one is a tag, a length and data.
      content = content < 0 ? 0 : content + skip - 1 - (skip > 16_386 ? 3 : skip > 129 ? 2 : 1);
      prefix = [];
    }
  });
  stream.on("end", () => stream.end(frame(Uint8Array.of(BYTES_WRITTEN_TAG, ...varint(Math.max(0, content))))));
}

const [folder = ""] = process.argv.slice(2);
const server = createSecureServer({
  cert: readFileSync(join(folder, "server.pem")),
  key: readFileSync(join(folder, "server.key")),
  ca: readFileSync(join(folder, "ca.pem")),
  requestCert: true,
  rejectUnauthorized: true,
  minVersion: "TLSv1.3",
  settings: { initialWindowSize: WINDOW_BYTES },
});
server.on("session", (session: ServerHttp2Session) => session.setLocalWindowSize(WINDOW_BYTES));
server.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
  stream.on("error", () => {});
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  const method = headers[":path"]?.split("/").at(-1);
  if (method === "Health") stream.resume().end(ALIVE);
  else if (method === "ReadFile") {
    stream.once("data", (request: Buffer) => sendFile(stream, statSync(pathOf(request)).size));
  } else countContent(stream);
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
