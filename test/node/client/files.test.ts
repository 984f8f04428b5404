import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { connect as dial } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { describe, test } from "node:test";
import { connect, type Files, type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { FLAG, FRAME, frameReader, PREFACE } from "../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startSocketAgent());
const client = forAllTests(clientOf(agent));

describe("files of a GuestClient", () => {
  const content = randomBytes(3 * 1024 * 1024 + 7);

  test("`readFile` reads a whole file or a range", async () => {
    const path = join(directory, "read");
    await writeFile(path, content);
    assert.ok((await client.files.readFile(path)).equals(content));
    const range = await client.files.readFile(path, { offset: 1_000_000, length: 5 });
    assert.deepEqual(range, content.subarray(1_000_000, 1_000_005));
    await writeFile(join(directory, "empty"), "");
    assert.equal(await client.files.readFile(join(directory, "empty"), "utf8"), "");
  });

  test("readPieces() returns a sparse file's holes as lengths instead of zeros", async () => {
    const path = join(directory, "pieces");
    await writeFile(path, content);
    await truncate(path, 20_000_000);
    const pieces = await Array.fromAsync(client.files.readPieces(path));
    const bytes = pieces.map((piece) => ("holeBytes" in piece ? Buffer.alloc(piece.holeBytes) : piece));
    assert.ok(Buffer.concat(bytes).equals(await readFile(path)));
    const holes = pieces.flatMap((piece) => ("holeBytes" in piece ? [piece.holeBytes] : []));
    assert.equal(holes.length, 1);
    assert.ok(Number(holes[0]) > 16_000_000, `${holes[0]}`);
    const range = await Array.fromAsync(client.files.readPieces(path, { offset: 10_000_000, length: 1_000_000 }));
    assert.deepEqual(range, [{ holeBytes: 1_000_000 }]);
  });

  test("`readFile` and `readPieces` reject answers with forbidden holes or surplus bytes", async () => {
    for (const [chunk, said, read] of [
      [
        { hole: 5n },
        /it has a hole, although the request did not allow holes$/,
        (files: Files) => files.readFile("/x", { length: 10 }),
      ],
      ...[11n, 2n ** 64n - 1n].map(
        (hole) =>
          [
            { hole },
            /more than the 10 requested bytes/,
            (files: Files) => Array.fromAsync(files.readPieces("/x", { length: 10 })),
          ] as const,
      ),
      [
        { data: Buffer.alloc(11) },
        /more than the 10 requested bytes/,
        (files: Files) => files.readFile("/x", { length: 10 }),
      ],
    ] as const) {
      await using standIn = await startStandIn({ service: GuestAgent, streams: { ReadFile: [chunk] } });
      const { status, code, message } = await failureOf(read(standIn.client.files));
      assert.deepEqual([status, code], ["DATA_LOSS", "ANSWER_UNREADABLE"]);
      assert.match(message, said);
    }
  });

  test("file calls reject a path that contains half a surrogate pair", async () => {
    const path = "/tmp/\ud800";
    const calls: readonly (() => unknown)[] = [
      () => client.files.stat(path),
      () => client.files.readFile(path),
      () => client.files.writeFile(path, "x"),
      () => client.files.rm(path),
      () => client.files.rename("/tmp/x", path),
      () => client.files.mkdir(path),
      () => client.files.setAttributes(path, { mode: 0o600 }),
      () => client.files.opendir(path)[Symbol.asyncIterator]().next(),
    ];
    for (const call of calls) {
      const error = await failureOf(Promise.resolve().then(call));
      assert.equal(error.status, "INVALID_ARGUMENT");
      assert.match(error.message, /path has half of a surrogate pair at index 5; UTF-8 cannot express it$/);
    }
  });

  test("a read stream's attributes describe the opened file, even after its path is replaced", async () => {
    const path = join(directory, "attributes");
    await writeFile(path, content);
    const opened = client.files.createReadStream(path);
    const chunks = opened[Symbol.asyncIterator]();
    await chunks.next();
    await rm(path);
    await writeFile(path, "another");
    const attributes = await opened.attributes;
    assert.deepEqual([attributes?.type, attributes?.size], ["file", content.length]);
    await chunks.return?.(undefined);
    const absent = client.files.createReadStream(join(directory, "absent"));
    await assert.rejects(buffer(absent), GuestError);
    await assert.rejects(absent.attributes, GuestError);
  });

  test("the `attributes` promise of a destroyed, unread stream rejects with CANCELLED", async () => {
    const unread = client.files.createReadStream(join(directory, "unread"));
    unread.destroy();
    const { status } = await failureOf(unread.attributes);
    assert.equal(status, "CANCELLED");
  });

  test("`writeFile` writes bytes and streams with their attributes", async () => {
    const sha256 = createHash("sha256").update(content).digest();
    const whole = await client.files.writeFile(join(directory, "whole"), content, { mode: 0o640, sha256 });
    assert.equal(whole.bytesWritten, content.length);
    assert.deepEqual(Buffer.from(whole.sha256), sha256);
    assert.ok((await readFile(join(directory, "whole"))).equals(content));
    assert.equal((await stat(join(directory, "whole"))).mode & 0o777, 0o640);

    async function* pieces(): AsyncGenerator<Uint8Array> {
      for (let start = 0; start < content.length; start += 100_000) yield content.subarray(start, start + 100_000);
    }
    await client.files.writeFile(join(directory, "new", "streamed"), pieces(), { parents: true });
    assert.ok((await readFile(join(directory, "new", "streamed"))).equals(content));
  });

  test("`writeFile` closes its source if the agent rejects the path", async () => {
    const closed = Promise.withResolvers<void>();
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield content;
      } finally {
        closed.resolve();
      }
    }
    const refused = client.files.writeFile(join(directory, "no", "such", "directory"), endless());
    assert.equal((await failureOf(refused)).status, "NOT_FOUND");
    await closed.promise;
    const { status, reason } = await failureOf(buffer(client.files.createReadStream(join(directory, "absent"))));
    assert.deepEqual([status, reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    assert.ok(!(await readdir(directory)).includes("no"));
  });
});

/**
 * The worst network: a client's reset never arrives, like one that is delayed for longer than the agent needs.
 * `settled` resolves when the client has reset its call, or has ended the request and the agent has answered. After
 * that, a client that had little time sends no reset. `given` resolves when the part has left the client: what is not
 * sent cannot be taken for the whole.
 */
async function withoutResets(socketPath: string, path: string) {
  const { promise: settled, resolve: settle } = Promise.withResolvers<void>();
  const { promise: given, resolve: give } = Promise.withResolvers<void>();
  const server = await listener(
    (near) => {
      const far = dial(socketPath).on("error", () => {});
      far.write(PREFACE);
      let requestEnded = false;
      const onward = frameReader((frame, type, flags) => {
        if (frame.includes(PART)) give();
        if (type === FRAME.data && (flags & FLAG.endStream) !== 0) requestEnded = true;
        if (type !== FRAME.reset) far.write(frame);
        else if (!requestEnded) settle();
      }, PREFACE.length);
      const back = frameReader((frame, type, flags) => {
        if (type === FRAME.headers && (flags & FLAG.endStream) !== 0) settle();
        near.write(frame);
      });
      near.on("data", onward).once("close", () => far.destroy());
      far.on("data", back).once("close", () => near.destroy());
    },
    { path },
  );
  return { settled, given, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

const PART = "a part of the new content";

/** Yields a part of the content. */
async function* part(then: () => Promise<unknown>): AsyncGenerator<Uint8Array> {
  yield Buffer.from(PART);
  await then();
}

const never = async (): Promise<void> => new Promise(() => {});

/** The ways in which a client ends a write early. */
const ENDS: Readonly<Record<string, (writer: GuestClient, path: string, given: Promise<void>) => Promise<GuestError>>> =
  {
    "is aborted": async (writer, path, given) => {
      const abort = new AbortController();
      const content = part(async () => {
        await given;
        abort.abort("given up");
        await never();
      });
      return failureOf(writer.files.writeFile(path, content, { signal: abort.signal }));
    },
    "passes its deadline": (writer, path) =>
      failureOf(writer.files.writeFile(path, part(never), { requestTimeoutMs: 300 })),
    "has a source that fails": (writer, path, given) => {
      const content = part(async () => {
        await given;
        throw new Error("the disk of the host is gone");
      });
      return failureOf(writer.files.writeFile(path, content));
    },
  };

describe("an interrupted write whose request Node ends before resetting it", () => {
  for (const [name, end] of Object.entries(ENDS)) {
    test(`a write that ${name} leaves no partial file`, async () => {
      await using place = await testDirectory();
      await writeFile(place.at("file"), "the old content");
      await using proxy = await withoutResets(agent.socketPath, `${place.path}.sock`);
      using writer = connect({ address: `unix:${place.path}.sock`, token: agent.token });
      assert.match(
        (await end(writer, place.at("file"), proxy.given)).status,
        /CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION/,
      );
      await proxy.settled;
      assert.equal(await readFile(place.at("file"), "utf8"), "the old content");
      assert.deepEqual(await readdir(place.path), ["file"]);
    });
  }
});
