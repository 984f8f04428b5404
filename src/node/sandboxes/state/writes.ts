import { setTimeout as pause } from "node:timers/promises";

/**
 * How long a write is retried while other processes write, in milliseconds. Their transactions take far less, so if
 * this time is not enough, something else is wrong.
 */
const LIMIT_MS = 30_000;
/** The longest pause between two tries. Pauses are random to keep two processes from colliding repeatedly. */
const LONGEST_PAUSE_MS = 25;
/** SQLITE_BUSY (sqlite3.h). An extended error code, such as SQLITE_BUSY_SNAPSHOT, has this value in its low byte. */
const BUSY = 5;

/**
 * Serializes the writes of this process. SQLite would wait for other processes inside its call, which blocks the event
 * loop, so a write that finds the database locked is retried after a pause instead.
 */
export class Writes {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /**
   * Runs a transaction, at once if possible. Rejects with the transaction's error, which is SQLITE_BUSY after 30 s of
   * retries.
   */
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
