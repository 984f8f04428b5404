import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { bytesFieldFrame, type Call } from "../../../src/agent/rpc/index.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { callFields, CODE, FRAME, frame, RawHttp2, uint32 } from "../../fixtures/raw-http2.ts";

const STDOUT = 7;
const MESSAGE_BYTES = 64 * 1024;
/** What the server sends before the client opens its window: all of one message but its last bytes. */
const WINDOW_BYTES = 65_535;

/** A server that sends its clients more than they take, until it dismisses the calls. */
async function flooding(calls: Call[]): Promise<TestServer> {
  return startManagement((router) =>
    router.bidiStream(GuestAgent.method.exec, async (call) => {
      for (let count = 0; count < 8; count++) call.send(bytesFieldFrame(STDOUT, Buffer.alloc(MESSAGE_BYTES)));
      calls.push(call);
      await new Promise<void>((resolve) => call.signal.addEventListener("abort", () => resolve()));
    }),
  );
}

function dismiss(call: Call): void {
  call.failWhenRead(new AgentError("ABORTED", "EXEC_TAKEN_OVER", "another call has attached"));
}

/** Widens the window of a stream, or with 0 that of the connection. */
function widen(client: RawHttp2, stream: number, bytes: number): void {
  client.send(frame(FRAME.windowUpdate, 0, stream, uint32(bytes)));
}

describe("a dismissed call whose client does not read", () => {
  test("is told at once where no message has begun, though the connection's window is used up", async () => {
    const calls: Call[] = [];
    await using server = await flooding(calls);
    using client = await RawHttp2.dial(server, { windowBytes: WINDOW_BYTES });
    client.open(callFields("Exec", TEST_TOKEN));
    await client.next(({ type }) => type === FRAME.data);
    const second = client.open(callFields("Exec", TEST_TOKEN));
    await client.next(({ type, stream }) => type === FRAME.headers && stream === second);
    dismiss(calls[1] as Call);
    assert.equal((await client.status(second)).get("grpc-status"), "10");
  });

  test("gives way to later ones once they hold 4 MiB together, oldest first", async () => {
    const calls: Call[] = [];
    await using server = await flooding(calls);
    using client = await RawHttp2.dial(server, { windowBytes: WINDOW_BYTES });
    widen(client, 0, 16 * 1024 * 1024);
    const streams = Array.from({ length: 80 }, () => client.open(callFields("Exec", TEST_TOKEN)));
    const begun = (): number =>
      new Set(client.frames.filter(({ type }) => type === FRAME.data).map(({ stream }) => stream)).size;
    assert.ok(await client.holds(() => begun() === streams.length));
    for (const call of calls) dismiss(call);
    for (const stream of streams.slice(0, 16)) assert.equal(await client.resetCode(stream), CODE.cancel);
    for (const stream of streams.slice(16)) {
      assert.equal(client.hasClosed(stream), false);
      widen(client, stream, MESSAGE_BYTES);
      assert.equal((await client.status(stream)).get("grpc-status"), "10");
    }
  });
});
