import type { Incoming, ActivityClock, ChildProcess } from "../domain/index.ts";
import type { CommandInput } from "./frames.ts";

/** Bytes of input that may wait for the command before its frames are no longer read. */
const QUEUE_BYTES = 256 * 1024;
/** What a waiting frame costs beside its bytes: single keys must not fill the memory. */
const FRAME_OVERHEAD_BYTES = 256;

/** Hands clients' frames to a command. Signals and sizes overtake input that it leaves unread, up to a bound. */
export class InputPump {
  readonly #child: ChildProcess;
  readonly #activity: ActivityClock;
  #queuedBytes = 0;
  /** The last input that waits for the command. */
  #written: Promise<void> | undefined;

  constructor(child: ChildProcess, activity: ActivityClock) {
    this.#child = child;
    this.#activity = activity;
  }

  /** Carries one client's frames, holding it back while too much waits, and then ends the input. */
  carry(frames: Incoming<CommandInput>, failed: (error: Error) => void): void {
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

  /** Too much input waits for the command: take no more frames until there is room. */
  get isFull(): boolean {
    return this.#queuedBytes > QUEUE_BYTES;
  }

  /** Resolves when the command has been given what waits now. */
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
        // A dimension of zero is ignored (RFC 4254, 6.2): a client without a window of its own sends it.
        if (frame.cols > 0 && frame.rows > 0) this.#child.resize(frame.cols, frame.rows);
        break;
      case "signal":
        this.#child.signalGroup(frame.number);
    }
  }
}
