import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { AgentError, MESSAGE_LIMIT_BYTES } from "../../../src/agent/domain/index.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import {
  FileChunkSchema,
  ReadFileRequestSchema,
  WriteFileRequestSchema,
  WriteFileResponseSchema,
} from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema, HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { WorkloadService } from "../../../src/shared/gen/svc/guest/v1alpha1/workload_pb.ts";
import { bytesFieldFrame, messageFrame, type Call, type Router, tryBytesField } from "../../../src/agent/rpc/index.ts";
import { startManagement, TEST_TOKEN, TEST_VERSION, type TestServer } from "../../fixtures/management.ts";
import { CLIENTS, one, type RpcClient, RpcFailure } from "../../fixtures/rpc-clients.ts";

const { health, exec, readFile, writeFile } = GuestAgent.method;
const token = TEST_TOKEN;
const EMPTY = create(HealthRequestSchema);
const DATA = 2;
const STDIN = 2;
const STDOUT = 7;

interface Rig extends AsyncDisposable {
  readonly server: TestServer;
  readonly client: RpcClient;
}

for (const { make, connect } of CLIENTS) {
  const start = async (register: (router: Router) => void): Promise<Rig> => {
    const server = await startManagement(register);
    const client = connect(server);
    return {
      server,
      client,
      [Symbol.asyncDispose]: async () => {
        client.close();
        await server[Symbol.asyncDispose]();
      },
    };
  };

  describe(`a ${make} client`, () => {
    test("gets the response of a unary call, and the agent's version in its headers", async () => {
      await using rig = await start((router) =>
        router.unary(health, () => create(HealthResponseSchema, { alive: true, readyCmdExit: -1 })),
      );
      let version: string | undefined;
      const response = await one(
        rig.client.call(health, [EMPTY], { token, onHeader: (header) => (version = header("svc-agent-version")) }),
      );
      assert.equal(response.alive, true);
      assert.equal(response.readyCmdExit, -1);
      assert.equal(version, TEST_VERSION);
    });

    test("gets every message of a server stream in order", async () => {
      await using rig = await start((router) =>
        router.serverStream(readFile, async (request, call) => {
          for (let i = 0; i < Number(request.length); i++) call.send(bytesFieldFrame(DATA, Buffer.from(String(i))));
          await call.drained();
        }),
      );
      const received: string[] = [];
      const request = create(ReadFileRequestSchema, { length: 1_000n });
      for await (const chunk of rig.client.call(readFile, [request], { token })) {
        received.push(Buffer.from(chunk.data).toString());
      }
      assert.deepEqual(
        received,
        Array.from({ length: 1_000 }, (_, i) => String(i)),
      );
    });

    test("sends a client stream and gets its one response", async () => {
      await using rig = await start((router) => router.clientStream(writeFile, countBytes));
      const data = (size: number): ReturnType<typeof dataRequest> => dataRequest(Buffer.alloc(size));
      const response = await one(rig.client.call(writeFile, [data(0), data(10), data(100_000)], { token }));
      assert.equal(response.bytesWritten, 100_010n);
    });

    test("talks in both directions at once, and half-closing does not end the answers", async () => {
      await using rig = await start((router) =>
        router.bidiStream(exec, async (call) => {
          for await (const message of call.messages()) {
            call.send(bytesFieldFrame(STDOUT, tryBytesField(message, STDIN) ?? Buffer.from("?")));
          }
          call.send(messageFrame(ExecFrameSchema, exitFrame(7)));
        }),
      );
      const received: string[] = [];
      const answered = new Map<string, () => void>();
      async function* requests(): AsyncGenerator<ReturnType<typeof stdinFrame>> {
        for (const text of ["a", "b", "c"]) {
          const answer = new Promise<void>((resolve) => answered.set(text, resolve));
          yield stdinFrame(text);
          await answer;
        }
      }
      for await (const { frame } of rig.client.call(exec, requests(), { token })) {
        if (frame.case === "stdout") {
          const text = Buffer.from(frame.value).toString();
          received.push(text);
          answered.get(text)?.();
        }
        if (frame.case === "exit") received.push(`exit ${frame.value.code}`);
      }
      assert.deepEqual(received, ["a", "b", "c", "exit 7"]);
    });

    test("sees an error that comes after messages", async () => {
      await using rig = await start((router) =>
        router.serverStream(readFile, async (_request, call) => {
          call.send(bytesFieldFrame(DATA, Buffer.from("first")));
          throw new AgentError("DATA_LOSS", "CHECKSUM_MISMATCH", "the disk broke");
        }),
      );
      const received: string[] = [];
      const failure = await failureOf(rig.client.call(readFile, [create(ReadFileRequestSchema)], { token }), (chunk) =>
        received.push(Buffer.from(chunk.data).toString()),
      );
      assert.deepEqual(received, ["first"]);
      assert.equal(failure.code, 15);
      assert.equal(failure.reason, "CHECKSUM_MISMATCH");
    });

    test("sees the status of a call that ends while it is still sending", async () => {
      await using rig = await start((router) =>
        router.clientStream(writeFile, async (call) => {
          for await (const _ of call.messages()) break;
          throw new AgentError("RESOURCE_EXHAUSTED", "NO_SPACE", "no space left");
        }),
      );
      async function* endless(): AsyncGenerator<ReturnType<typeof dataRequest>> {
        for (;;) yield dataRequest(Buffer.alloc(64 * 1024));
      }
      const failure = await failureOf(rig.client.call(writeFile, endless(), { token }));
      assert.equal(failure.code, 8);
      assert.equal(failure.reason, "NO_SPACE");
    });

    test("gets the response of a call that ends before its request does", async () => {
      await using rig = await start((router) =>
        router.clientStream(writeFile, async () => create(WriteFileResponseSchema, { bytesWritten: 1n })),
      );
      async function* never(): AsyncGenerator<ReturnType<typeof dataRequest>> {
        await new Promise(() => {});
        yield dataRequest(Buffer.alloc(0));
      }
      const response = await one(rig.client.call(writeFile, never(), { token }));
      assert.equal(response.bytesWritten, 1n);
    });

    test("gets INTERNAL without a word of an exception's text, which is logged", async () => {
      await using rig = await start((router) =>
        router.unary(health, () => {
          throw new TypeError("marker-of-the-inside");
        }),
      );
      const failure = await failureOf(rig.client.call(health, [EMPTY], { token }));
      assert.equal(failure.code, 13);
      assert.equal(failure.reason, "INTERNAL");
      assert.doesNotMatch(failure.message, /marker/);
      const line = await rig.server.logged("call_failed");
      assert.match(String(line.fields["error"]), /marker-of-the-inside/);
    });

    test("gets UNIMPLEMENTED for a method that is not there, by its name", async () => {
      await using rig = await start(() => {});
      const failure = await failureOf(rig.client.call(WorkloadService.method.declareIdle, [], { token }));
      assert.equal(failure.code, 12);
      assert.equal(failure.reason, "UNIMPLEMENTED");
      assert.match(failure.message, /svc\.guest\.v1alpha1\.WorkloadService\/DeclareIdle/);
    });

    test("gets the same UNAUTHENTICATED for a missing, an empty and a wrong token, before any handler", async () => {
      let calls = 0;
      await using rig = await start((router) =>
        router.unary(health, () => {
          calls++;
          return create(HealthResponseSchema);
        }),
      );
      const failures = [];
      for (const wrong of [undefined, "", `${TEST_TOKEN}x`, `${TEST_TOKEN}, ${TEST_TOKEN}`]) {
        failures.push(await failureOf(rig.client.call(health, [EMPTY], wrong === undefined ? {} : { token: wrong })));
      }
      assert.deepEqual(new Set(failures.map((failure) => failure.code)), new Set([16]));
      assert.equal(new Set(failures.map((failure) => failure.message)).size, 1);
      assert.equal(calls, 0);
    });

    test("is refused messages over the limit, and gets the largest one back whole", async () => {
      await using rig = await start((router) =>
        router.bidiStream(exec, async (call) => {
          for await (const message of call.messages()) {
            call.send(bytesFieldFrame(STDOUT, tryBytesField(message, STDIN) ?? Buffer.alloc(0)));
          }
        }),
      );
      const head = 5;
      const largest = randomBytes(MESSAGE_LIMIT_BYTES - head);
      const echoed = await one(rig.client.call(exec, [stdinFrame(largest)], { token }));
      assert.ok(echoed.frame.case === "stdout" && largest.equals(echoed.frame.value));
      const tooLarge = stdinFrame(Buffer.alloc(MESSAGE_LIMIT_BYTES));
      const failure = await failureOf(rig.client.call(exec, [tooLarge], { token }));
      assert.equal(failure.code, 8);
      assert.equal(failure.reason, "MESSAGE_TOO_LARGE");
    });

    test("gets RESOURCE_EXHAUSTED where the agent's own answer is over the limit", async () => {
      await using rig = await start((router) =>
        router.serverStream(readFile, async (_request, call) => {
          call.send(
            messageFrame(FileChunkSchema, create(FileChunkSchema, { data: Buffer.alloc(MESSAGE_LIMIT_BYTES) })),
          );
        }),
      );
      const failure = await failureOf(rig.client.call(readFile, [create(ReadFileRequestSchema)], { token }));
      assert.equal(failure.code, 8);
      assert.equal(failure.reason, "MESSAGE_TOO_LARGE");
    });

    test("is told when a method that takes one message gets none or two", async () => {
      await using rig = await start((router) => router.unary(health, () => create(HealthResponseSchema)));
      for (const requests of [[], [EMPTY, EMPTY]]) {
        const failure = await failureOf(rig.client.call(health, requests, { token }));
        // The code of gRPC's statuscodes.md for this.
        assert.equal(failure.code, 12);
        assert.equal(failure.reason, "MALFORMED_MESSAGE");
      }
    });

    test("makes 100 calls at once", async () => {
      await using rig = await start((router) =>
        router.bidiStream(exec, async (call) => {
          for await (const message of call.messages()) {
            call.send(bytesFieldFrame(STDOUT, tryBytesField(message, STDIN) ?? Buffer.alloc(0)));
            await call.drained();
          }
        }),
      );
      const payload = randomBytes(100_000);
      const calls = Array.from({ length: 100 }, async () => {
        let received = 0;
        const frames = [payload, payload, payload].map(stdinFrame);
        for await (const { frame } of rig.client.call(exec, frames, { token })) {
          assert.ok(frame.case === "stdout" && payload.equals(frame.value));
          received++;
        }
        return received;
      });
      assert.deepEqual(new Set(await Promise.all(calls)), new Set([3]));
    });
  });
}

