import { Signal, type Signals } from "../domain/index.ts";
import { type Addon, type FdWatch, READABLE } from "../native/index.ts";

const EAGAIN = -11;
/** Messages to the launcher. SESSION_CGROUP is sent together with a descriptor. */
const EXIT_ANNOUNCED = 0;
const SESSION_CGROUP = 1;

/**
 * The socket to the launcher. The launcher sends the number of each signal that it receives as one byte, including
 * real-time signals, which Node cannot handle.
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

  /** Calls `listener` with each signal. EOF counts as SIGTERM: without a launcher no signal could stop the agent. */
  listen(listener: (signal: number) => void): void {
    this.#watch = new this.#addon.FdWatch(this.#fd, () => this.#receive(listener));
    this.#watch.set(READABLE);
  }

  /** Announces an intended exit. Without it, the launcher assumes a crash and kills the remaining processes. */
  announceExit(): void {
    this.#addon.write(this.#fd, Uint8Array.of(EXIT_ANNOUNCED), 0, 1);
  }

  /**
   * Passes the session's cgroup to the launcher. After a crash of the agent, the launcher thaws the cgroup, kills its
   * processes and removes it.
   */
  passSessionCgroup(directory: number): void {
    this.#addon.sendDescriptor(this.#fd, SESSION_CGROUP, directory);
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
