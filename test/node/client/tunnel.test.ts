import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { TunnelFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import type { GuestError } from "../../../src/node/client/index.ts";
import { failureOf } from "../../fixtures/guest-client.ts";
import { rawGrpcServer } from "../../fixtures/raw-grpc-server.ts";

/** With gRPC's prefix. */
function message(...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(body.length, 1);
  return Buffer.concat([prefix, body]);
}

function encoded(frame: NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>): Uint8Array {
  return toBinary(TunnelFrameSchema, create(TunnelFrameSchema, { frame }));
}

function dataOf(value: string): Uint8Array {
  return encoded({ case: "data", value: Buffer.from(value) });
}

/** A field that no release has: number 900, with the number 1. */
const UNKNOWN = Buffer.from([0xa0, 0x38, 1]);

const OPENED = message(encoded({ case: "opened", value: { windowBytes: 1024 } }));
const LONG = "long ".repeat(400);
/** All that an agent may send, now and in later releases. */
const ANSWER = [
  message(dataOf("first ")),
  message(dataOf("")),
  message(dataOf("with more "), UNKNOWN),
  message(UNKNOWN, dataOf("after more ")),
  message(UNKNOWN),
  message(),
  // Two of two data fields count for the last.
  message(dataOf("lost "), dataOf("kept ")),
  // A length in more bytes than it needs.
  message(Buffer.from([0x1a, 0x85, 0x80, 0]), Buffer.from("wide ")),
  message(dataOf("x".repeat(127))),
  message(dataOf("y".repeat(128))),
  message(dataOf(LONG)),
  message(encoded({ case: "window", value: { bytes: 512 } })),
  message(dataOf("last")),
];
const END = message(encoded({ case: "end", value: {} }));
const SAID = `first with more after more kept wide ${"x".repeat(127)}${"y".repeat(128)}${LONG}last`;

/** What an agent hears from a client that sends a text, if it answers in parts of so many bytes. */
async function exchange(partBytes: number, sends: string) {
  const heard: Buffer[] = [];
  const isEnded = Promise.withResolvers<void>();
  await using server = await rawGrpcServer((stream) => {
    stream.on("data", (bytes: Buffer) => {
      heard.push(bytes);
      if (Buffer.concat(heard).subarray(-END.length).equals(END)) isEnded.resolve();
    });
    void (async () => {
      const answer = Buffer.concat([OPENED, ...ANSWER, END]);
      for (let at = 0; at < answer.length; at += partBytes) {
        await new Promise((sent) => stream.write(answer.subarray(at, at + partBytes), sent));
      }
      await isEnded.promise;
      stream.end();
    })();
  });
  const tunnel = server.client.ports.connect(80);
  const closed = once(tunnel, "close");
  tunnel.end(sends);
  // No async iterator, which would break the tunnel off at the agent's end.
  const said: Buffer[] = [];
  tunnel.on("data", (bytes: Buffer) => said.push(bytes));
  await closed;
  return { said: String(Buffer.concat(said)), frames: framesOf(Buffer.concat(heard)) };
}

function framesOf(bytes: Buffer) {
  const frames = [];
  for (let at = 0; at < bytes.length; at += 5 + bytes.readUInt32BE(at + 1)) {
    const body = bytes.subarray(at + 5, at + 5 + bytes.readUInt32BE(at + 1));
    frames.push(fromBinary(TunnelFrameSchema, body).frame);
  }
  return frames;
}

describe("requestTimeoutMs of a tunnel", () => {
  it("a tunnel that does not open within `requestTimeoutMs` fails with DEADLINE_EXCEEDED", async () => {
    await using server = await rawGrpcServer(() => undefined);
    const tunnel = server.client.ports.connect(80, { requestTimeoutMs: 200 });
    assert.equal((await failureOf(tunnel.opened)).status, "DEADLINE_EXCEEDED");
    assert.ok(tunnel.destroyed);
  });

  it("`forward` resets a connection whose tunnel does not open within `requestTimeoutMs`", async () => {
    await using server = await rawGrpcServer(() => undefined);
    const failed = Promise.withResolvers<GuestError>();
    const options = { port: 80, requestTimeoutMs: 200, onError: failed.resolve };
    await using forwarding = await server.client.ports.forward(options);
    const socket = connect(forwarding.port, "127.0.0.1");
    const [error] = (await once(socket, "error")) as [NodeJS.ErrnoException];
    assert.deepEqual([error.code, (await failed.promise).status], ["ECONNRESET", "DEADLINE_EXCEEDED"]);
  });

  it("an open tunnel outlives its `requestTimeoutMs`", async () => {
    await using server = await rawGrpcServer((stream) => {
      stream.write(OPENED);
      stream.on("data", (bytes: Buffer) => {
        if (framesOf(bytes).some((frame) => frame.case === "end"))
          stream.end(Buffer.concat([message(dataOf("late")), END]));
      });
    });
    // However long the opening takes on this machine.
    for (let requestTimeoutMs = 300; ; requestTimeoutMs *= 2) {
      const tunnel = server.client.ports.connect(80, { requestTimeoutMs });
      if ((await tunnel.opened.catch((error: unknown) => (error as GuestError).status)) === "DEADLINE_EXCEEDED")
        continue;
      await pause(requestTimeoutMs + 100);
      tunnel.end();
      assert.equal(await text(tunnel), "late");
      return;
    }
  });
});

describe("the frames of a tunnel", () => {
  for (const partBytes of [1, 7, 1_000_000]) {
    it(`tunnel frames that arrive in parts of ${partBytes} bytes are read`, async () => {
      const { said } = await exchange(partBytes, "");
      assert.equal(said, SAID);
    });
  }

  it("a tunnel frame uses 64 bytes more flow-control window than its data", async () => {
    const { frames } = await exchange(1_000_000, "z".repeat(1300));
    const sizes = frames.flatMap((frame) => (frame.case === "data" ? [frame.value.length] : []));
    assert.deepEqual(sizes, [1024 - 64, 1300 - (1024 - 64)]);
    assert.equal(frames.at(-1)?.case, "end");
  });

  it("tunnels still work if the HTTP/2 stream inside grpc-js cannot be found", async (t) => {
    let hidden = 0;
    hideStreams(t, () => (hidden += 1));
    const { said, frames } = await exchange(7, "sent");
    assert.equal(said, SAID);
    const kinds = frames.map((frame) => frame.case);
    assert.deepEqual(kinds, ["open", "data", "end"]);
    assert.ok(hidden > 0, "the streams were not looked for");
  });
});

/**
 * Hides the streams that grpc-js keeps from the library alone. The class that keeps them is private: its setter is that
 * of all objects.
 */
function hideStreams(t: TestContext, onHidden: () => void): void {
  const streams = new WeakMap<object, unknown>();
  const ofAll = Object.getPrototypeOf({}) as object;
  Object.defineProperty(ofAll, "http2Stream", {
    configurable: true,
    set(this: object, stream: unknown) {
      streams.set(this, stream);
    },
    get(this: object) {
      if (new Error().stack?.includes("streamOf") !== true) return streams.get(this);
      onHidden();
      return undefined;
    },
  });
  t.after(() => Reflect.deleteProperty(ofAll, "http2Stream"));
}
