import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { AgentError, MESSAGE_LIMIT_BYTES } from "../../../src/agent/domain/index.ts";
import { FileChunkSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { RunHookRequestSchema, RunHookResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import {
  RestoreDutiesRequestSchema,
  RestoreDutiesResponseSchema,
} from "../../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { bytesFieldFrame, type Call, messageFrame, type Router } from "../../../src/agent/rpc/index.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN, TEST_VERSION } from "../../fixtures/management.ts";

const SERVICE = "/svc.guest.v1alpha1.GuestAgent";
const HEALTH = `${SERVICE}/Health`;
const EXEC = `${SERVICE}/Exec`;
const HOOK = `${SERVICE}/RunHook`;
const STDOUT = 7;
const { health, exec, runHook, runRestoreDuties } = GuestAgent.method;

/** Parts of a response as they came. */
interface Answer {
  readonly headers: http2.IncomingHttpHeaders;
  readonly trailers: http2.IncomingHttpHeaders;
  readonly body: Buffer;
  readonly rstCode: number;
}

async function start(register: (router: Router) => void) {
  const server = await startManagement(register);
  const { ca, client } = server.certificates;
  const session = http2.connect(`https://127.0.0.1:${server.port}`, { ca, ...client, servername: SERVER_NAME });
  const open = (path: string, headers: http2.OutgoingHttpHeaders = {}): http2.ClientHttp2Stream =>
    session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      "svc-instance-token": TEST_TOKEN,
      ...headers,
    });
  return {
    server,
    session,
    open,
    /** Sends a whole request and waits for the whole answer. */
    ask: (path: string, body: Buffer, headers?: http2.OutgoingHttpHeaders): Promise<Answer> => {
      const stream = open(path, headers);
      stream.end(body);
      return answerOf(stream);
    },
    [Symbol.asyncDispose]: async () => {
      session.destroy();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function answerOf(stream: http2.ClientHttp2Stream): Promise<Answer> {
  const parts = { headers: {}, trailers: {}, body: Buffer.alloc(0) };
  stream.on("response", (headers) => Object.assign(parts, { headers }));
  stream.on("trailers", (trailers) => Object.assign(parts, { trailers }));
  stream.on("data", (chunk: Buffer) => (parts.body = Buffer.concat([parts.body, chunk])));
  stream.on("error", () => {});
  await new Promise((resolve) => stream.once("close", resolve));
  return { ...parts, rstCode: stream.rstCode ?? 0 };
}

function framed(message: Uint8Array, flag = 0): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

function withHealth(router: Router): void {
  router.unary(health, () => create(HealthResponseSchema, { alive: true }));
}

/** Checks the reason of the ErrorInfo by its place in the bytes: no decoder of ours is trusted here. */
function assertError(answer: Answer, code: number, reason: string): void {
  const fields = { ...answer.headers, ...answer.trailers };
  assert.equal(fields["grpc-status"], String(code), String(fields["grpc-message"]));
  const details = Buffer.from(String(fields["grpc-status-details-bin"]), "base64").toString("latin1");
  assert.ok(details.includes(reason), details);
  assert.ok(details.includes("type.googleapis.com/google.rpc.ErrorInfo"), details);
  assert.equal(answer.headers["svc-agent-version"], TEST_VERSION);
}

describe("gRPC on the wire", () => {
  test("a handler gets intact request bytes although message buffers are reused", async () => {
    const entropy = Buffer.from("0123456789abcdef");
    let seen: Buffer | undefined;
    await using rig = await start((router) =>
      router.unary(runRestoreDuties, (request) => {
        seen = Buffer.from(request.entropy);
        return create(RestoreDutiesResponseSchema, { entropyBytesMixed: request.entropy.length });
      }),
    );
    const request = toBinary(RestoreDutiesRequestSchema, create(RestoreDutiesRequestSchema, { entropy }));
    // Field 15 of type bytes, which no agent knows: tag and length, then 256 KiB.
    const unknown = Buffer.concat([Buffer.of(0x7a, 0x80, 0x80, 0x10), Buffer.alloc(2 ** 18)]);
    const answer = await rig.ask(`${SERVICE}/RunRestoreDuties`, framed(Buffer.concat([request, unknown])));
    assert.equal(answer.trailers["grpc-status"], "0");
    assert.deepEqual(seen, entropy);
  });

  test("an error that precedes any message is sent in response headers", async () => {
    await using rig = await start((router) =>
      router.unary(health, () => {
        throw new AgentError("FAILED_PRECONDITION", "FILE_ERROR", 'a "b" % ü\n');
      }),
    );
    const answer = await rig.ask(HEALTH, framed(Buffer.alloc(0)));
    assertError(answer, 9, "FILE_ERROR");
    assert.equal(answer.headers["grpc-message"], 'a "b" %25 %C3%BC%0A');
    assert.deepEqual({ ...answer.trailers }, {});
    assert.equal(answer.body.length, 0);
  });

  test("a handler's exception is answered with INTERNAL; only the log has details", async () => {
    await using rig = await start((router) =>
      router.unary(health, () => {
        throw new TypeError("marker-of-the-inside");
      }),
    );
    const answer = await rig.ask(HEALTH, framed(Buffer.alloc(0)));
    assertError(answer, 13, "INTERNAL");
    assert.doesNotMatch(JSON.stringify(answer.headers), /marker/);
    assert.match(String((await rig.server.logged("call_failed")).fields["error"]), /marker-of-the-inside/);
  });

  test("an answer over the size limit fails with MESSAGE_TOO_LARGE", async () => {
    const data = Buffer.alloc(MESSAGE_LIMIT_BYTES);
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        call.send(messageFrame(FileChunkSchema, create(FileChunkSchema, { data })));
      }),
    );
    assertError(await rig.ask(EXEC, framed(Buffer.alloc(0))), 8, "MESSAGE_TOO_LARGE");
  });

  test("a non-POST method gets 405 and a non-gRPC content type 415", async () => {
    await using rig = await start(withHealth);
    const get = await rig.ask(HEALTH, Buffer.alloc(0), { ":method": "PUT" });
    assert.deepEqual([get.headers[":status"], get.headers["svc-agent-version"]], [405, TEST_VERSION]);
    for (const type of ["application/json", "application/grpc+json", "application/grpc-web", undefined]) {
      const answer = await rig.ask(HEALTH, Buffer.alloc(0), { "content-type": type });
      const { ":status": code, "svc-agent-version": version } = answer.headers;
      assert.deepEqual([code, version], [415, TEST_VERSION], String(type));
    }
    const proto = await rig.ask(HEALTH, framed(Buffer.alloc(0)), { "content-type": "application/grpc+proto" });
    assert.equal(proto.trailers["grpc-status"], "0");
  });

  test("compressed requests fail with UNSUPPORTED_COMPRESSION", async () => {
    await using rig = await start(withHealth);
    for (const { asked, code } of [
      { asked: rig.ask(HEALTH, framed(Buffer.alloc(0)), { "grpc-encoding": "gzip" }), code: 12 },
      { asked: rig.ask(HEALTH, framed(Buffer.alloc(3), 1)), code: 13 },
    ]) {
      const answer = await asked;
      assertError(answer, code, "UNSUPPORTED_COMPRESSION");
      // gRPC's compression.md: the refusal names the encodings that the server accepts.
      assert.equal(answer.headers["grpc-accept-encoding"], "identity");
    }
    const harmless = { "grpc-encoding": "identity", "grpc-accept-encoding": "gzip, br" };
    assert.equal((await rig.ask(HEALTH, framed(Buffer.alloc(0)), harmless)).trailers["grpc-status"], "0");
  });

  test("truncated and malformed messages fail with MALFORMED_MESSAGE", async () => {
    await using rig = await start((router) => {
      withHealth(router);
      router.unary(runHook, () => create(RunHookResponseSchema));
    });
    const whole = framed(toBinary(RunHookRequestSchema, create(RunHookRequestSchema, { timeoutMs: 70_000 })));
    for (let length = 1; length < whole.length; length++) {
      assertError(await rig.ask(HOOK, whole.subarray(0, length)), 3, "MALFORMED_MESSAGE");
    }
    for (const bytes of [framed(Buffer.alloc(0), 0x80), framed(Buffer.of(0x08)), framed(Buffer.of(0xff, 0xff, 0xff))])
      assertError(await rig.ask(HOOK, bytes), 3, "MALFORMED_MESSAGE");
  });

  test("an oversized message is rejected as soon as its length prefix arrives", async () => {
    await using rig = await start(withHealth);
    for (const prefix of ["0000400001", "00ffffffff"]) {
      const stream = rig.open(HEALTH);
      stream.write(Buffer.from(prefix, "hex"));
      assertError(await answerOf(stream), 8, "MESSAGE_TOO_LARGE");
    }
  });

  test("a malformed grpc-timeout is rejected", async () => {
    await using rig = await start(withHealth);
    for (const timeout of ["", "1", "S", "1s", "-1S", "123456789S", "1.5S"]) {
      const answer = await rig.ask(HEALTH, framed(Buffer.alloc(0)), { "grpc-timeout": timeout });
      assertError(answer, 3, "INVALID_FIELD");
    }
    for (const timeout of ["99999999H", "10S", "99999999n"]) {
      const answer = await rig.ask(HEALTH, framed(Buffer.alloc(0)), { "grpc-timeout": timeout });
      assert.equal(answer.trailers["grpc-status"], "0", timeout);
    }
  });

  test("a call whose deadline has passed on arrival never begins", async () => {
    let begun = 0;
    await using rig = await start((router) =>
      router.bidiStream(exec, async () => {
        begun++;
      }),
    );
    for (const timeout of ["0n", "1n", "999u", "0S"]) {
      const answer = await rig.ask(EXEC, framed(Buffer.alloc(0)), { "grpc-timeout": timeout });
      assertError(answer, 4, "DEADLINE_EXCEEDED");
    }
    assert.equal(begun, 0);
  });

  test("if loading a service fails, the next call loads the service again", async () => {
    let loads = 0;
    await using rig = await start((router) =>
      router.registerLazy("svc.guest.v1alpha1.GuestAgent", async () => {
        if (++loads === 1) throw new Error("no descriptor left");
        withHealth(router);
      }),
    );
    assertError(await rig.ask(HEALTH, framed(Buffer.alloc(0))), 13, "INTERNAL");
    assert.equal((await rig.ask(HEALTH, framed(Buffer.alloc(0)))).trailers["grpc-status"], "0");
  });

  test("a call ends at its deadline even if its handler hangs", async () => {
    const reasons: unknown[] = [];
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        call.send(bytesFieldFrame(STDOUT, Buffer.from("x")));
        call.signal.addEventListener("abort", () => reasons.push(call.signal.reason));
        await new Promise(() => {});
      }),
    );
    const stream = rig.open(EXEC, { "grpc-timeout": "50m" });
    const answer = await answerOf(stream);
    assertError(answer, 4, "DEADLINE_EXCEEDED");
    assert.equal(answer.body.length, 8);
    const [reason] = reasons;
    assert.ok(reason instanceof AgentError);
    assert.equal(reason.status, "DEADLINE_EXCEEDED");
  });

  test("a stream that the client does not read is reset after its deadline", async () => {
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        while (!call.signal.aborted) {
          call.send(bytesFieldFrame(STDOUT, Buffer.alloc(64 * 1024)));
          await call.drained();
        }
      }),
    );
    const stream = rig.open(EXEC, { "grpc-timeout": "50m" });
    stream.on("error", () => {});
    stream.pause();
    await new Promise((resolve) => stream.once("close", resolve));
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
  });

  test("a stream is reset with NO_ERROR only after its trailers", async () => {
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        for (let i = 0; i < 64; i++) call.send(bytesFieldFrame(STDOUT, Buffer.alloc(64 * 1024)));
        throw new AgentError("NOT_FOUND", "EXEC_NOT_FOUND", "no such command");
      }),
    );
    for (let i = 0; i < 20; i++) {
      const stream = rig.open(EXEC);
      stream.write(framed(Buffer.alloc(1_000)));
      const answer = await answerOf(stream);
      assertError(answer, 5, "EXEC_NOT_FOUND");
      assert.equal(answer.body.length, 64 * (64 * 1024 + 9));
      assert.equal(answer.rstCode, http2.constants.NGHTTP2_NO_ERROR);
    }
  });

  test("a handler gets its call's metadata, times, peer and connection", async () => {
    let seen: Call | undefined;
    const before = performance.now();
    await using rig = await start((router) =>
      router.unary(health, (_request, context) => {
        seen = context;
        return create(HealthResponseSchema);
      }),
    );
    await rig.ask(HEALTH, framed(Buffer.alloc(0)), { "x-mark": "1" });
    assert.ok(seen !== undefined);
    assert.equal(seen.metadata["x-mark"], "1");
    assert.ok(seen.receivedAt.monotonicMs > before);
    assert.ok(Math.abs(Number(seen.receivedAt.wallNs / 1_000_000n) - Date.now()) < 60_000);
    assert.deepEqual([seen.connection.id, seen.connection.peer.certificate?.subject], [1, "CN=node"]);
    assert.equal(seen.signal.aborted, false);
  });

  test("the server stops reading a request while its handler reads nothing", async () => {
    const opened = Promise.withResolvers<Call>();
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        await call.messages().next();
        opened.resolve(call);
        await new Promise<void>((resolve) => call.signal.addEventListener("abort", () => resolve()));
      }),
    );
    const stream = rig.open(EXEC);
    stream.on("error", () => {});
    const message = framed(Buffer.alloc(16 * 1024));
    let takenBytes = 0;
    const pump = (): void => {
      for (let i = 0; i < 256; i++) stream.write(message, () => (takenBytes += message.length));
    };
    pump();
    await opened.promise;
    let last = -1;
    while (last !== takenBytes) {
      last = takenBytes;
      for (let i = 0; i < 20; i++)
        await new Promise<void>((resolve, reject) => rig.session.ping((error) => (error ? reject(error) : resolve())));
    }
    assert.ok(takenBytes <= 1024 * 1024, `${takenBytes} bytes were taken`);
    stream.close(http2.constants.NGHTTP2_CANCEL);
  });

  test("send buffers are released exactly once, even after a reset", async () => {
    const ended = Promise.withResolvers<{ sent: number; done: number }>();
    await using rig = await start((router) =>
      router.bidiStream(exec, async (call) => {
        let sent = 0;
        let done = 0;
        const send = (): void => {
          sent++;
          call.send(bytesFieldFrame(STDOUT, Buffer.alloc(64 * 1024)), () => done++);
        };
        while (!call.signal.aborted) {
          send();
          await call.drained();
        }
        send();
        setImmediate(() => ended.resolve({ sent, done }));
      }),
    );
    const stream = rig.open(EXEC);
    stream.on("error", () => {});
    await once(stream, "readable");
    stream.close(http2.constants.NGHTTP2_CANCEL);
    const { sent, done } = await ended.promise;
    assert.equal(done, sent);
  });
});
