import type { AgentError } from "./errors.ts";
import type { Clock, Timers } from "./ports/system.ts";

/** A call that reads, writes or walks, and holds a share meanwhile. */
export interface Caller {
  /** The call's connection, identified by the object itself. */
  readonly connection: object;
  /** Aborted when the call is over. */
  readonly signal: AbortSignal;
  /** Ends the call with this error, even if its client does not read. Aborts the signal. */
  giveUp(error: AgentError): void;
}

/** Only a share without progress for this long may be taken away: a slow or paused peer is no attack. */
const PATIENCE_MS = 60_000;
/** How often it is looked at whether one has stood still for so long, while others wait. */
const LOOK_MS = 1_000;

/** Options of an allowance. */
export interface AllowanceOptions {
  /** Of all owners together. */
  readonly limit: number;
  /** Of one owner. Default: the limit. */
  readonly ownerLimit?: number;
  /** For shares that wait (`Share.reach`). */
  readonly timers?: Timers;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Makes the error for a refused or removed share. Gets the end of a sentence that begins with "because ". */
  readonly refusal: (because: string) => AgentError;
}

/** One holder's part of an allowance. */
export interface Share {
  /** Sets the amount that it holds, and counts as progress; 0 returns all. Throws the refusal, changing nothing. */
  set(amount: number): void;
  /**
   * Calls `reached` once it holds that amount, which is asked for whenever there may be room: at once where nobody waits, else
   * in the order of asking. Who has stood still for a minute gives way to one that waits. Who waits for a minute in which
   * nobody gets anything is refused by its `giveWay`. The function that it returns ends the wait.
   */
  reach(amount: () => number, reached: () => void): () => void;
  progress(): void;
  /** More than three quarters of the limit are in use. */
  readonly isScarce: boolean;
}

/**
 * A shared limit, of places or bytes. When it is used up, the holder without progress for longest loses its share, if
 * that is at least a minute; else the new request is refused. Nothing happens before that.
 */
export class Allowance {
  readonly #options: AllowanceOptions;
  /** Shares that hold something, in the order of their last progress. */
  readonly #shares = new Set<Held>();
  /** The last of them. */
  #latest: Held | undefined;
  readonly #ofOwners = new WeakMap<object, number>();
  #total = 0;
  /** Those that wait for more, in the order of asking. */
  readonly #waiting = new Map<Held, Wait>();
  /** When the last of them got what it waited for. */
  #reachedAtMs = 0;
  #looks = false;

  constructor(options: AllowanceOptions) {
    this.#options = options;
  }

  /** A new share that holds nothing. Calls `giveWay` once if it is taken away; it then holds nothing for good. */
  share(owner: object, giveWay: (reason: AgentError) => void): Share {
    const share = { owner, giveWay, amount: 0, sinceMs: 0, isLost: false };
    const isScarce = (): boolean => this.#total > this.#options.limit * 0.75;
    return {
      get isScarce() {
        return isScarce();
      },
      set: (amount) => {
        if (!share.isLost && (amount > 0 || share.amount > 0)) this.#set(share, amount);
      },
      reach: (amount, reached) => {
        const wait = { amount, reached, sinceMs: this.#options.clock.monotonicMs() };
        if (!share.isLost) this.#waiting.set(share, wait);
        this.#serve();
        this.#lookLater();
        return () => {
          if (this.#waiting.get(share) !== wait) return;
          this.#waiting.delete(share);
          this.#serve();
        };
      },
      progress: () => {
        if (share.amount > 0) this.#keep(share, share.amount);
      },
    };
  }

  #set(share: Held, amount: number): void {
    if (amount > share.amount) this.#makeRoom(share, amount - share.amount);
    this.#keep(share, amount);
  }

  /** Puts it behind all others. */
  #keep(share: Held, amount: number): void {
    // Must be fast: a transfer sets its share for every piece.
    const isLatest = share === this.#latest && amount > 0 && share.amount > 0;
    if (!isLatest) this.#shares.delete(share);
    const { owner } = share;
    const more = amount - share.amount;
    this.#total += more;
    this.#ofOwners.set(owner, this.#ofOwner(owner) + more);
    share.amount = amount;
    share.sinceMs = this.#options.clock.monotonicMs();
    if (!isLatest && amount > 0) {
      this.#shares.add(share);
      this.#latest = share;
    }
    if (more < 0) this.#serve();
  }

  /** Gives those that wait what they wait for, up to the first for which there is no room. */
  #serve(): void {
    for (const [share, wait] of this.#waiting) {
      const amount = wait.amount();
      if (this.#total - share.amount + amount > this.#options.limit) return;
      this.#waiting.delete(share);
      this.#reachedAtMs = this.#options.clock.monotonicMs();
      this.#keep(share, amount);
      wait.reached();
    }
  }

  #lookLater(): void {
    if (this.#looks || this.#waiting.size === 0) return;
    this.#looks = true;
    this.#options.timers?.after(LOOK_MS, () => {
      this.#looks = false;
      this.#look();
      this.#lookLater();
    });
  }

  /** Makes room for those that wait, by whoever has stood still for a minute; refuses the first, if none has and it waits as long. */
  #look(): void {
    const { clock, refusal } = this.#options;
    const stillSinceMs = clock.monotonicMs() - PATIENCE_MS;
    for (const [share, { sinceMs }] of this.#waiting) {
      while (this.#waiting.has(share)) {
        const still = this.#stillest(share, () => true);
        if (still !== undefined) this.#lose(still, refusal(STOOD_STILL));
        else if (Math.max(this.#reachedAtMs, sinceMs) > stillSinceMs) return;
        else this.#lose(share, refusal("nobody made room for a minute"));
      }
    }
  }

  #ofOwner(owner: object): number {
    return this.#ofOwners.get(owner) ?? 0;
  }

  #makeRoom(asking: Held, more: number): void {
    const { limit, ownerLimit = limit } = this.#options;
    const { owner } = asking;
    while (this.#ofOwner(owner) + more > ownerLimit) this.#takeAway(asking, (held) => held.owner === owner);
    while (this.#total + more > limit) this.#takeAway(asking, () => true);
  }

  /** Takes the share that made no progress for longest. Throws the refusal if that was less than a minute. */
  #takeAway(asking: Held, from: (held: Held) => boolean): void {
    const { refusal } = this.#options;
    const still = this.#stillest(asking, from);
    if (still === undefined) throw refusal("none has stood still for a minute");
    this.#lose(still, refusal(STOOD_STILL));
  }

  /** The share that made no progress for longest, if that is at least a minute. One that waits is no such. */
  #stillest(asking: Held, from: (held: Held) => boolean): Held | undefined {
    const stillSinceMs = this.#options.clock.monotonicMs() - PATIENCE_MS;
    for (const held of this.#shares) {
      if (held.sinceMs > stillSinceMs) return undefined;
      if (held !== asking && !this.#waiting.has(held) && from(held)) return held;
    }
    return undefined;
  }

  #lose(share: Held, reason: AgentError): void {
    share.isLost = true;
    this.#waiting.delete(share);
    this.#keep(share, 0);
    share.giveWay(reason);
    this.#serve();
  }
}

const STOOD_STILL = "this one stood still for longest and its place was needed";

/** What a share waits for. */
interface Wait {
  readonly amount: () => number;
  readonly reached: () => void;
  readonly sinceMs: number;
}

interface Held {
  readonly owner: object;
  readonly giveWay: (reason: AgentError) => void;
  amount: number;
  sinceMs: number;
  isLost: boolean;
}
