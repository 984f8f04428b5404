import type { Incoming, ActivityClock, ChildProcess } from "../domain/index.ts";
import type { CommandInput } from "./frames.ts";

/** Limit for input that the command has not read. Above the limit the agent reads no further frames of the client. */
const QUEUE_BYTES = 256 * 1024;
/** Memory that a waiting frame takes in addition to its data. It counts, because a frame may contain a single keystroke. */
const FRAME_OVERHEAD_BYTES = 256;

/**
 * Passes the client's frames to a command. Input may wait until the command reads it. A signal or a resize overtakes
 * the waiting input, except while more than QUEUE_BYTES of input is waiting: then no frame of any kind is passed on.
 */
export class InputPump {
  readonly #child: ChildProcess;
  readonly #activity: ActivityClock;
  #queuedBytes = 0;
  /** Resolves when all input that was passed on so far is written, including the most recent frame. */
  #written: Promise<void> | undefined;

  constructor(child: ChildProcess, activity: ActivityClock) {
    this.#child = child;
    this.#activity = activity;
  }

  /** Passes on the frames of one client and then ends the input. Reads no frames while too much input is waiting. */
  pump(frames: Incoming<CommandInput>, failed: (error: Error) => void): void {
    frames(
      (frame) => {
        this.take(frame);
        return this.isFull ? this.room() : undefined;
      },
      (failure) => {
        if (failure === undefined) this.#child.stdin?.end();
        else failed(failure);
      },
    );
  }

  /** Whether too much input is waiting. The caller must then wait for `room()` before it passes on another frame. */
  get isFull(): boolean {
    return this.#queuedBytes > QUEUE_BYTES;
  }

  /** Resolves when all input that is waiting at the time of the call has been written to the command. */
  async room(): Promise<void> {
    await this.#written;
  }

  take(frame: CommandInput): void {
    this.#activity.touch();
    switch (frame.kind) {
      case "stdin": {
        const written = this.#child.stdin?.write(frame.bytes);
        if (written === undefined) {
          frame.release();
          break;
        }
        const heldBytes = frame.bytes.length + FRAME_OVERHEAD_BYTES;
        this.#queuedBytes += heldBytes;
        this.#written = written.then(() => {
          this.#queuedBytes -= heldBytes;
          frame.release();
        });
        break;
      }
      case "stdin_close":
        this.#child.stdin?.end();
        break;
      case "resize":
        // A dimension of zero is ignored (RFC 4254, 6.2): clients without a window send zero.
        if (frame.cols > 0 && frame.rows > 0) this.#child.resize(frame.cols, frame.rows);
        break;
      case "signal":
        this.#child.signalGroup(frame.number);
    }
  }
}
