import assert from "node:assert/strict";
import { test } from "node:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { AgentError, type StatusName } from "../../../src/agent/domain/index.ts";
import type { TreeItem } from "../../../src/agent/files/index.ts";
import { timestamp } from "../../../src/agent/rpc/codec.ts";
import { exitFrame, exitOf, startedFrame } from "../../../src/agent/rpc/handlers/exec-frames.ts";
import { healthFrame } from "../../../src/agent/rpc/handlers/health.ts";
import { itemsFrame } from "../../../src/agent/rpc/handlers/tree.ts";
import { tryItems } from "../../../src/agent/rpc/handlers/tree-items.ts";
import {
  bytesFieldFrame,
  decodeMessage,
  type Frame,
  messageFrame,
  tryBytesField,
} from "../../../src/agent/rpc/index.ts";
import { MessageBuffers, SpareMemory } from "../../../src/agent/rpc/message-buffers.ts";
import { errorFields } from "../../../src/agent/rpc/status.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { ReadTreeResponseSchema, TreeItemsSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";

const SIZES = [0, 1, 127, 128, 1_023, 1_024, 16_383, 16_384, 65_536, 262_144, 4_000_000];
const STDOUT = 7;

function unframe(frame: Frame): Buffer {
  const bytes = Buffer.concat(frame);
  assert.equal(bytes[0], 0);
  assert.equal(bytes.readUInt32BE(1), bytes.length - 5);
  return bytes.subarray(5);
}

test("itemsFrame and tryItems encode and decode tree items like the protobuf library", () => {
  const none = new Uint8Array(0);
  const bare = { modifiedNs: undefined, sizeBytes: 0n, data: none, linkTarget: none, sparse: false } as const;
  const owned = { mode: 0, uid: 0, gid: 2 ** 32 - 2 };
  const items = SIZES.slice(0, -1).flatMap((size) => {
    const link = { path: Buffer.from("l"), type: "symlink" as const, linkTarget: Buffer.alloc(size, "t") };
    const large = { path: none, sizeBytes: 2n ** 53n, modifiedNs: 1_600_000_000_123_456_789n };
    return [
      { ...bare, path: Buffer.alloc(size % 4_096, "p"), type: "regular" as const, data: Buffer.alloc(size, 7) },
      { ...bare, ...owned, path: Buffer.of(0xff), type: "directory" as const, modifiedNs: -1n },
      { ...bare, ...owned, mode: 0o7777, ...link },
      { ...bare, ...owned, ...large, type: "regular" as const },
    ];
  });
  const TYPES = { regular: FileType.REGULAR, directory: FileType.DIRECTORY, symlink: FileType.SYMLINK };
  const messages = items.map(({ type, modifiedNs, sizeBytes, ...attributes }) => ({
    ...attributes,
    type: TYPES[type],
    size: sizeBytes,
    ...(modifiedNs !== undefined && { mtime: timestamp(modifiedNs) }),
  }));
  for (const count of [0, 1, items.length]) {
    const part = { case: "items", value: { items: messages.slice(0, count) } } as const;
    const full = toBinary(ReadTreeResponseSchema, create(ReadTreeResponseSchema, { part }));
    assert.ok(unframe(itemsFrame(items.slice(0, count))).equals(full), `${count} items`);
  }
  const bytesOf = (...some: typeof messages): Buffer =>
    Buffer.from(toBinary(TreeItemsSchema, create(TreeItemsSchema, { items: some })));
  const buffers = ({ path, data, linkTarget, mode, uid, gid, ...rest }: TreeItem): TreeItem => {
    const views = { path: Buffer.from(path), data: Buffer.from(data), linkTarget: Buffer.from(linkTarget) };
    return { ...rest, ...views, mode, uid, gid };
  };
  for (const [index, item] of items.entries()) {
    // The full decoder takes times before 1970: its integers are of 64 bits.
    const expected = item.modifiedNs === -1n ? undefined : [buffers(item)];
    const read = tryItems(bytesOf(...messages.slice(index, index + 1)), 100);
    assert.deepEqual(read?.map(buffers), expected, `item ${index}`);
  }
  const [first] = messages;
  assert.ok(first);
  const two = bytesOf(first, first);
  assert.equal(tryItems(two, 100)?.length, 2);
  assert.equal(tryItems(two, 2), undefined, "too many fields");
  const late = bytesOf({ ...first, mtime: timestamp(253_402_300_800n * 1_000_000_000n) });
  assert.equal(tryItems(late, 100), undefined, "after the year 9999");
  // An unknown field, twice one of another type, one of more than 32 bits, and no item.
  for (const hex of ["0a025801", "0a020801", "0a021a00", "0a06188080808010", "1200"])
    assert.equal(tryItems(Buffer.from(hex, "hex"), 100), undefined, hex);
  assert.throws(() => tryItems(two.subarray(0, -1), 100), { reason: "MALFORMED_MESSAGE" });
});

