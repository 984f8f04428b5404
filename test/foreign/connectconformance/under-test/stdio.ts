const LENGTH_BYTES = 4;

/** The suite's messages on standard input, each after its length in four bytes, until it ends. */
export async function* readMessages(): AsyncGenerator<Buffer, void, undefined> {
  let received = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    while (received.length >= LENGTH_BYTES) {
      const end = LENGTH_BYTES + received.readUInt32BE();
      if (received.length < end) break;
      yield received.subarray(LENGTH_BYTES, end);
      received = received.subarray(end);
    }
  }
  if (received.length > 0) throw new Error("standard input ended within a message");
}

/** Writes a message to standard output in the same way. */
export function writeMessage(bytes: Uint8Array): void {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(bytes.length);
  process.stdout.write(Buffer.concat([length, bytes]));
}
