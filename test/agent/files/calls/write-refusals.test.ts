import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile, stat, writeFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  type WriteFileRequest,
  WriteFileRequestSchema,
} from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import {
  dataMessage,
  failureOf,
  FileCalls,
  headerMessage,
  openFiles,
  type TestDirectory,
  testDirectory,
  failsWith,
} from "../../../fixtures/files.ts";
import { callFields, CODE, envelope, FLAG, frame, FRAME, RawHttp2, uint32 } from "../../../fixtures/raw-http2.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { relayTo } from "../../../fixtures/relay.ts";

const OLD = "the old content";

let directory: TestDirectory;
let path: string;
const agent = forAllTests(await startAgent());
const files = forAllTests(new FileCalls(agent));
beforeEach(async () => {
  directory = await testDirectory();
  path = directory.at("file");
  await writeFile(path, OLD, { mode: 0o640 });
});
afterEach(async () => {
  assert.equal(await readFile(path, "utf8"), OLD, "the old file must be untouched");
  assert.deepEqual(await directory.names(), ["file"], "no temporary file may be left");
  await directory[Symbol.asyncDispose]();
});

const data = (text: string): WriteFileRequest => dataMessage(Buffer.from(text));

/** Resolves when the agent holds no file of the directory any more. */
async function finished(): Promise<void> {
  const isClosed = async (): Promise<boolean> =>
    !(await openFiles(agent.pid)).some((file) => file.startsWith(directory.path));
  await until(isClosed, "the agent has closed its new file");
}