async function countBytes(call: Call): Promise<ReturnType<typeof create<typeof WriteFileResponseSchema>>> {
  let bytes = 0;
  for await (const message of call.messages()) bytes += tryBytesField(message, DATA)?.length ?? Number.NaN;
  return create(WriteFileResponseSchema, { bytesWritten: BigInt(bytes) });
}

function dataRequest(data: Uint8Array): ReturnType<typeof create<typeof WriteFileRequestSchema>> {
  return create(WriteFileRequestSchema, { message: { case: "data", value: data } });
}

function stdinFrame(input: Uint8Array | string): ReturnType<typeof create<typeof ExecFrameSchema>> {
  return create(ExecFrameSchema, { frame: { case: "stdin", value: Buffer.from(input as Uint8Array) } });
}

function exitFrame(code: number): ReturnType<typeof create<typeof ExecFrameSchema>> {
  return create(ExecFrameSchema, {
    frame: {
      case: "exit",
      value: {
        $typeName: "svc.guest.v1alpha1.ExecExit",
        code,
        signal: 0,
        coreDumped: false,
        timedOut: false,
        oomKilled: false,
        outputComplete: true,
        durationMs: 0n,
      },
    },
  });
}

/** The failure of a call that must fail. */
async function failureOf<T>(call: AsyncIterable<T>, message: (message: T) => void = () => {}): Promise<RpcFailure> {
  try {
    for await (const received of call) message(received);
  } catch (error) {
    if (error instanceof RpcFailure) return error;
    throw error;
  }
  throw new Error("the call went well");
}
