import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { WriteFileResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Call } from "../../../src/agent/rpc/index.ts";
import { Changes } from "../../fixtures/awake.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { callHeaders, envelope, FRAME, type Frame, RawHttp2 } from "../../fixtures/raw-http2.ts";

const { writeFile } = GuestAgent.method;
const KIB = 1024;
const LARGEST = 1024 * KIB;
const FIRST = 256 * KIB;
const SMALLEST = 32 * KIB;
const MANY = 70;

describe("the flow-control windows of a connection", () => {
  test("stream windows widen for a large request, not for small ones", async () => {
    await using rig = await start();
    const small = rig.open();
    small.end(envelope(Buffer.alloc(KIB)));
    await once(small.resume(), "close");
    assert.equal(rig.windowBytes(), FIRST);
    const large = rig.open();
    large.write(envelope(Buffer.alloc(40 * KIB)));
    await rig.windowIs(LARGEST);
    large.destroy();
  });

  test("stream windows shrink with many large requests, and no bytes are lost", async () => {
    await using rig = await start();
    const contents = Array.from({ length: MANY }, () => randomBytes(600 * KIB));
    const expected = contents.map((content) => sha256(content));
    const streams = contents.map(() => rig.open());
    const answers = streams.map((stream) => once(stream, "close"));
    for (const [index, stream] of streams.entries()) {
      stream.resume();
      const bytes = envelope(contents[index] ?? Buffer.alloc(0));
      stream.write(bytes.subarray(0, -KIB));
    }
    await rig.windowIs(SMALLEST);
    for (const [index, stream] of streams.entries()) {
      if (index > 0) stream.end(envelope(contents[index] ?? Buffer.alloc(0)).subarray(-KIB));
    }
    await rig.windowIs(LARGEST);
    streams[0]?.end(contents[0]?.subarray(-KIB));
    await Promise.all(answers);
    assert.deepEqual(rig.received().toSorted(), expected.toSorted());
  });

  test("stream windows change again only after the client acknowledges the last change", async () => {
    await using rig = await start();
    using peer = await RawHttp2.dial(rig.server, { acknowledges: false });
    const content = Buffer.alloc(40 * KIB);
    const streams = Array.from({ length: MANY }, () => peer.call("WriteFile", TEST_TOKEN, content, false));
    await peer.next((each) => windowOf(each) === LARGEST, "a wider window");
    for (const stream of streams) peer.data(stream, Buffer.alloc(0), true);
    await rig.all(MANY);
    await peer.pinged();
    const windows = peer.frames.map(windowOf).filter((window) => window !== undefined);
    assert.deepEqual(windows, [FIRST, LARGEST]);
  });
});

async function start() {
  /** SHA-256 of each request that the server has read to its end. */
  const received: string[] = [];
  const changes = new Changes();
  const server = await startManagement((router) =>
    router.clientStream(writeFile, async (call: Call) => {
      const hash = createHash("sha256");
      const messages = call.messages();
      for (let message = await messages.next(); message !== undefined; message = await messages.next()) {
        hash.update(message.bytes);
        message.release();
      }
      received.push(hash.digest("hex"));
      changes.announce();
      return create(WriteFileResponseSchema);
    }),
  );
  const { ca, client } = server.certificates;
  const session = http2.connect(`https://127.0.0.1:${server.port}`, {
    ca,
    ...client,
    servername: SERVER_NAME,
    maxSessionMemory: 1_000,
  });
  return {
    server,
    open: () => session.request(callHeaders("WriteFile", TEST_TOKEN)).on("error", () => {}),
    /** The window of streams, as the server last announced it. */
    windowBytes: () => session.remoteSettings.initialWindowSize,
    windowIs: async (windowBytes: number): Promise<void> => {
      while (session.remoteSettings.initialWindowSize !== windowBytes) await once(session, "remoteSettings");
    },
    received: () => received,
    /** Resolves when that many requests were read to their ends. */
    all: (count: number) => changes.holds(() => received.length === count),
    [Symbol.asyncDispose]: async () => {
      session.destroy();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** The window of streams that a frame announces. */
function windowOf(each: Frame): number | undefined {
  return each.type === FRAME.settings ? http2.getUnpackedSettings(each.payload).initialWindowSize : undefined;
}

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}
