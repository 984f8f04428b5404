import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { ServerLimits } from "./limits.ts";

/** The flow-control windows that a connection gives its calls. */
export type WindowLimits = Pick<
  ServerLimits,
  "streamWindowBytes" | "largestStreamWindowBytes" | "smallestStreamWindowBytes" | "sharedWindowBytes"
>;

/**
 * Shares flow-control windows out among the large requests of a connection: one of them alone goes a fifth faster with a
 * large window, and many of them with large windows would fill the memory. HTTP/2 knows one initial window for all
 * streams of a connection, and a change of it changes those of the open ones too (RFC 9113, 6.9.2).
 */
export class StreamWindows {
  readonly #http2: ServerHttp2Session;
  readonly #limits: WindowLimits;
  #requests = 0;
  #windowBytes: number;
  #announcing = false;

  constructor(http2: ServerHttp2Session, limits: WindowLimits) {
    this.#http2 = http2;
    this.#limits = limits;
    this.#windowBytes = limits.streamWindowBytes;
  }

  /** Counts a stream with a large request until it closes. */
  add(stream: ServerHttp2Stream): void {
    this.#requests++;
    stream.once("close", () => {
      this.#requests--;
      this.#adjust();
    });
    this.#adjust();
  }

  /** One change at a time: a client that acknowledges none is sent no more. */
  #adjust(): void {
    if (this.#announcing || this.#requests === 0 || this.#http2.closed || this.#http2.destroyed) return;
    const windowBytes = this.#wanted();
    if (windowBytes === this.#windowBytes) return;
    this.#announcing = true;
    this.#windowBytes = windowBytes;
    this.#http2.settings({ initialWindowSize: windowBytes }, () => {
      this.#announcing = false;
      this.#adjust();
    });
  }

  /** Widened only where twice as many requests would have it too, so that it does not go to and fro. */
  #wanted(): number {
    const most = this.#share(this.#requests);
    const least = this.#share(2 * this.#requests);
    return Math.min(Math.max(this.#windowBytes, least), most);
  }

  #share(requests: number): number {
    const { smallestStreamWindowBytes, largestStreamWindowBytes, sharedWindowBytes } = this.#limits;
    let windowBytes = largestStreamWindowBytes;
    while (windowBytes > smallestStreamWindowBytes && windowBytes * requests > sharedWindowBytes) windowBytes /= 2;
    return windowBytes;
  }
}
