import { type FileStep, FileSystemError } from "../../domain/index.ts";
import { failedWith } from "../../native/index.ts";

/**
 * libuv does file work on four threads. One is left to all others who need it (the user database of a command, the
 * credentials), so that a file system that hangs can stop the file calls but not the agent.
 */
const SHARE = 3;

/** The threads that file work may use: every operation waits for its turn. */
export class FileThreads {
  #free: number = SHARE;
  readonly #waiting: (() => void)[] = [];

  /** More than one operation is under way. */
  get busy(): boolean {
    return this.#free < SHARE - 1;
  }

  /** Runs one step; a failed system call becomes a FileSystemError. */
  async step<Value>(name: FileStep, operation: () => Promise<Value>): Promise<Value> {
    try {
      return await this.#run(operation);
    } catch (error) {
      const errno = failedWith(error);
      throw errno === undefined ? error : new FileSystemError(name, errno, error);
    }
  }

  /** For the end of something that failed already, or that nothing can be done about. Never rejects. */
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