describe("refused WriteFile calls", () => {
  it("WriteFile below /proc fails with NOT_FOUND and explains why", async () => {
    const writing = files.writeMessages([headerMessage({ path: "/proc/version" }), data("x")]);
    const { message } = await failsWith(writing, status.NOT_FOUND, "PATH_NOT_FOUND");
    assert.match(message, /or its file system does not allow new files, as in \/proc/);
  });

  const EMPTY = create(WriteFileRequestSchema);
  const LAST = create(WriteFileRequestSchema, { message: { case: "data", value: Buffer.from("x") }, last: true });
  for (const [problem, messages] of [
    ["without any message", () => []],
    ["without a header first", () => [data("x"), headerMessage({ path })]],
    ["with an empty message first", () => [EMPTY]],
    ["with an empty message later", () => [headerMessage({ path }), data("x"), EMPTY]],
    ["with a second header", () => [headerMessage({ path }), data("x"), headerMessage({ path })]],
    ["with a message after the last", () => [headerMessage({ path }), LAST, data("y")]],
  ] as const) {
    it(`WriteFile ${problem} fails with FRAME_ORDER`, async () => {
      await failsWith(files.writeMessages(messages()), status.INVALID_ARGUMENT, "FRAME_ORDER");
    });
  }

  for (const [problem, header, field] of [
    ["an empty path", { path: "" }, "path"],
    ["a relative path", { path: "file" }, "path"],
    ["a NUL in the path", { path: "/tmp/a\0b" }, "path"],
    ["a path longer than PATH_MAX", { path: `/${"a/".repeat(2_100)}b` }, "path"],
    ["a name longer than NAME_MAX", { path: `/tmp/${"n".repeat(256)}` }, "path"],
    ["a path that ends in a slash", { path: "/tmp/does-not-exist-as-file/" }, "path"],
    ["a mode beyond 07777", { path: "/tmp/x", mode: 0o10000 }, "mode"],
    ["the user id that means no change", { path: "/tmp/x", uid: 2 ** 32 - 1 }, "uid"],
    ["the group id that means no change", { path: "/tmp/x", gid: 2 ** 32 - 1 }, "gid"],
    ["an mtime of 1e9 nanoseconds", { path: "/tmp/x", mtime: { seconds: 1n, nanos: 1_000_000_000 } }, "mtime"],
    ["a time after the year 9999", { path: "/tmp/x", mtime: { seconds: 253_402_300_800n } }, "mtime"],
    ["a checksum of 31 bytes", { path: "/tmp/x", sha256: new Uint8Array(31) }, "sha256"],
    ["a checksum and skip_sha256", { path: "/tmp/x", sha256: new Uint8Array(32), skipSha256: true }, "skip_sha256"],
  ] as const) {
    it(`WriteFile with ${problem} fails with INVALID_FIELD`, async () => {
      await failsWith(files.write(header, "x"), status.INVALID_ARGUMENT, "INVALID_FIELD", { field });
    });
  }

  it("WriteFile fails on a wrong checksum or too few bytes", async () => {
    for (const [more, reason] of [
      [{ sha256: new Uint8Array(32) }, "CHECKSUM_MISMATCH"],
      [{ size: 4n }, "SIZE_MISMATCH"],
    ] as const)
      await failsWith(files.write({ path, ...more }, "new"), status.DATA_LOSS, reason);
  });

  it("WriteFile fails immediately on more bytes than declared", async () => {
    async function* endless(): AsyncGenerator<WriteFileRequest> {
      yield headerMessage({ path, size: 100_000n });
      for (;;) yield dataMessage(Buffer.alloc(60_000));
    }
    await failsWith(files.writeMessages(endless()), status.DATA_LOSS, "SIZE_MISMATCH");
  });

  it("WriteFile rejects a non-regular file and a path below a file", async () => {
    assert.equal(spawnSync("mkfifo", [directory.at("fifo")]).status, 0);
    for (const other of [directory.path, "/dev/null", "/", "/proc/.", "/tmp/..", directory.at("fifo")])
      await failsWith(files.write({ path: other }, "x"), status.FAILED_PRECONDITION, "NOT_A_REGULAR_FILE");
    assert.ok((await stat("/dev/null")).isCharacterDevice());
    spawnSync("rm", [directory.at("fifo")]);
    for (const createParents of [false, true]) {
      const writing = files.write({ path: `${path}/below`, createParents }, "x");
      await failsWith(writing, status.NOT_FOUND, "PATH_NOT_FOUND", { errno: "ENOTDIR" });
    }
  });

  it("a cancelled WriteFile leaves the old file unchanged", async () => {
    const abort = new AbortController();
    async function* cancelled(): AsyncGenerator<WriteFileRequest> {
      yield headerMessage({ path });
      yield dataMessage(Buffer.alloc(1_000_000));
      abort.abort();
      await new Promise(() => {});
    }
    assert.equal((await failureOf(files.writeMessages(cancelled(), { signal: abort.signal }))).code, status.CANCELLED);
    // The agent completes its clean-up before it answers the next write.
    await files.write({ path: directory.at("next") }, "x");
    spawnSync("rm", [directory.at("next")]);
  });

  describe("a WriteFile request that is broken off", () => {
    const message = (request: WriteFileRequest): Buffer => envelope(toBinary(WriteFileRequestSchema, request));
    /** A connection with a call that has sent its header and a part of the content. */
    const begun = async (header: Parameters<typeof headerMessage>[0]): Promise<[peer: RawHttp2, stream: number]> => {
      const peer = await RawHttp2.dial(agent);
      const stream = peer.open(callFields("WriteFile", agent.token));
      peer.send(frame(FRAME.data, 0, stream, message(headerMessage(header))));
      peer.send(frame(FRAME.data, 0, stream, message(data("a part"))));
      return [peer, stream];
    };

    const reset = (code: number, stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(code));
    const end = (stream: number): Buffer => frame(FRAME.data, FLAG.endStream, stream);
    for (const [what, frames] of [
      ["a reset with CANCEL, without an end", (stream) => [reset(CODE.cancel, stream)]],
      ["a reset with NO_ERROR, without an end", (stream) => [reset(CODE.none, stream)]],
      ["a reset with INTERNAL_ERROR, without an end", (stream) => [reset(CODE.internal, stream)]],
      ["an end followed by a reset (Node's http2)", (stream) => [end(stream), reset(CODE.cancel, stream)]],
    ] as const satisfies readonly (readonly [string, (stream: number) => Buffer[]])[])
      it(`WriteFile changes nothing after ${what}`, NEEDS_ROOT, async () => {
        const [peer, stream] = await begun({ path });
        using _connection = peer;
        peer.send(...frames(stream));
        assert.equal(await peer.ask("Health", agent.token), "0");
        await finished();
      });

    it("WriteFile with `marks_last` fails if the upload ends before a `last` message", async () => {
      const [peer, stream] = await begun({ path, marksLast: true });
      using _connection = peer;
      peer.send(end(stream));
      const trailers = await peer.status(stream);
      assert.equal(trailers.get("grpc-status"), String(status.INVALID_ARGUMENT));
      assert.match(trailers.get("grpc-message") ?? "", /ended before a message with `last`/);
    });
  });

  it("WriteFile changes nothing when the connection breaks", NEEDS_ROOT, async () => {
    await using proxied = await relayTo(agent.port);
    using other = new FileCalls({ ...agent, port: proxied.port });
    async function* stalled(): AsyncGenerator<WriteFileRequest> {
      yield headerMessage({ path });
      yield dataMessage(Buffer.alloc(1_000_000));
      proxied.cut();
      await new Promise(() => {});
    }
    assert.equal((await failureOf(other.writeMessages(stalled()))).code, status.UNAVAILABLE);
    await finished();
  });
});
