/** Gives back a place. A second call does nothing. */
export type Leave = () => void;

/** A number of places, given out in the order in which they are asked for. */
export class Gate {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  /**
   * Resolves once there is a place, with the function that gives it back.
   *
   * @param limitMs the place is given back by itself after that time, of which this process has had its share of the
   *   processor. Default: never
   * @param onLeft called once when it is given back
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

/** Turns of the event loop that a time limit takes at least. */
const TURNS = 10;

/**
 * Does something after that time, but not before the event loop has gone round so many times. A process that seldom
 * gets the processor would otherwise find that its peers are late, whose answers it has not read. Returns what cancels
 * it.
 */
function inTurns(limitMs: number, action: () => void): () => void {
  let turns = 0;
  let timer: NodeJS.Timeout | undefined;
  const turn = (): void => {
    if (turns++ === TURNS) action();
    else timer = setTimeout(turn, limitMs / TURNS);
  };
  turn();
  return () => clearTimeout(timer);
}

/**
 * Connections to agents that are being made. A handshake takes 4 to 6 ms of this thread, so a thousand that begin at
 * once all end seconds later, after their deadlines.
 */
export class Dials {
  readonly #gate = new Gate(DIALS);

  /** A place for one attempt to connect. A silent agent keeps it for half a second only: others wait for theirs. */
  enter(onLeft?: () => void): Promise<Leave> {
    return this.#gate.enter(PLACE_MS, onLeft);
  }

  /** Makes one attempt to connect, whose time begins when it has its place. */
  async run<Value>(attempt: () => Promise<Value>): Promise<Value> {
    const leave = await this.enter();
    try {
      return await attempt();
    } finally {
      leave();
    }
  }
}

/** Eight handshakes take 40 ms of a whole core, and 0.4 s of a tenth of one. */
const DIALS = 8;
const PLACE_MS = 500;

/** Does something with each item in their order, with at most so many at a time. Rejects with the first error. */
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
