import type { AgentError } from "./errors.ts";
import type { Clock } from "./ports/system.ts";

/** A call that holds a share of an allowance while it reads, writes or walks a directory tree. */
export interface Caller {
  /** The call's connection. Calls with the same object count as calls of the same connection. */
  readonly connection: object;
  /** This signal is aborted when the call has ended. */
  readonly signal: AbortSignal;
  /**
   * Ends the call with this error, and aborts the call's signal. If the client does not read the error, the call ends
   * nevertheless, after a second.
   */
  failWithin1s(error: AgentError): void;
}

/** A share that has been idle for this long may be evicted. Shorter pauses are normal for a slow or suspended peer. */
const PATIENCE_MS = 60_000;

export interface AllowanceOptions {
  /** Limit for all owners together. */
  readonly limit: number;
  /** Limit for one owner. Default: the same as `limit`. */
  readonly ownerLimit?: number;
  /** A share may be evicted only after it has made no progress for this time. Default: a minute. */
  readonly patienceMs?: number;
  readonly clock: Pick<Clock, "monotonicMs">;
  /**
   * Creates the error for a share that is refused or evicted. `because` is the reason as a clause, such as "no other
   * call has been idle for a minute".
   */
  readonly refusal: (because: string) => AgentError;
}

/**
 * The part of an allowance that one holder, such as a call, has taken. A call of `set()` or `progress()` shows that the
 * holder is not idle.
 */
export interface Share {
  /**
   * Sets the amount, such as the number of bytes that a call has in memory. 0 returns everything. If the amount does
   * not fit, changes nothing and throws the error that the option `refusal` creates.
   */
  set(amount: number): void;
  progress(): void;
}

/**
 * A shared limit for slots or bytes. To make room for a request, evicts shares that have been idle for `patienceMs`,
 * the longest idle first. If that does not free enough, refuses the request.
 */
export class Allowance {
  readonly #options: AllowanceOptions;
  /** The shares whose amount is not 0, ordered by the time for which they have been idle, the longest first. */
  readonly #shares = new Set<HeldShare>();
  #latest: HeldShare | undefined;
  readonly #ofOwners = new WeakMap<object, number>();
  #total = 0;

  constructor(options: AllowanceOptions) {
    this.#options = options;
  }

  /** Creates an empty share. If the share is evicted, calls `onEvict` once. The share then stays empty. */
  share(owner: object, onEvict: (reason: AgentError) => void): Share {
    const share = { owner, onEvict, amount: 0, sinceMs: 0, isEvicted: false };
    return {
      set: (amount) => {
        if (!share.isEvicted && (amount > 0 || share.amount > 0)) this.#set(share, amount);
      },
      progress: () => {
        if (share.amount > 0) this.#update(share, share.amount);
      },
    };
  }

  #set(share: HeldShare, amount: number): void {
    if (amount > share.amount) this.#makeRoom(share, amount - share.amount);
    this.#update(share, amount);
  }

  /** Sets the amount of a share and moves the share to the end of `#shares`, because the share is not idle now. */
  #update(share: HeldShare, amount: number): void {
    // This method must be fast, because a transfer sets its share for each chunk.
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

  /**
   * Evicts idle shares, the longest idle first, until there is room for `more`. If even evicting all idle shares is not
   * enough, evicts none and throws.
   */
  #makeRoom(requester: HeldShare, more: number): void {
    const { limit, ownerLimit = limit, clock, patienceMs = PATIENCE_MS, refusal } = this.#options;
    const stillSinceMs = clock.monotonicMs() - patienceMs;
    let missingOfOwner = this.#ofOwner(requester.owner) + more - ownerLimit;
    let missing = this.#total + more - limit;
    const idle: HeldShare[] = [];
    for (const held of this.#shares) {
      if (held.sinceMs > stillSinceMs || (missing <= 0 && missingOfOwner <= 0)) break;
      const isOfOwner = held.owner === requester.owner;
      if (held === requester || (!isOfOwner && missing <= 0)) continue;
      idle.push(held);
      missing -= held.amount;
      if (isOfOwner) missingOfOwner -= held.amount;
    }
    if (missing > 0 || missingOfOwner > 0)
      throw refusal("no other call has been idle for a minute, so none was ended to make room");
    for (const held of idle) {
      held.isEvicted = true;
      this.#update(held, 0);
      held.onEvict(refusal("this call was idle for the longest time and was ended to make room for another call"));
    }
  }
}

interface HeldShare {
  readonly owner: object;
  readonly onEvict: (reason: AgentError) => void;
  amount: number;
  sinceMs: number;
  isEvicted: boolean;
}
