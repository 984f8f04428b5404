import type { Addon } from "../../native/index.ts";

/** What to do next with the output stream of a process that has exited. */
export type DrainStep =
  /** It may hold more of the process's bytes. */
  | "continue"
  /** All are delivered, and another process still holds the stream open. */
  | "still_held";

/**
 * Tells when all that an exited process wrote to a stream has been read. Pipes and terminals need different rules. The
 * reader itself detects the end of the stream (0 from read(2), or EIO on a terminal).
 */
export interface EndOfOutput {
  /** After `count` bytes were read and delivered; 0 at the very start. */
  delivered(count: number): DrainStep;
  /** A read found nothing (EAGAIN). */
  foundNothing(): DrainStep;
}

/**
 * All that a process wrote is in the pipe when it exits. So only the bytes that are in it now are the process's; later
 * ones are others'. If no writer is left, read to the end.
 */
export function endOfPipe(addon: Addon, fd: number): EndOfOutput {
  let owed = addon.bytesAvailable(fd);
  const decide = (): DrainStep => (owed > 0 || addon.hungUp(fd) ? "continue" : "still_held");
  return {
    delivered: (count): DrainStep => {
      owed -= count;
      return decide();
    },
    foundNothing: (): DrainStep => {
      owed = 0;
      return decide();
    },
  };
}

/** Far more than a terminal's buffers hold (8 KiB, and 4 KiB in the line discipline). */
const TERMINAL_BOUND_BYTES = 128 * 1024;

/**
 * The kernel moves a terminal's output in a work item, which a read flushes first. So after the exit a read that finds
 * nothing proves that all is delivered; the count of ready bytes would prove nothing.
 */
export function endOfTerminal(): EndOfOutput {
  let leftBytes = TERMINAL_BOUND_BYTES;
  return {
    delivered: (count): DrainStep => {
      leftBytes -= count;
      return leftBytes > 0 ? "continue" : "still_held";
    },
    foundNothing: (): DrainStep => "still_held",
  };
}
