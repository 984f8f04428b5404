import { type MessagePort, Worker } from "node:worker_threads";
import { THREAD_MODULE } from "./entry-point.ts";
import type { EntryMessage, Job, Report } from "./jobs.ts";

/** Callbacks that inform the owner of a thread. */
export interface ThreadEvents {
  readonly onReport: (report: Report) => void;
  /** Called if the thread fails, or ends before it has finished its job. */
  readonly onFailure: (error: unknown) => void;
}

/**
 * A thread that reads or writes local files. A file system may not answer for a long time; in this case the thread
 * blocks neither the caller's event loop nor Node's thread pool. After its disposal, the thread does not keep the
 * process alive, even while a system call still blocks the thread.
 */
export class CopyThread implements Disposable {
  readonly #worker: Worker;
  #isDisposed = false;

  /** @param transferred the MessagePorts in the job, which must be transferred to the thread */
  constructor(job: Job, { onReport, onFailure }: ThreadEvents, transferred: readonly MessagePort[] = []) {
    // Options of this process, such as --import, are not for the thread.
    this.#worker = new Worker(THREAD_MODULE, {
      workerData: job,
      transferList: [...transferred],
      execArgv: [],
      name: "guest-agent copy",
    });
    this.#worker.on("message", onReport);
    this.#worker.on("error", onFailure);
    this.#worker.on("exit", () => {
      if (!this.#isDisposed) onFailure(new Error("the thread that reads and writes local files ended early"));
    });
  }

  send(message: EntryMessage, transferred: ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, transferred);
  }

  /** Lets this process exit while the thread is still running. The thread ends by itself soon. */
  release(): void {
    this.#worker.unref();
  }

  /** Ends the thread as soon as no system call blocks it. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#worker.unref();
    void this.#worker.terminate();
  }
}
