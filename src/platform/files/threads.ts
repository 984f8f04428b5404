import { type FileStep, FileSystemError } from "../../domain/index.ts";
import { failedWith } from "../../native/index.ts";

/**
 * libuv has four threads for file work. File calls use three; one stays free for other needs (the user database of a
 * command, the credentials), so that a file system that hangs can stop file calls but not the agent.
 */
const SHARE = 3;

/** The threads that file calls may use. An operation waits while all are busy. */
export class FileThreads {
  #free: number = SHARE;
  readonly #waiting: (() => void)[] = [];

  /** Whether more than one operation is running. */
  get busy(): boolean {
    return this.#free < SHARE - 1;
  }

  /** Runs one step. Turns a failed system call into a FileSystemError. */
  async step<Value>(name: FileStep, operation: () => Promise<Value>): Promise<Value> {
    try {
      return await this.#run(operation);
    } catch (error) {
      const errno = failedWith(error);
      throw errno === undefined ? error : new FileSystemError(name, errno, error);
    }
  }

  /** Runs a clean-up whose failure does not matter. Never rejects. */
  async attempt(operation: () => Promise<unknown>): Promise<void> {
    await this.#run(operation).catch(() => undefined);
  }

  async #run<Value>(operation: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await operation();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
