import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { it } from "node:test";
import { create } from "@bufbuild/protobuf";
import { LARGE_MESSAGES_LIMIT_BYTES } from "../../../src/agent/domain/index.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import {
  type WriteFileRequest,
  WriteFileRequestSchema,
  WriteFileResponseSchema,
} from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema, HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { messageFrame, tryBytesField } from "../../../src/agent/rpc/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { dataMessage, FileCalls, headerMessage, testFolder } from "../../fixtures/files.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { CLIENTS, one, type RpcClient, RpcFailure } from "../../fixtures/rpc-clients.ts";
import { SimulatedClock } from "../../fixtures/simulated-clock.ts";

/** The largest there may be, but for the field's tag and length. */
const DATA_BYTES = 4 * 2 ** 20 - 16;
/** So many of them have room at once. */
const HELD = LARGE_MESSAGES_LIMIT_BYTES / 2 ** 22;
const DATA_FIELD = WriteFileRequestSchema.field.data.number;
/** What all files are parts of. */
const content = randomBytes(2 * DATA_BYTES);

/** Writes a file of some messages, which differ from those of other writers, and compares its checksum. */
async function write(files: FileCalls, path: string, writer: number, messages: number, bytes: number): Promise<void> {
  const pieces = Array.from({ length: messages }, (_, index) =>
    content.subarray(writer * 64 + index).subarray(0, bytes),
  );
  async function* requests(): AsyncGenerator<WriteFileRequest> {
    yield headerMessage({ path });
    yield* pieces.map((piece) => dataMessage(piece));
  }
  const { sha256 } = await files.writeMessages(requests());
  const expected = createHash("sha256");
  for (const piece of pieces) expected.update(piece);
  assert.deepEqual(Buffer.from(sha256), expected.digest());
}

for (const [writers, connections] of [
  [8, 1],
  [8, 4],
  [24, 2],
] as const) {
  it(`${writers} writers over ${connections} connections, whose messages are as large as may be, all succeed`, async () => {
    await using agent = await startAgent();
    await using folder = await testFolder();
    const clients = Array.from({ length: connections }, () => new FileCalls(agent));
    try {
      await Promise.all(
        Array.from({ length: writers }, async (_, index) =>
          write(clients[index % connections] as FileCalls, folder.at(String(index)), index, 3, DATA_BYTES),
        ),
      );
    } finally {
      for (const client of clients) client[Symbol.dispose]();
    }
  });
}

/** A server whose Exec keeps what comes, on a clock that stands still, so that nothing of it stands still for a minute. */
function startKeeping(): Promise<TestServer> {
  return startManagement(
    (router) => {
      router.unary(GuestAgent.method.health, () => create(HealthResponseSchema, { alive: true }));
      router.clientStream(GuestAgent.method.writeFile, async (call) => {
        const digest = createHash("sha256");
        for await (const message of call.messages()) {
          digest.update(tryBytesField(message, DATA_FIELD) ?? "");
          call.release(message);
        }
        return create(WriteFileResponseSchema, { sha256: digest.digest() });
      });
      router.bidiStream(GuestAgent.method.exec, async (call) => {
        const messages = call.messages();
        await messages.next();
        call.send(messageFrame(ExecFrameSchema, create(ExecFrameSchema)));
        await once(call.signal, "abort");
      });
    },
    { clock: new SimulatedClock() },
  );
}

/** Calls that hold all the room there is. */
async function holdAll(
  client: RpcClient,
): Promise<{ readonly cancelOne: () => void; readonly end: () => Promise<void> }> {
  const calls = Array.from({ length: HELD }, () => {
    const abort = new AbortController();
    const input = create(ExecFrameSchema, { frame: { case: "stdin", value: content.subarray(0, DATA_BYTES) } });
    const answers = client.call(GuestAgent.method.exec, openEnded(input), { token: TEST_TOKEN, signal: abort.signal });
    return { abort, answers };
  });
  await Promise.all(calls.map(async ({ answers }) => answers.next()));
  const cancel = async ({ abort, answers }: (typeof calls)[number]): Promise<void> => {
    abort.abort();
    await assert.rejects(answers.next(), RpcFailure);
  };
  return {
    cancelOne: () => void cancel(calls.pop() as (typeof calls)[number]),
    end: async () => void (await Promise.all(calls.map(cancel))),
  };
}

/** A request of one message that does not end. */
async function* openEnded<Message>(message: Message): AsyncGenerator<Message> {
  yield message;
  await new Promise(() => {});
}

it("a writer of large messages waits behind calls that hold all the room until one goes, and holds up nobody", async () => {
  await using server = await startKeeping();
  const client = (CLIENTS[0] as (typeof CLIENTS)[number]).connect(server);
  using files = new FileCalls({ ...server, token: TEST_TOKEN });
  const held = await holdAll(client);
  let isWritten = false;
  const waiting = write(files, "", 1, 3, DATA_BYTES).then(() => (isWritten = true));
  // On the same connection as the one that waits: 16 MiB, four times its window.
  for (let index = 0; index < 4; index++) await write(files, "", 2, 16, 256 * 1024);
  const { alive } = await one(
    client.call(GuestAgent.method.health, [create(HealthRequestSchema)], { token: TEST_TOKEN }),
  );
  assert.deepEqual([alive, isWritten], [true, false]);
  held.cancelOne();
  await waiting;
  await held.end();
  client.close();
});

it("a call that is cancelled while it waits for room leaves the row, and the next one has its turn", async () => {
  await using server = await startKeeping();
  const client = (CLIENTS[0] as (typeof CLIENTS)[number]).connect(server);
  using files = new FileCalls({ ...server, token: TEST_TOKEN });
  const held = await holdAll(client);
  const abort = new AbortController();
  const messages = [headerMessage({ path: "" }), dataMessage(content.subarray(0, DATA_BYTES))];
  const first = files.writeMessages(messages, { signal: abort.signal });
  const second = write(files, "", 3, 2, DATA_BYTES);
  await write(files, "", 2, 16, 256 * 1024);
  abort.abort();
  await assert.rejects(first, RpcFailure);
  held.cancelOne();
  await second;
  await held.end();
  client.close();
});
