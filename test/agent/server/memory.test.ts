import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import http2 from "node:http2";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { type Certificates, SERVER_NAME } from "../../fixtures/certificates.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { TEST_TOKEN } from "../../fixtures/management.ts";
import { callHeaders, FLAG, FRAME, frame, RawHttp2 } from "../../fixtures/raw-http2.ts";

const FRAME_BYTES = 16_384;
const CALLS = 100;
const MIB = 1024 * 1024;
/** 100 downloads with up to 512 KiB queued each, and 100 uploads with 128 KiB held each and up to 256 KiB of window. */
const BOUND_BYTES = 120 * MIB;

/** Starts fixtures/programs/watched-server.ts, with options of Node. */
async function startWatched(t: TestContext, option: string) {
  const directory = await testDirectory();
  t.after(() => directory[Symbol.asyncDispose]());
  const program = join(import.meta.dirname, "../../fixtures/programs/watched-server.ts");
  const child = fork(program, [directory.path], { execArgv: [option] });
  t.after(() => child.kill("SIGKILL"));
  const [dialled] = (await once(child, "message")) as [Pick<Certificates, "ca" | "client"> & { readonly port: number }];
  return { ...dialled, child, directory };
}

async function sizesOf(child: ChildProcess): Promise<{ readonly heapBytes: number; readonly ownBytes: number }> {
  child.send("how large?");
  const [answer] = (await once(child, "message")) as [Awaited<ReturnType<typeof sizesOf>>];
  return answer;
}

describe("the agent's memory", () => {
  test("the server's memory stays bounded while neither clients nor handlers read", async (t) => {
    const { child, port, ca, client } = await startWatched(t, "--max-semi-space-size=1");
    const options = { ca, ...client, servername: SERVER_NAME, maxSessionMemory: 1_000 };
    const session = http2.connect(`https://127.0.0.1:${port}`, options);
    session.on("error", () => {});
    await once(session, "connect");
    const before = (await sizesOf(child)).ownBytes;

    const offered = Buffer.alloc(4 * MIB);
    offered.writeUInt32BE(offered.length - 5, 1);
    for (let i = 0; i < CALLS; i++) {
      const reading = open(session, "ReadFile");
      reading.end(Buffer.alloc(5));
      reading.pause();
      const writing = open(session, "Exec");
      writing.write(Buffer.alloc(5));
      writing.write(offered);
    }
    let last = 0;
    let most = 0;
    // The server has taken all that it will once several rounds of samples add nothing.
    for (let quiet = 0; quiet < 5;) {
      await new Promise<void>((resolve, reject) => session.ping((error) => (error ? reject(error) : resolve())));
      await new Promise((resolve) => setTimeout(resolve, 50));
      const now = (await sizesOf(child)).ownBytes;
      most = Math.max(most, now);
      quiet = Math.abs(now - last) < MIB ? quiet + 1 : 0;
      last = now;
    }
    session.destroy();
    t.diagnostic(`${((most - before) / MIB).toFixed(0)} MiB more than at rest`);
    assert.ok(most - before < BOUND_BYTES, `${most - before} bytes more than at rest`);
  });
});

/** Memory that unknown peers together may make a listener hold. */
const UNKNOWN_BOUND_BYTES = 30 * MIB;
const PEERS = 60;
const BLOCKS = 60;
const LARGEST_BLOCK_BYTES = 80_000;

describe("the agent's heap", () => {
  /** Blocks of indices of fields without a value (RFC 7541, Appendix A), all different. */
  const BLOCK_SIZES = [
    ["oversized header blocks", LARGEST_BLOCK_BYTES],
    ["oversized header lists", 7_000],
    ["valid header blocks", 150],
  ] as const;
  for (const [socket, name] of [
    ["management", "unauthenticated peers"],
    ["workload", "workload clients"],
  ] as const) {
    for (const [kind, sizeBytes] of BLOCK_SIZES) {
      test(`the heap stays small as ${name} send ${kind}`, async (t) => {
        const { child, directory } = await startWatched(t, "--expose-gc");
        using peers = new DisposableStack();
        const dial = (): Promise<RawHttp2> => RawHttp2.dial({ socketPath: directory.at(socket) });
        // What the first request loads stays.
        const first = peers.use(await dial());
        first.send(request(1, 0, sizeBytes));
        await first.holds(() => first.hasClosed(1) || first.isEnded);
        const before = (await sizesOf(child)).heapBytes;
        const many = await Promise.all(Array.from({ length: PEERS }, dial));
        for (const peer of many) {
          peers.use(peer);
          for (let block = 0; block < BLOCKS; block++) peer.send(request(1 + 2 * block, block, sizeBytes));
        }
        const last = 1 + 2 * (BLOCKS - 1);
        await Promise.all(many.map((peer) => peer.holds(() => peer.hasClosed(last) || peer.isEnded)));
        const heldBytes = (await sizesOf(child)).heapBytes - before;
        t.diagnostic(`${(heldBytes / MIB).toFixed(1)} MiB more than at rest`);
        assert.ok(heldBytes < UNKNOWN_BOUND_BYTES, `${heldBytes} bytes more than at rest`);
      });
    }
  }
});

/** A request in HEADERS and as many CONTINUATION frames as its block needs. */
function request(stream: number, seed: number, sizeBytes: number): Buffer {
  // :method POST, :scheme http, :path /, then any of "accept-charset" to "www-authenticate".
  const block = Buffer.alloc(sizeBytes, 0x8f);
  block.set([0x83, 0x86, 0x84, 0x8f + (seed & 7), 0x8f + (seed >> 3)]);
  const frames: Buffer[] = [];
  for (let at = 0; at < sizeBytes; at += FRAME_BYTES) {
    const isLast = at + FRAME_BYTES >= sizeBytes;
    const flags = (isLast ? FLAG.endHeaders : 0) | (at === 0 ? FLAG.endStream : 0);
    const type = at === 0 ? FRAME.headers : FRAME.continuation;
    frames.push(frame(type, flags, stream, block.subarray(at, at + FRAME_BYTES)));
  }
  return Buffer.concat(frames);
}

function open(session: http2.ClientHttp2Session, method: string): http2.ClientHttp2Stream {
  return session.request(callHeaders(method, TEST_TOKEN)).on("error", () => {});
}
