import { fstatSync } from "node:fs";
import type { ConsoleOutput } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";
import { eventually } from "./eventually.ts";

const STDOUT = 1;
const STDERR = 2;
/** PIPE_BUF: a write of up to this size is atomic, so no other writer, such as the log, can write between its bytes. */
const PIECE_BYTES = 4096;
const NEWLINE = 0x0a;
/** Limit for output that a slow console has not taken yet. The memory is allocated as needed. */
const QUEUE_BYTES = 512 * 1024;
/** Longest time for writing queued output at exit, so that a console that no process reads does not block the exit. */
const FLUSH_LIMIT_MS = 1_000;

/**
 * The agent's own stdout and stderr. Their descriptors must stay blocking, because other processes share them, so
 * background threads write to them. If both are the same file, they share one queue, which keeps the order.
 */
export function consoleOutput(addon: Pick<Addon, "BackgroundWriter">): ConsoleOutput {
  const stdout = new addon.BackgroundWriter(STDOUT, QUEUE_BYTES);
  const stderr = isSameFile() ? stdout : new addon.BackgroundWriter(STDERR, QUEUE_BYTES);
  const writers = { stdout, stderr };
  return {
    write: (stream, bytes) => {
      let at = 0;
      while (at < bytes.length) {
        const piece = nextPiece(bytes.subarray(at));
        if (!writers[stream].write(piece)) break;
        at += piece.length;
      }
      return at;
    },
    flushed: async () => {
      await eventually(FLUSH_LIMIT_MS, () => stdout.drain(0) && stderr.drain(0));
    },
  };
}

/** The next piece to write: whole lines if possible. */
function nextPiece(bytes: Uint8Array): Uint8Array {
  if (bytes.length <= PIECE_BYTES) return bytes;
  const end = bytes.lastIndexOf(NEWLINE, PIECE_BYTES - 1) + 1;
  return bytes.subarray(0, end === 0 ? PIECE_BYTES : end);
}

function isSameFile(): boolean {
  const [one, other] = [fstatSync(STDOUT), fstatSync(STDERR)];
  return one.dev === other.dev && one.ino === other.ino;
}
