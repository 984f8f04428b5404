import type { ActivityClock, ChildProcess, ExecInput } from "../domain/index.ts";

/** Bytes of input that may wait for the command before its frames are no longer read. */
const STDIN_QUEUE_BYTES = 256 * 1024;
/** What a waiting frame costs beside its bytes: single keys must not fill the memory. */
const FRAME_OVERHEAD_BYTES = 256;

/**
 * Carries the client's frames to the command until the client's side ends. Input that the command does not read holds
 * the client back; up to a bound, later frames (signals, sizes) still pass it.
 */
export async function pumpInput(
  child: ChildProcess,
  frames: AsyncIterable<ExecInput>,
  activity: ActivityClock,
): Promise<void> {
  let queuedBytes = 0;
  for await (const frame of frames) {
    activity.touch();
    switch (frame.kind) {
      case "stdin": {
        const heldBytes = frame.bytes.length + FRAME_OVERHEAD_BYTES;
        queuedBytes += heldBytes;
        const written = child.stdin?.write(frame.bytes).then(() => {
          queuedBytes -= heldBytes;
          frame.release?.();
        });
        if (queuedBytes > STDIN_QUEUE_BYTES) await written;
        break;
      }
      case "stdin_close":
        child.stdin?.end();
        break;
      case "resize":
        // A dimension of zero says nothing (RFC 4254, 6.7): a client without a window of its own sends it.
        if (frame.cols > 0 && frame.rows > 0) child.resize(frame.cols, frame.rows);
        break;
      case "signal":
        child.signalGroup(frame.number);
    }
  }
  child.stdin?.end();
}
