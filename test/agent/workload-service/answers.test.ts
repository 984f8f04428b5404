import assert from "node:assert/strict";
import net from "node:net";
import { describe, test } from "node:test";
import { Http1Reader } from "../../../src/agent/workload-service/http1.ts";
import { WorkloadServer } from "../../../src/agent/workload-service/server.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { FLAG, FRAME, headerBlock, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { recordingLog } from "../../fixtures/recorders.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import answers from "./recorded-answers.json" with { type: "json" };

/*
 * recorded-answers.json: what node:http and the router of connectrpc.com (2.2.0) answered before both were replaced,
 * byte for byte, but for 13 requests in eight rows that differ on purpose (unknown methods, bytes after a request, a
 * body without a length, `Expect`, gzip), and Host and authority, for which nothing cares. `<x*n>` is a character n
 * times, `<end>` a half-close; a field without a value is left out.
 */
interface Recorded {
  readonly http: 1 | 2;
  readonly requests: readonly string[];
  /** Declarations that each of them makes. */
  readonly calls: number;
  readonly answer: string;
}

const PATH = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
const JSON_HEAD = `POST ${PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`;
const DEFAULTS = { ":method": "POST", ":scheme": "http", ":path": PATH, ":authority": "localhost" };
const WINDOW_BYTES = 65_536;
const FRAME_BYTES = 16_384;
/** What is read of a body at least. */
const LIMIT_BYTES = 65_542;

const recorded = answers as readonly Recorded[];

describe("recorded answers of the workload's socket", () => {
  for (const [version, ask] of [
    [1, overHttp1],
    [2, overHttp2],
  ] as const) {
    test(`recorded requests over HTTP/${version} get the recorded answers`, async () => {
      await using directory = await testDirectory();
      const path = directory.at("workload.sock");
      let calls = 0;
      const idle = { declare: () => (calls++, 1_700_000_000_123_456_789n) };
      const options = { idle, agentVersion: "9.9.9", log: recordingLog(), clock: systemClock };
      const server = new WorkloadServer(options);
      await server.listen(path);
      try {
        for (const { requests, answer, calls: expected } of recorded.filter(({ http }) => http === version)) {
          for (const request of requests) {
            calls = 0;
            assert.equal(await ask(path, whole(request)), whole(answer), request);
            assert.equal(calls, expected, request);
          }
        }
      } finally {
        server.close();
      }
    });
  }

  test("the HTTP/1 reader's result does not depend on how input is split", () => {
    for (const request of recorded.filter(({ http }) => http === 1).flatMap(({ requests }) => requests)) {
      const bytes = Buffer.from(whole(request).replace("<end>", ""), "latin1");
      const [atOnce, ...inPieces] = [bytes.length, 1, 3, 2_048].map((size) => reading(bytes, size));
      for (const other of inPieces) assert.deepEqual(other, atOnce, request);
    }
  });
});

function reading(bytes: Buffer, size: number): unknown {
  const read: unknown[] = [];
  const reader = new Http1Reader({
    expects: () => read.push("expects"),
    complete: ({ body, ...head }, version) =>
      read.push({ head, version, body: body.subarray(0, LIMIT_BYTES).toString("latin1") }),
  });
  for (let at = 0; at < bytes.length; at += size) {
    if (!reader.receive(bytes.subarray(at, at + size))) return "refused";
  }
  return read;
}

function whole(text: string): string {
  return text
    .replaceAll("<json>", JSON_HEAD)
    .replaceAll("<path>", PATH)
    .replace(/<([^])\*(\d+)>/g, (_, character: string, count: string) => character.repeat(Number(count)));
}

/** All that the agent sends until it closes the connection. */
async function overHttp1(path: string, request: string): Promise<string> {
  const socket = net.connect({ path, allowHalfOpen: true });
  let text = "";
  socket.setEncoding("latin1").on("error", () => {});
  socket.on("data", (part: string) => (text += part));
  const ended = new Promise((resolve) => socket.once("end", resolve).once("close", resolve));
  const [bytes = "", end] = request.split("<end>");
  // The server looks for the preface of HTTP/2 by the first bytes.
  for (const piece of bytes.slice(0, 8).split("").concat(bytes.slice(8))) {
    socket.write(piece, "latin1");
    await new Promise(setImmediate);
  }
  if (end !== undefined) socket.end();
  await ended;
  socket.destroy();
  return text.replace(/^Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r$/m, "Date: *\r");
}

/** Sends a whole body. Waits once for a wider window: no body here takes more than two. */
async function send(peer: RawHttp2, stream: number, bytes: Buffer): Promise<void> {
  const isWidened = (): boolean => peer.frames.some((each) => each.type === FRAME.windowUpdate && each.stream > 0);
  peer.data(stream, bytes.subarray(0, WINDOW_BYTES - FRAME_BYTES), bytes.length <= WINDOW_BYTES - FRAME_BYTES);
  if (bytes.length <= WINDOW_BYTES - FRAME_BYTES) return;
  await peer.holds(() => isWidened() || peer.hasClosed(stream));
  peer.data(stream, bytes.subarray(WINDOW_BYTES - FRAME_BYTES), true);
}

/** The frames of the answer, a line each. */
async function overHttp2(path: string, request: string): Promise<string> {
  using peer = await RawHttp2.dial({ socketPath: path });
  const [head = "", body] = request.split("\n\n");
  const lines = head === "" ? [] : head.split("\n").map((line) => line.split(/(?<=.): /, 2) as [string, string?]);
  const names = new Set(lines.map(([name]) => name));
  const given = lines.filter((field): field is [string, string] => field[1] !== undefined);
  const isConnect = given.some(([, value]) => value === "CONNECT");
  const defaults = Object.entries(DEFAULTS).filter(([name]) => !names.has(name) && !(isConnect && /:[sp]/.test(name)));
  const isPseudo = ([name]: readonly [string, string]): boolean => name.startsWith(":");
  const fields = [...defaults, ...given.filter(isPseudo), ...given.filter((field) => !isPseudo(field))];
  const stream = peer.request(headerBlock(fields), body === undefined ? FLAG.endStream : 0);
  if (body !== undefined) await send(peer, stream, Buffer.from(body, "latin1"));
  await peer.holds(() => peer.hasClosed(stream));
  const answer = peer.frames.filter((each) => each.stream === stream && each.type !== FRAME.windowUpdate);
  return answer
    .map(({ type, flags, fields: got, payload }) => {
      const end = (flags & FLAG.endStream) === 0 ? "" : " END";
      if (got !== undefined) return `HEADERS${end} ${[...got].map((field) => field.join(": ")).join("; ")}`;
      return type === FRAME.data ? `DATA${end} ${payload.toString("latin1")}` : `RST ${payload.readUInt32BE(0)}`;
    })
    .join("\n");
}
