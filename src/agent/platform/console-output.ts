import { fstatSync } from "node:fs";
import type { ConsoleOutput } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";
import { eventually } from "./eventually.ts";

const STDOUT = 1;
const STDERR = 2;
/** PIPE_BUF: whoever else writes to the same pipe, such as the log, does not get in between. */
const PIECE_BYTES = 4096;
const NEWLINE = 0x0a;
/** What a slow console may have to catch up with. Allocated as needed. */
const QUEUE_BYTES = 512 * 1024;
/** A console that nobody reads must not keep the agent from leaving. */
const FLUSH_LIMIT_MS = 1_000;

/**
 * The agent's own outputs, through queues in memory that threads write from: they are shared with other processes, and
 * cannot be made non-blocking (see stderrLines). Where both lead to one file, one queue keeps their order.
 */
export function consoleOutput(addon: Pick<Addon, "BackgroundWriter">): ConsoleOutput {
  const stdout = new addon.BackgroundWriter(STDOUT, QUEUE_BYTES);
  const stderr = isSameFile() ? stdout : new addon.BackgroundWriter(STDERR, QUEUE_BYTES);
  const writers = { stdout, stderr };
  return {
    write: (stream, bytes) => {
      let at = 0;
      while (at < bytes.length) {
        const piece = pieceOf(bytes.subarray(at));
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

/** The first bytes, whole lines where that is possible. */
function pieceOf(bytes: Uint8Array): Uint8Array {
  if (bytes.length <= PIECE_BYTES) return bytes;
  const end = bytes.lastIndexOf(NEWLINE, PIECE_BYTES - 1) + 1;
  return bytes.subarray(0, end === 0 ? PIECE_BYTES : end);
}

function isSameFile(): boolean {
  const [one, other] = [fstatSync(STDOUT), fstatSync(STDERR)];
  return one.dev === other.dev && one.ino === other.ino;
}
