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
import { bytesFieldFrame, messageFrame, type Router, tryBytesField } from "../../../src/agent/rpc/index.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { CLIENTS, one, type RpcClient, RpcFailure } from "../../fixtures/rpc-clients.ts";

const { health, exec, readFile, writeFile } = GuestAgent.method;
const token = TEST_TOKEN;
const EMPTY = create(HealthRequestSchema);
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
    test("sees the status of a call that ends while it is still sending", async () => {
      await using rig = await start((router) =>
        router.clientStream(writeFile, async (call) => {
          await call.messages().next();
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
          const messages = call.messages();
          for (let message = await messages.next(); message !== undefined; message = await messages.next())
            call.send(bytesFieldFrame(STDOUT, tryBytesField(message.bytes, STDIN) ?? Buffer.alloc(0)));
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
  });
}

function dataRequest(data: Uint8Array): ReturnType<typeof create<typeof WriteFileRequestSchema>> {
  return create(WriteFileRequestSchema, { message: { case: "data", value: data } });
}

function stdinFrame(input: Uint8Array | string): ReturnType<typeof create<typeof ExecFrameSchema>> {
  return create(ExecFrameSchema, { frame: { case: "stdin", value: Buffer.from(input as Uint8Array) } });
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
