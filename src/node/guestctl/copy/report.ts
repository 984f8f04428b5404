import type { GuestClient } from "../../client/index.ts";
import type { Host } from "../cli/index.ts";

/** What a copy works with. */
export interface CopyContext {
  readonly client: GuestClient;
  readonly report: CopyReport;
  /** Has the archives on its standard input and output, and shows progress on standard error, if that is a terminal. */
  readonly host: Host;
  /** Make missing folders above the destination. */
  readonly makesParents: boolean;
}

/** What the copy of one source works with. */
export interface CopyParts extends CopyContext {
  readonly progress: Progress;
}

/** Why devices, sockets and FIFOs are skipped. */
export const NOT_COPIED = "neither a file, a folder nor a link";

/** Counts of copied and skipped entries. */
export class CopyReport {
  files = 0;
  bytes = 0;
  /** Skipped entries, with reasons. */
  readonly skipped: string[] = [];

  skip(name: string, reason: string): void {
    this.skipped.push(`${name}: ${reason}`);
  }
}

const FIRST_AFTER_MS = 500;
const EVERY_MS = 100;
const BAR_WIDTH = 24;
/** For terminals of unknown width. */
const USUAL_COLUMNS = 80;
const MIB = 1024 * 1024;

/** Shows progress on a terminal if a transfer takes long, until disposed of; nothing elsewhere. */
export class Progress implements Disposable {
  readonly #terminal: NodeJS.WriteStream | undefined;
  readonly #label: string;
  readonly #totalBytes: number | undefined;
  readonly #startedMs = performance.now();
  #bytes = 0;
  #shownMs = 0;

  /** @param totalBytes undefined: unknown */
  constructor(stream: NodeJS.WriteStream, label: string, totalBytes: number | undefined) {
    this.#terminal = stream.isTTY ? stream : undefined;
    this.#label = label;
    this.#totalBytes = totalBytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    const elapsedMs = performance.now() - this.#startedMs;
    if (this.#terminal === undefined || elapsedMs < FIRST_AFTER_MS || elapsedMs - this.#shownMs < EVERY_MS) return;
    this.#shownMs = elapsedMs;
    this.#terminal.write(`\r${this.#line(elapsedMs).slice(0, (this.#terminal.columns || USUAL_COLUMNS) - 1)}\u001b[K`);
  }

  /** Clears the line. */
  [Symbol.dispose](): void {
    if (this.#shownMs > 0) this.#terminal?.write("\r\u001b[K");
  }

  #line(elapsedMs: number): string {
    const rate = `${(this.#bytes / MIB / (elapsedMs / 1000)).toFixed(0)} MiB/s`;
    const moved = (this.#bytes / MIB).toFixed(1);
    if (this.#totalBytes === undefined) return `${moved} MiB  ${rate}  ${this.#label}`;
    const share = this.#totalBytes === 0 ? 1 : Math.min(1, this.#bytes / this.#totalBytes);
    const bar = "=".repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH);
    const percent = `${Math.floor(share * 100)}%`.padStart(4);
    return `${percent} [${bar}] ${moved}/${(this.#totalBytes / MIB).toFixed(1)} MiB  ${rate}  ${this.#label}`;
  }
}
