import type { Addon } from "../../native/index.ts";

/** What to do next with a stream whose process of interest has exited. */
export type DrainStep =
  /** More of its bytes may be there. */
  | "continue"
  /** All of them are delivered, and another process still holds the stream open. */
  | "still_held";

/**
 * Tells when everything that an exited process left in a stream has been read. A pipe and a terminal need different
 * rules; the end of the stream (read returns 0, or EIO on a terminal) is seen by the reader itself.
 */
export interface EndOfOutput {
  /** After `count` bytes were read and delivered; 0 at the very start. */
  delivered(count: number): DrainStep;
  /** A read found nothing (EAGAIN). */
  foundNothing(): DrainStep;
}

/**
 * What a process wrote lies in the pipe when it exits. So exactly the bytes that lie there now are owed; behind them come
 * only others'. If nobody writes any more the rest is finite, and is read to the end too.
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
 * The kernel moves a terminal's output in a work item; a read flushes it first. So after the exit a read that finds
 * nothing proves that nothing is owed, whereas a count of what is ready now would prove nothing.
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
