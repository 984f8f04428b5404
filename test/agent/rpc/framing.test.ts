import assert from "node:assert/strict";
import { test } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { MessageReader } from "../../../src/agent/rpc/framing.ts";
import { MessageBuffers, SpareMemory } from "../../../src/agent/rpc/message-buffers.ts";

function framed(...messages: Buffer[]): Buffer {
  return Buffer.concat(
    messages.map((message) => {
      const prefix = Buffer.alloc(5);
      prefix.writeUInt32BE(message.length, 1);
      return Buffer.concat([prefix, message]);
    }),
  );
}

function read(chunks: readonly Uint8Array[], limitBytes = 1_000): string[] {
  const reader = new MessageReader(limitBytes, new MessageBuffers(new SpareMemory()));
  const messages: string[] = [];
  for (const chunk of chunks) reader.push(chunk, (message) => messages.push(Buffer.from(message).toString("hex")));
  reader.end();
  return messages;
}

test("cuts the same messages from any split of the bytes", () => {
  const messages = [Buffer.alloc(0), Buffer.from("a"), Buffer.alloc(300, 7), Buffer.alloc(0), Buffer.from("end")];
  const bytes = framed(...messages);
  const expected = messages.map((message) => message.toString("hex"));
  for (let size = 1; size <= bytes.length; size++) {
    const chunks = [];
    for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
    assert.deepEqual(read(chunks), expected, `in pieces of ${size}`);
  }
});

test("keeps nothing of a chunk, whose memory the next one reuses", () => {
  const bytes = framed(Buffer.from("whole"), Buffer.from("split"), Buffer.alloc(20_000, "x"));
  for (const size of [1, 7, 17, 20, 10_000]) {
    const reader = new MessageReader(20_000, new MessageBuffers(new SpareMemory()));
    const messages: Uint8Array[] = [];
    const chunk = Buffer.alloc(size);
    for (let at = 0; at < bytes.length; at += size) {
      const count = bytes.copy(chunk, 0, at, at + size);
      reader.push(chunk.subarray(0, count), (message) => messages.push(message));
      chunk.fill("!");
    }
    reader.end();
    assert.deepEqual(
      messages.map((message) => Buffer.from(message).toString()),
      ["whole", "split", "x".repeat(20_000)],
      `in pieces of ${size}`,
    );
  }
});

test("hands on the messages before a refused one", () => {
  const reader = new MessageReader(10, new MessageBuffers(new SpareMemory()));
  let messages = 0;
  const bytes = framed(Buffer.from("ok"), Buffer.alloc(11));
  assert.throws(() => reader.push(bytes, () => messages++), isError("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE"));
  assert.equal(messages, 1);
});

function isError(status: string, reason: string): (error: unknown) => boolean {
  return (error) => error instanceof AgentError && error.status === status && error.reason === reason;
}