test("bytesFieldFrame does not copy a large payload", () => {
  const payload = Buffer.alloc(100_000);
  assert.equal(bytesFieldFrame(STDOUT, payload)[1], payload);
});

test("tryBytesField decodes only a single bytes field and rejects damaged messages", () => {
  const frame = { case: "stdin", value: Buffer.from("abc") } as const;
  const stdin = toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame }));
  const others: readonly Uint8Array[] = [
    Buffer.alloc(0),
    toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "stdinClose", value: {} as never } })),
    Buffer.concat([stdin, stdin]),
    Buffer.concat([stdin, Buffer.from([0x78, 1])]),
  ];
  for (const other of others) assert.equal(tryBytesField(other, 2), undefined, Buffer.from(other).toString("hex"));
  const damaged = [
    stdin.subarray(0, -1),
    stdin.subarray(0, 1),
    Buffer.from([0x12, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff]),
  ];
  for (const bytes of damaged) {
    for (const decode of [() => tryBytesField(bytes, 2), () => decodeMessage(ExecFrameSchema, bytes)])
      assert.throws(decode, { reason: "MALFORMED_MESSAGE" }, Buffer.from(bytes).toString("hex"));
  }
  assert.equal(fromBinary(ExecFrameSchema, Buffer.concat([stdin, stdin])).frame.case, "stdin");
});

test("startedFrame and exitFrame produce the same bytes as the protobuf library", () => {
  for (const pid of [0, 1, 127, 128, 4_194_304]) {
    const started = create(ExecFrameSchema, { frame: { case: "started", value: { pid } } });
    assert.ok(unframe(startedFrame(pid)).equals(toBinary(ExecFrameSchema, started)), `process ${pid}`);
  }
  const none = { coreDumped: false, timedOut: false, oomKilled: false, outputComplete: false };
  const all = { coreDumped: true, timedOut: true, oomKilled: true, outputComplete: true };
  const used = {
    cpuScope: "process",
    cpuUserUs: 0,
    cpuSystemUs: 1,
    peakMemory: { scope: "tree", bytes: 2 ** 52 },
  } as const;
  const most = { ...used, cpuUserUs: 2 ** 52, cpuSystemUs: 2 ** 52 };
  for (const result of [
    { code: 0, signal: 0, ...none, durationMs: 0, usage: undefined },
    { code: 255, signal: 0, ...none, outputComplete: true, durationMs: 127, usage: { ...used, peakMemory: undefined } },
    { code: 192, signal: 64, ...all, durationMs: 2 ** 40, usage: most },
  ]) {
    const exit = create(ExecFrameSchema, { frame: { case: "exit", value: exitOf(result) } });
    assert.ok(unframe(exitFrame(result)).equals(toBinary(ExecFrameSchema, exit)), JSON.stringify(result));
  }
});

test("healthFrame produces the same bytes as the protobuf library", () => {
  const far = 253_402_300_799_999_999_999n;
  const reports = [
    { ready: true, readyCommandExit: 0, lastUserActivityNs: 0n, guestTimeNs: 1n, idleDeclaredNs: undefined },
    { ready: false, readyCommandExit: -1, lastUserActivityNs: -1n, guestTimeNs: -1_500_000_000n, idleDeclaredNs: 0n },
    { ready: false, readyCommandExit: 124, lastUserActivityNs: 1_795_219_200_123_456_789n, guestTimeNs: 2n ** 62n },
    { ready: true, readyCommandExit: -2_147_483_648, lastUserActivityNs: 5n, guestTimeNs: far },
  ].map((report, index) => ({
    idleDeclaredNs: 1_795_219_200_000_000_000n,
    frozen: index === 1,
    thawedWithoutDuties: index > 1,
    processEnvVersion: index,
    ...report,
  }));
  const services = ["svc.guest.v1alpha1.ExecSessions", "svc.guest.v1alpha1.GuestAgent"];
  for (const report of reports) {
    const message = create(HealthResponseSchema, {
      alive: true,
      ready: report.ready,
      readyCmdExit: report.readyCommandExit,
      lastUserActivity: timestamp(report.lastUserActivityNs),
      guestTime: timestamp(report.guestTimeNs),
      ...(report.idleDeclaredNs !== undefined && { idleDeclared: timestamp(report.idleDeclaredNs) }),
      frozen: report.frozen,
      thawedWithoutDuties: report.thawedWithoutDuties,
      processEnvVersion: report.processEnvVersion,
      services,
    });
    const [byHand, byLibrary] = [healthFrame(report, services), messageFrame(HealthResponseSchema, message)];
    assert.deepEqual(Buffer.concat(byHand), Buffer.concat(byLibrary));
  }
});

