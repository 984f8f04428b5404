/** Releases a permit that `Gate.enter` has granted. A second call does nothing. */
export type Leave = () => void;

interface GateOptions {
  /** Number of permits. */
  readonly places: number;
  /** Number of permits while this process is starved of CPU time. Default: as many as otherwise (`places`). */
  readonly placesIfStarved?: number;
  /** Time after which a permit is released automatically, in milliseconds. Default: never. */
  readonly limitMs?: number;
  /**
   * How much of the time counts towards `limitMs` while this process is starved of CPU time, from 0 to 1. For example,
   * 0.25 means that a second counts as a quarter of a second. Default: 0, so that the time does not count.
   */
  readonly starvedShare?: number;
}

/** A FIFO semaphore: it has a fixed number of permits and grants them in the order of the requests. */
export class Gate {
  readonly #options: Required<GateOptions>;
  #held = 0;
  /** True if the most recent timer of a permit fired late. This process is then probably starved of CPU time. */
  #isStarved = false;
  readonly #waiting: (() => void)[] = [];

  constructor(options: GateOptions) {
    const { places, placesIfStarved = places, limitMs = Infinity, starvedShare = 0 } = options;
    this.#options = { places, placesIfStarved, limitMs, starvedShare };
  }

  /**
   * Waits until a permit is free, and takes it. Resolves with a function that releases the permit.
   *
   * @param onLeft called once, when the permit is released or expires
   */
  async enter(onLeft?: () => void): Promise<Leave> {
    if (this.#waiting.length === 0 && this.#held < this.#places) this.#held++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let isHeld = true;
    const leave = (): void => {
      if (!isHeld) return;
      isHeld = false;
      cancel();
      onLeft?.();
      this.#held--;
      this.#grant();
    };
    const { limitMs, starvedShare } = this.#options;
    const cancel = Number.isFinite(limitMs)
      ? inTurns({ limitMs, starvedShare }, leave, (isLate) => this.#noteTurn(isLate))
      : (): void => undefined;
    return leave;
  }

  get #places(): number {
    return this.#isStarved ? this.#options.placesIfStarved : this.#options.places;
  }

  #noteTurn(isLate: boolean): void {
    this.#isStarved = isLate;
    this.#grant();
  }

  #grant(): void {
    while (this.#waiting.length > 0 && this.#held < this.#places) {
      this.#held++;
      this.#waiting.shift()?.();
    }
  }
}

/** Number of timers that together measure one time limit, one after the other. */
const TURNS = 10;
/** A timer that is late by more than this share of its delay shows that this process is starved of CPU time. */
const LATE = 0.5;

/**
 * Runs an action after `limitMs`, or later if this process is starved of CPU time. Returns a function that cancels the
 * action.
 *
 * The time is divided among several timers. If a timer fires late, this process is starved, and may not have read
 * answers that have already arrived. So a late timer counts only as `starvedShare` of a timer. The share should be
 * above 0: otherwise, while this process is starved, silent peers would delay all others without end.
 *
 * @param onTurn called after each timer; `isLate` says whether the timer was late
 */
function inTurns(
  { limitMs, starvedShare }: { readonly limitMs: number; readonly starvedShare: number },
  action: () => void,
  onTurn: (isLate: boolean) => void,
): () => void {
  const turnMs = limitMs / TURNS;
  let turns = 0;
  let timer: NodeJS.Timeout | undefined;
  const wait = (): void => {
    const dueMs = performance.now() + turnMs;
    timer = setTimeout(() => {
      const isLate = performance.now() - dueMs > turnMs * LATE;
      turns += isLate ? starvedShare : 1;
      if (turns >= TURNS) action();
      else wait();
      onTurn(isLate);
    }, turnMs);
  };
  wait();
  return () => clearTimeout(timer);
}

/**
 * Spreads work over turns of the event loop. After a stall, the answers of many agents arrive together. If all the work
 * for these answers were done in one turn, the event loop would be blocked until its end.
 */
export class Turns {
  readonly #waiting: (() => void)[] = [];

  /** Resolves for one caller in each turn of the event loop, in the order of the calls. */
  async next(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === 1) setImmediate(() => this.#resolve());
    });
  }

  #resolve(): void {
    const [first] = this.#waiting;
    first?.();
    this.#waiting.shift();
    if (this.#waiting.length > 0) setImmediate(() => this.#resolve());
  }
}

/**
 * Limits the number of connections to agents that are being established. A handshake takes 4 to 6 ms of this thread. If
 * a thousand handshakes began at the same time, all of them would end seconds later, after their deadlines.
 */
export class Dials {
  readonly #gate = new Gate({ places: DIALS, limitMs: PERMIT_MS, starvedShare: PERMIT_STARVED_SHARE });

  /**
   * Takes a permit for one attempt to connect. The caller must release the permit when the attempt has ended. The
   * permit expires after half a second, so that silent agents do not block other attempts. While this process is
   * starved of CPU time, permits expire later, because with more concurrent attempts all of them would miss their
   * deadlines.
   */
  enter(onLeft?: () => void): Promise<Leave> {
    return this.#gate.enter(onLeft);
  }

  /** Waits for a permit, and then makes one attempt to connect. The attempt's deadline counts only from the permit on. */
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
const PERMIT_MS = 500;
/**
 * How much of the time counts towards PERMIT_MS while this process is starved (`starvedShare`). Under a CPU quota, a
 * starved process may run only once in each 100 ms. With this value, a permit then lasts for 4 s. In 4 s, a twentieth
 * of a core can make eight handshakes, even if each one takes 20 ms of CPU time because of frequent interruptions.
 */
const PERMIT_STARVED_SHARE = 0.25;

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
