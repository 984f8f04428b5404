import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { NewFile } from "../../../../src/agent/files/entries/new-file.ts";
import { FileSystemError } from "../../../../src/agent/domain/index.ts";
import { Content } from "../../../../src/agent/files/calls/content.ts";

const KIB = 1024;

/** A file whose writes end when the test says so. */
class SlowFile implements Pick<NewFile, "write" | "sha256"> {
  readonly batches: (readonly Uint8Array[])[] = [];
  #running: PromiseWithResolvers<void> | undefined;

  write(pieces: readonly Uint8Array[]): Promise<void> {
    assert.equal(this.#running, undefined, "a write before the last one has ended");
    this.batches.push(pieces);
    this.#running = Promise.withResolvers();
    return this.#running.promise;
  }

  sha256(): undefined {
    return undefined;
  }

  /** Ends the write in progress. */
  async end(error?: Error): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    if (error === undefined) running?.resolve();
    else running?.reject(error);
    await new Promise(setImmediate);
  }
}

function upload(writers = 1) {
  const file = new SlowFile();
  const released: Uint8Array[] = [];
  const content = new Content({
    // A new file's other methods are called after its content.
    file: file as Partial<NewFile> as NewFile,
    expected: { path: Buffer.from("/file"), sizeBytes: undefined, sha256: undefined },
    writers: () => writers,
  });
  /** Hands the content a piece. */
  const write = async (bytes: Uint8Array): Promise<void> =>
    content.write({ bytes, release: () => released.push(bytes) });
  return { file, content, write, released };
}

/** Whether a promise is still pending after everything that happens by itself. */
async function isWaiting(promise: Promise<unknown>): Promise<boolean> {
  let open = true;
  const over = (): void => void (open = false);
  promise.then(over, over);
  await new Promise(setImmediate);
  return open;
}

describe("the content of a file", () => {
  it("an upload writes one batch of file content while it collects the next", async () => {
    const { file, content, write, released } = upload();
    const pieces: Uint8Array[] = Array.from({ length: 5 }, () => Buffer.alloc(256 * KIB));
    // Numbers instead of the pieces: a failure would print those.
    const numbers = (given: readonly Uint8Array[]): number[] => given.map((piece) => pieces.indexOf(piece));
    const [, , , fourth, fifth] = pieces;
    for (const piece of pieces.slice(0, 3)) await write(piece);
    assert.deepEqual(file.batches.map(numbers), [[0, 1]]);
    const waiting = write(fourth ?? new Uint8Array());
    assert.ok(await isWaiting(waiting));
    assert.deepEqual(numbers(released), []);
    await file.end();
    await waiting;
    assert.deepEqual(numbers(released), [0, 1]);
    await write(fifth ?? new Uint8Array());
    const finished = content.finish();
    await file.end();
    await file.end();
    assert.equal((await finished).bytesWritten, BigInt(5 * 256 * KIB));
    assert.deepEqual(file.batches.map(numbers), [[0, 1], [2, 3], [4]]);
    assert.deepEqual(numbers(released), [0, 1, 2, 3, 4]);
  });

  it("with 64 concurrent uploads, each upload writes one batch at a time", async () => {
    const { file, write } = upload(64);
    await write(Buffer.alloc(32 * KIB));
    const waiting = write(Buffer.alloc(32 * KIB));
    assert.ok(await isWaiting(waiting));
    assert.equal(file.batches.length, 1);
    await file.end();
    await waiting;
  });

  it("256 one-byte pieces of file content are written as one batch", async () => {
    const { file, write } = upload();
    for (let count = 0; count < 256; count++) await write(Buffer.alloc(1));
    assert.equal(file.batches[0]?.length, 256);
  });

  it("a failing upload waits for its pending write before it reports the error", async () => {
    const { file, content, write, released } = upload();
    await write(Buffer.alloc(512 * KIB));
    const finished = content.finish();
    finished.catch(() => {});
    const settled = content.settled();
    assert.ok(await isWaiting(settled));
    await file.end(new FileSystemError("write", "ENOSPC"));
    await settled;
    await assert.rejects(finished, { errno: "ENOSPC" });
    assert.equal(released.length, 1);
  });
});
