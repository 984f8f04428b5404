import type { ProcessEnd } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";

/** si_code of waitid(2). */
const CLD_EXITED = 1;
const CLD_DUMPED = 3;
/** Longest delay that a timer takes. */
const FOREVER_MS = 2 ** 31 - 1;

function endFrom(peeked: number): ProcessEnd {
  /* Another wait stole the status (ECHILD): it ended, nobody knows how. */
  if (peeked < 0) return { kind: "exited", code: 255 };
  const status = peeked & 0xff;
  const code = peeked >> 8;
  if (code === CLD_EXITED) return { kind: "exited", code: status };
  return { kind: "signaled", signal: status, coreDumped: code === CLD_DUMPED };
}

/** Tells when children have ended, without reaping them. Asks for exactly those it was told of, at every SIGCHLD. */
export class ChildEnds {
  readonly #addon: Addon;
  readonly #waiting: Map<number, (end: ProcessEnd) => void> = new Map();
  #keepAlive: NodeJS.Timeout | undefined;
  #listens = false;

  constructor(addon: Addon) {
    this.#addon = addon;
  }

  /** Resolves when the child has ended; it stays a zombie. Keeps the event loop alive until then. */
  of(pid: number): Promise<ProcessEnd> {
    return new Promise((resolve) => {
      this.#waiting.set(pid, resolve);
      if (this.#waiting.size === 1) this.#listen();
      /* It may have ended before anybody listened. */
      this.#check(pid, resolve);
    });
  }

  readonly #checkAll = (): void => {
    for (const [pid, resolve] of this.#waiting) this.#check(pid, resolve);
  };

  #check(pid: number, resolve: (end: ProcessEnd) => void): void {
    const peeked = this.#addon.peekEnd(pid);
    if (peeked === 0) return;
    this.#waiting.delete(pid);
    if (this.#waiting.size === 0) clearInterval(this.#keepAlive);
    resolve(endFrom(peeked));
  }

  /** The handler stays: to set it up for each command took longer than to ask for its end. */
  #listen(): void {
    if (!this.#listens) process.on("SIGCHLD", this.#checkAll);
    this.#listens = true;
    this.#keepAlive = setInterval(this.#checkAll, FOREVER_MS);
  }
}
