import { setTimeout as pause } from "node:timers/promises";

/** How long a write tries again while other processes write, in milliseconds. Their transactions are short. */
const LIMIT_MS = 30_000;
/** Longest pause between two tries. Random pauses keep two processes from colliding again and again. */
const LONGEST_PAUSE_MS = 25;
/** SQLITE_BUSY (sqlite3.h). Extended codes have it in their low byte. */
const BUSY = 5;

/**
 * Runs the writes of one process in their order. SQLite waits for another process inside its call, which blocks the
 * event loop. So no write waits there: one that finds the journal busy is tried again after a pause.
 */
export class Writes {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Runs a transaction at once if it can. Rejects with the transaction's error, which is SQLITE_BUSY after 30 s. */
  async run<Value>(transaction: () => Value): Promise<Value> {
    if (this.#waiting === 0) {
      try {
        return transaction();
      } catch (error) {
        if (!isBusy(error)) throw error;
      }
    }
    this.#waiting++;
    const turn = this.#last.then(() => retried(transaction)).finally(() => this.#waiting--);
    this.#last = turn.catch(() => undefined);
    return turn;
  }
}

/** Retries a transaction while another process has the database locked. */
export async function retried<Value>(transaction: () => Value): Promise<Value> {
  const untilMs = performance.now() + LIMIT_MS;
  for (;;) {
    try {
      return transaction();
    } catch (error) {
      if (!isBusy(error) || performance.now() >= untilMs) throw error;
    }
    await pause(Math.ceil(Math.random() * LONGEST_PAUSE_MS));
  }
}

function isBusy(error: unknown): boolean {
  const { errcode } = (error ?? {}) as { readonly errcode?: unknown };
  return typeof errcode === "number" && (errcode & 0xff) === BUSY;
}