const STATUSES: Readonly<Record<StatusName, Code>> = {
  CANCELLED: Code.Canceled,
  INVALID_ARGUMENT: Code.InvalidArgument,
  DEADLINE_EXCEEDED: Code.DeadlineExceeded,
  NOT_FOUND: Code.NotFound,
  ALREADY_EXISTS: Code.AlreadyExists,
  PERMISSION_DENIED: Code.PermissionDenied,
  RESOURCE_EXHAUSTED: Code.ResourceExhausted,
  FAILED_PRECONDITION: Code.FailedPrecondition,
  ABORTED: Code.Aborted,
  OUT_OF_RANGE: Code.OutOfRange,
  UNIMPLEMENTED: Code.Unimplemented,
  INTERNAL: Code.Internal,
  UNAVAILABLE: Code.Unavailable,
  DATA_LOSS: Code.DataLoss,
  UNAUTHENTICATED: Code.Unauthenticated,
};

test("every gRPC status has the same number as in grpc-js", () => {
  for (const [status, code] of Object.entries(STATUSES)) {
    const fields = errorFields(new AgentError(status as StatusName, "INTERNAL", "any"));
    assert.equal(fields["grpc-status"], String(code), status);
  }
});

test("an error status takes less than 6 KiB, however long its text is", () => {
  for (const letter of ["x", "ü", "€", "\u{1f600}", "\n", "%", "\ud800"]) {
    const text = letter.repeat(8_000);
    const fields = errorFields(new AgentError("NOT_FOUND", "PATH_NOT_FOUND", text, { path: text, target: text }));
    const sizeBytes = Object.entries(fields).reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    assert.ok(sizeBytes < 6 * 1024, `${sizeBytes} bytes of ${JSON.stringify(letter)}`);
    assert.ok(sizeBytes > 3 * 1024, `only ${sizeBytes} bytes are left of ${JSON.stringify(letter)}`);
    assert.equal(findTrailerError(new Headers(fields))?.code, Code.NotFound);
  }
});

const LARGE_BYTES = 256 * 1024;

test("MessageBuffers reuses a released large buffer for the next message", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  const first = buffers.take(LARGE_BYTES);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, first.buffer);
  buffers.release(first.subarray(5));
  const next = buffers.take(LARGE_BYTES - 100);
  assert.equal(next.buffer, first.buffer);
  assert.equal(next.length, LARGE_BYTES - 100);
});

test("MessageBuffers ignores foreign buffers and the second release of a buffer", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  const foreign = new Uint8Array(LARGE_BYTES);
  const own = buffers.take(LARGE_BYTES);
  buffers.release(foreign);
  buffers.release(own);
  buffers.release(own);
  assert.equal(buffers.take(LARGE_BYTES).buffer, own.buffer);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, own.buffer);
});

test("MessageBuffers does not use an oversized buffer for a small message", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  buffers.release(buffers.take(16 * LARGE_BYTES));
  assert.equal(buffers.take(LARGE_BYTES).buffer.byteLength, LARGE_BYTES);
});

test("SpareMemory limits the spare buffers of all requests; ended requests keep none", () => {
  const spare = new SpareMemory(LARGE_BYTES);
  const first = new MessageBuffers(spare);
  const second = new MessageBuffers(spare);
  const kept = first.take(LARGE_BYTES);
  const given = second.take(LARGE_BYTES);
  assert.equal(first.release(kept), LARGE_BYTES);
  assert.equal(second.release(given), LARGE_BYTES);
  assert.deepEqual([kept.length, given.length], [LARGE_BYTES, 0], "the second has its memory taken from it");
  first.close();
  assert.equal(kept.length, 0);
  const again = second.take(LARGE_BYTES);
  second.release(again);
  assert.equal(second.take(LARGE_BYTES).buffer, again.buffer);
  const late = first.take(LARGE_BYTES);
  first.release(late);
  assert.equal(late.length, 0, "a request that is over keeps nothing");
});
