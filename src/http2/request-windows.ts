import type { Http2Limits } from "./limits.ts";

/** The flow-control windows that a connection gives its requests. */
export type WindowLimits = Pick<
  Http2Limits,
  "streamWindowBytes" | "largestStreamWindowBytes" | "smallestStreamWindowBytes" | "sharedWindowBytes"
>;

/**
 * Shares flow-control windows out among the large requests of a connection: one of them alone goes a fifth faster with a
 * large window, and many of them with large windows would fill the memory. HTTP/2 knows one initial window for all
 * streams of a connection, and a change of it changes those of the open ones too (RFC 9113, 6.9.2). Decision 0016.
 */
export class RequestWindows {
  readonly #limits: WindowLimits;
  readonly #announce: (windowBytes: number, acknowledged: () => void) => void;
  #requests = 0;
  #announcing = false;
  /** As last announced. */
  windowBytes: number;

  /** @param announce sends the initial window; to call back when the peer has acknowledged it */
  constructor(limits: WindowLimits, announce: (windowBytes: number, acknowledged: () => void) => void) {
    this.#limits = limits;
    this.#announce = announce;
    this.windowBytes = limits.streamWindowBytes;
  }

  /** A request turns out to be large. */
  add(): void {
    this.#requests++;
    this.#adjust();
  }

  /** A large request is over. */
  remove(): void {
    this.#requests--;
    this.#adjust();
  }

  /** One change at a time: a client that acknowledges none is sent no more. */
  #adjust(): void {
    if (this.#announcing || this.#requests === 0) return;
    const windowBytes = this.#wanted();
    if (windowBytes === this.windowBytes) return;
    this.#announcing = true;
    this.#announce(windowBytes, () => {
      this.#announcing = false;
      this.#adjust();
    });
    this.windowBytes = windowBytes;
  }

  /** Widened only where twice as many requests would have it too, so that it does not go to and fro. */
  #wanted(): number {
    const most = this.#share(this.#requests);
    const least = this.#share(2 * this.#requests);
    return Math.min(Math.max(this.windowBytes, least), most);
  }

  #share(requests: number): number {
    const { smallestStreamWindowBytes, largestStreamWindowBytes, sharedWindowBytes } = this.#limits;
    let windowBytes = largestStreamWindowBytes;
    while (windowBytes > smallestStreamWindowBytes && windowBytes * requests > sharedWindowBytes) windowBytes /= 2;
    return windowBytes;
  }
}
