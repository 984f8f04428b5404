import type { AgentError } from "./errors.ts";
import type { Clock } from "./ports/system.ts";

/** Who stands still for less may not be made to give way: a slow or paused peer is no attack. */
const PATIENCE_MS = 60_000;

/** What an allowance is of. */
export interface AllowanceOptions {
  /** For all together. */
  readonly limit: number;
  /** For one owner. Default: the limit. */
  readonly ownerLimit?: number;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** What is told to whoever gets nothing, or loses what it has; says why, after "because ". */
  readonly refusal: (because: string) => AgentError;
}

/** One's part of an allowance. */
export interface Share {
  /** Has so much from now on, which is progress too; 0 gives everything back. Throws the refusal, and has as before. */
  set(amount: number): void;
  /** Says that it does not stand still. */
  progress(): void;
}

/**
 * Something of which there is so much for all: places, bytes. When it is used up, whoever has stood still for longest, and
 * for a minute at least, gives way; when nobody has, whoever asks is refused. While there is enough nobody is disturbed.
 */
export class Allowance {
  readonly #options: AllowanceOptions;
  /** In the order of their last progress, those that have something. */
  readonly #shares = new Set<Held>();
  readonly #ofOwners = new WeakMap<object, number>();
  #total = 0;

  constructor(options: AllowanceOptions) {
    this.#options = options;
  }

  /** A share of nothing yet. `giveWay` is called when it is taken away, at most once; it stays taken away. */
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

  /** Puts it behind all others. */
  #keep(share: Held, amount: number): void {
    this.#shares.delete(share);
    const { owner } = share;
    this.#total += amount - share.amount;
    this.#ofOwners.set(owner, this.#ofOwner(owner) + amount - share.amount);
    share.amount = amount;
    share.sinceMs = this.#options.clock.monotonicMs();
    if (amount > 0) this.#shares.add(share);
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

  /** From the one that has stood still for longest. Throws where that is not long. */
  #takeAway(asking: Held, from: (held: Held) => boolean): void {
    const { clock, refusal } = this.#options;
    const stillSinceMs = clock.monotonicMs() - PATIENCE_MS;
    for (const held of this.#shares) {
      if (held.sinceMs > stillSinceMs) break;
      if (held === asking || !from(held)) continue;
      held.isLost = true;
      this.#keep(held, 0);
      held.giveWay(refusal("this one stood still for longest and its place was needed"));
      return;
    }
    throw refusal("none has stood still for a minute");
  }
}

interface Held {
  readonly owner: object;
  readonly giveWay: (reason: AgentError) => void;
  amount: number;
  sinceMs: number;
  isLost: boolean;
}
