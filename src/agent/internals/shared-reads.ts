import type { Duplex } from "node:stream";

/** Room for several TLS records, and for the most that the kernel returns at once without TLS. */
const BUFFER_BYTES = 64 * 1024;
/** A read of a full TLS record is part of something large. */
const RECORD_BYTES = 16 * 1024;

/** The buffer that all sockets read into: each read is consumed before the next. Allocated with the first socket. */
let shared: Buffer | undefined;

/** Where Node's sockets keep the option `onread`, which is public for sockets of clients alone (lib/net.js). */
interface OnRead {
  readonly bufferKey: symbol;
  readonly callbackKey: symbol;
  readonly handle: { useUserBuffer(buffer: Uint8Array): void };
}

type Inside = Record<symbol, unknown>;

/** Undefined: the stream is no socket, or a socket of another Node than we know. */
function onReadOf(socket: Duplex & { readonly _handle?: unknown }): OnRead | undefined {
  const inside = socket as unknown as Inside;
  const key = (name: string): symbol | undefined =>
    Object.getOwnPropertySymbols(inside).find(({ description }) => description === name);
  const bufferKey = key("kBuffer");
  const callbackKey = key("kBufferCb");
  const generatorKey = key("kBufferGen");
  const { _handle: handle } = socket;
  if (bufferKey === undefined || callbackKey === undefined || generatorKey === undefined) return undefined;
  if ([bufferKey, callbackKey, generatorKey].some((each) => inside[each] !== null)) return undefined;
  const canRead = typeof handle === "object" && handle !== null && "useUserBuffer" in handle;
  if (!canRead || typeof handle.useUserBuffer !== "function") return undefined;
  return { bufferKey, callbackKey, handle: handle as OnRead["handle"] };
}

/**
 * Passes on all that a socket reads. The bytes are valid until `receive` returns, which must not read from the socket.
 * Node hands out each TLS record in new memory; read into one buffer, a file's upload takes 0.85 of the CPU time
 * (decision 0023). Where Node does not offer this, it reads through the public API.
 */
export function receiveAll(socket: Duplex, receive: (bytes: Buffer) => void): void {
  const onRead = onReadOf(socket);
  if (onRead === undefined) {
    socket.on("data", receive);
    return;
  }
  const buffer = (shared ??= Buffer.allocUnsafeSlow(BUFFER_BYTES));
  let bytes = buffer;
  const inside = socket as unknown as Inside;
  inside[onRead.bufferKey] = buffer;
  inside[onRead.callbackKey] = (sizeBytes: number): void => {
    if (bytes.length !== sizeBytes) bytes = buffer.subarray(0, sizeBytes);
    receive(bytes);
    // Overwrite small reads: they may hold a token or entropy.
    if (sizeBytes < RECORD_BYTES) bytes.fill(0);
  };
  onRead.handle.useUserBuffer(buffer);
  // Passes on what came before; later also the end.
  for (let early: unknown = socket.read(); early !== null; early = socket.read()) receive(early as Buffer);
}
