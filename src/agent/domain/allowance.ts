import type { AgentError } from "./errors.ts";
import type { Clock } from "./ports/system.ts";

/** A call that reads, writes or walks, and holds a share meanwhile. */
export interface Caller {
  /** The call's connection, identified by the object itself. */
  readonly connection: object;
  /** Aborted when the call is over. */
  readonly signal: AbortSignal;
  /** Ends the call with this error, even if its client does not read. Aborts the signal. */
  failSoon(error: AgentError): void;
}

/** A slow or paused peer is no attack. */
const PATIENCE_MS = 60_000;

/** Options of an allowance. */
export interface AllowanceOptions {
  /** Of all owners together. */
  readonly limit: number;
  /** Of one owner. Default: the limit. */
  readonly ownerLimit?: number;
  /** Only a share without progress for this long may be taken away. Default: a minute. */
  readonly patienceMs?: number;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Makes the error for a refused or removed share. Gets the end of a sentence that begins with "because ". */
  readonly refusal: (because: string) => AgentError;
}

/** One holder's part of an allowance. */
export interface Share {
  /** Sets the amount that it holds, and counts as progress; 0 returns all. Throws the refusal, changing nothing. */
  set(amount: number): void;
  progress(): void;
}

/**
 * A shared limit, of places or bytes. When it is used up, the holder that has made no progress for longest, and for at
 * least the patience, loses its share. Without such a holder the new request is refused.
 */
export class Allowance {
  readonly #options: AllowanceOptions;
  /** Shares that hold something, in the order of their last progress. */
  readonly #shares = new Set<Held>();
  /** The last of them. */
  #latest: Held | undefined;
  readonly #ofOwners = new WeakMap<object, number>();
  #total = 0;

  constructor(options: AllowanceOptions) {
    this.#options = options;
  }

  /** A new share that holds nothing. Calls `giveWay` once if it is taken away; it then holds nothing for good. */
  share(owner: object, giveWay: (reason: AgentError) => void): Share {
    const share = { owner, giveWay, amount: 0, sinceMs: 0, isLost: false };
    return {
      set: (amount) => {
        if (!share.isLost && (amount > 0 || share.amount > 0)) this.#set(share, amount);
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

  /** Puts the share behind all others. */
  #keep(share: Held, amount: number): void {
    // Must be fast: a transfer sets its share for every piece.
    const isLatest = share === this.#latest && amount > 0 && share.amount > 0;
    if (!isLatest) this.#shares.delete(share);
    const { owner } = share;
    this.#total += amount - share.amount;
    this.#ofOwners.set(owner, this.#ofOwner(owner) + amount - share.amount);
    share.amount = amount;
    share.sinceMs = this.#options.clock.monotonicMs();
    if (isLatest || amount === 0) return;
    this.#shares.add(share);
    this.#latest = share;
  }

  #ofOwner(owner: object): number {
    return this.#ofOwners.get(owner) ?? 0;
  }

  /** Takes the shares that made no progress for longest, or none where all of them would not suffice: then it throws. */
  #makeRoom(asking: Held, more: number): void {
    const { limit, ownerLimit = limit, clock, patienceMs = PATIENCE_MS, refusal } = this.#options;
    const stillSinceMs = clock.monotonicMs() - patienceMs;
    let missingOfOwner = this.#ofOwner(asking.owner) + more - ownerLimit;
    let missing = this.#total + more - limit;
    const idle: Held[] = [];
    for (const held of this.#shares) {
      if (held.sinceMs > stillSinceMs || (missing <= 0 && missingOfOwner <= 0)) break;
      const isOfOwner = held.owner === asking.owner;
      if (held === asking || (!isOfOwner && missing <= 0)) continue;
      idle.push(held);
      missing -= held.amount;
      if (isOfOwner) missingOfOwner -= held.amount;
    }
    if (missing > 0 || missingOfOwner > 0) throw refusal("no other has been idle for a minute");
    for (const held of idle) {
      held.isLost = true;
      this.#keep(held, 0);
      held.giveWay(refusal("this one was idle for longest and its place was needed"));
    }
  }
}

interface Held {
  readonly owner: object;
  readonly giveWay: (reason: AgentError) => void;
  amount: number;
  sinceMs: number;
  isLost: boolean;
}
