import type { Readable, Writable } from "node:stream";

/**
 * Converts a Node stream to a web stream that reads only on demand. Cancelling it destroys the Node stream. It is used
 * instead of toWeb(), because Node 20's toWeb() treats a stream that has already failed as ended.
 */
export function readableStream<Chunk = Uint8Array>(stream: Readable): ReadableStream<Chunk> {
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Chunk, unknown, undefined>;
  return new ReadableStream<Chunk>(
    {
      async pull(controller): Promise<void> {
        const next = await chunks.next();
        if (next.done === true) controller.close();
        else controller.enqueue(next.value);
      },
      cancel(): void {
        stream.destroy();
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * Creates a web stream that writes to a Node stream. Closing the web stream ends the Node stream; aborting it destroys
 * the Node stream with the reason.
 */
export function writableStream(stream: Writable): WritableStream<Uint8Array | string> {
  return new WritableStream<Uint8Array | string>({
    write: (chunk) => settled((done) => stream.write(chunk, done)),
    close: () => settled((done) => stream.end(done)),
    abort(reason: unknown): void {
      stream.destroy(reason instanceof Error ? reason : new Error("the stream was aborted", { cause: reason }));
    },
  });
}

function settled(start: (done: (error?: Error | null) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    start((error) => (error ? reject(error) : resolve()));
  });
}
