/** Releases a permit of a gate. A second call does nothing. */
export type Leave = () => void;

/** A FIFO semaphore: it has a fixed number of permits and grants them in the order of the requests. */
export class Gate {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  /**
   * Resolves with a release function once a permit is free.
   *
   * @param limitMs time after which the permit is released automatically, not counting time in which this process was
   *   starved of CPU time (see `inTurns`); default: never
   * @param onLeft called once, when the permit is released
   */
  async enter(limitMs?: number, onLeft?: () => void): Promise<Leave> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let isHeld = true;
    const leave = (): void => {
      if (!isHeld) return;
      isHeld = false;
      cancel();
      onLeft?.();
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    };
    const cancel = limitMs === undefined ? (): void => undefined : inTurns(limitMs, leave);
    return leave;
  }
}

/** Number of timers into which a time limit is divided. */
const TURNS = 10;
/** How late a timer may be, as a share of its length, before this process counts as starved. */
const LATE = 0.5;

/**
 * Runs an action once the event loop has run without delay for `limitMs` in total: that time is divided among several
 * timers, and a timer that fires late does not count. Without this, a process that is starved of CPU time would
 * conclude that its peers are late, although it merely has not read their answers yet. Returns a function that cancels
 * the action.
 */
function inTurns(limitMs: number, action: () => void): () => void {
  const turnMs = limitMs / TURNS;
  let turns = 0;
  let timer: NodeJS.Timeout | undefined;
  const wait = (): void => {
    const dueMs = performance.now() + turnMs;
    timer = setTimeout(() => {
      if (performance.now() - dueMs <= turnMs * LATE) turns++;
      if (turns === TURNS) action();
      else wait();
    }, turnMs);
  };
  wait();
  return () => clearTimeout(timer);
}

/**
 * Limits the number of connections to agents that are being established. A handshake takes 4 to 6 ms of this thread. If
 * a thousand handshakes began at the same time, all of them would end seconds later, after their deadlines.
 */
export class Dials {
  readonly #gate = new Gate(DIALS);

  /**
   * Takes a permit for one attempt to connect. The permit expires after half a second, so that silent agents do not
   * block the others. It does not expire while this process is starved of CPU time: with even more concurrent attempts,
   * all of them would miss their deadlines. The caller must release it when the attempt has ended.
   */
  enter(onLeft?: () => void): Promise<Leave> {
    return this.#gate.enter(PLACE_MS, onLeft);
  }

  /** Makes one attempt to connect. First waits for a permit; the attempt's deadline counts from then on. */
  async run<Value>(attempt: () => Promise<Value>): Promise<Value> {
    const leave = await this.enter();
    try {
      return await attempt();
    } finally {
      leave();
    }
  }
}

/**
 * How many handshakes run at the same time. Eight take 40 ms of CPU time, which is 0.4 s if this process gets only a
 * tenth of a core.
 */
const DIALS = 8;
const PLACE_MS = 500;

/** Runs an action on each item in order, at most `atATime` of them concurrently. Rejects with the first error. */
export async function bounded<Item>(
  items: Iterable<Item>,
  atATime: number,
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const rest = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = rest.next(); next.done !== true; next = rest.next()) await action(next.value);
  };
  await Promise.all(Array.from({ length: atATime }, worker));
}
