import { Signal, type Signals } from "../domain/index.ts";
import { type Addon, type FdWatch, READABLE } from "../native/index.ts";

const EAGAIN = -11;
/** Bytes that the agent sends. The launcher tells them apart by the descriptor that comes with one. */
const EXIT_ANNOUNCED = 0;
const SESSION_CGROUP = 1;

/**
 * The socket to the launcher. The launcher writes the number of every signal that it receives as one byte, also of
 * real-time signals, which Node cannot receive. The agent writes one byte with the descriptor of the session's cgroup
 * at its start, and one before it leaves on purpose.
 */
export class LauncherChannel implements Signals {
  readonly #addon: Pick<Addon, "FdWatch" | "read" | "write" | "sendDescriptor">;
  readonly #fd: number;
  readonly #bytes: Uint8Array = new Uint8Array(64);
  #watch: FdWatch | undefined;

  constructor(addon: Pick<Addon, "FdWatch" | "read" | "write" | "sendDescriptor">, fd: number) {
    this.#addon = addon;
    this.#fd = fd;
  }

  /** A launcher that is gone can forward no signal to leave, so its end counts as SIGTERM. */
  listen(listener: (signal: number) => void): void {
    this.#watch = new this.#addon.FdWatch(this.#fd, () => this.#receive(listener));
    this.#watch.set(READABLE);
  }

  /** Announces that the process exits on purpose. Otherwise the launcher assumes a crash and ends what is left. */
  announceExit(): void {
    this.#addon.write(this.#fd, Uint8Array.of(EXIT_ANNOUNCED), 0, 1);
  }

  /** Sends the launcher the folder of the session's cgroup, which it thaws, ends and removes after a crash. */
  entrustSession(folder: number): void {
    this.#addon.sendDescriptor(this.#fd, SESSION_CGROUP, folder);
  }

  /** Stops listening. The descriptor stays open for `announceExit`. */
  close(): void {
    this.#watch?.set(0);
  }

  #receive(listener: (signal: number) => void): void {
    const length = this.#addon.read(this.#fd, this.#bytes, 0, this.#bytes.length);
    if (length === EAGAIN) return;
    if (length <= 0) {
      this.close();
      listener(Signal.TERM);
      return;
    }
    for (const signal of this.#bytes.subarray(0, length)) listener(signal);
  }
}
