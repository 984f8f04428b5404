import { getSystemErrorMap } from "node:util";
import type { GuestClient } from "../../client/index.ts";
import type { Owners } from "../../tar/index.ts";
import { type Host, LONG_MS, printable, sizeWords } from "../cli/index.ts";

/** What the copies of all sources of one `guestctl cp` share. */
export interface CopyContext {
  readonly client: GuestClient;
  readonly report: CopyReport;
  /**
   * The process that guestctl runs in. Its standard input or output may carry a tar archive; progress is shown on its
   * standard error if that is a terminal.
   */
  readonly host: Host;
  readonly options: CopyOptions;
}

/** Options of a copy, from the command line. */
export interface CopyOptions {
  /** Create missing directories above the destination. */
  readonly makesParents: boolean;
  /** If a source is a symlink, copy the link and not its target. */
  readonly copiesLinks: boolean;
  /** Give local files the modes that they have in the guest, regardless of the umask. */
  readonly keepsModes: boolean;
  /** End the copy at the first entry that fails. */
  readonly failFast: boolean;
  /** Patterns of entries to skip. */
  readonly exclude: readonly (string | Buffer)[];
  /** Which owners the copied entries get. */
  readonly owners: Owners;
  /** Preserve hard links: if several names in the source belong to one file, they also belong to one file in the copy. */
  readonly hardLinks: boolean;
  /** Copy the targets of symlinks instead of the links. */
  readonly followLinks: boolean;
  /** Do not replace existing files. */
  readonly keepExisting: boolean;
  /** Do not descend into other file systems. */
  readonly oneFileSystem: boolean;
  /** Show no progress. */
  readonly isQuiet: boolean;
}

/** What the copy of one source needs: what all sources share, and the progress line. */
export interface CopyParts extends CopyContext {
  readonly progress: Progress;
}

/** Why devices, sockets and FIFOs are skipped. */
export const NOT_COPIED = "neither a file, a directory nor a link";

/** Describes an errno, as perror(3) does. */
export function errnoWords(errno: string): string {
  if (errno === "EOPNOTSUPP") return NOT_COPIED;
  if (errno === "ESTALE") return "changed while it was being copied (ESTALE)";
  for (const [name, words] of getSystemErrorMap().values()) if (name === errno) return `${words} (${errno})`;
  return errno;
}

/** Limit on the skipped names that are shown on a terminal. With more names, the first ones scroll out of view. */
const SHOWN = 20;
/** Limit on the skipped names that are kept for JSON output, because a sandbox may report failures without end. */
const KEPT = 1_000_000;

/** Counts copied entries, and collects the skipped ones with their reasons. */
export class CopyReport {
  files = 0;
  bytes = 0;
  #skippedCount = 0;
  readonly #skipped: string[] = [];
  readonly #stderr: NodeJS.WriteStream;
  readonly #isForPrograms: boolean;

  constructor(stderr: NodeJS.WriteStream, isForPrograms: boolean) {
    this.#stderr = stderr;
    this.#isForPrograms = isForPrograms;
  }

  get isPartial(): boolean {
    return this.#skippedCount > 0;
  }

  /** The skipped entries, for JSON output. */
  get skipped(): readonly string[] {
    return this.#skipped;
  }

  /** Reports a skipped entry. */
  skip(name: string, reason: string): void {
    this.fail(`skipped ${name}: ${reason}`, `${name}: ${reason}`);
  }

  /**
   * Reports why an entry was skipped. With JSON output, the reason becomes a part of the result. Otherwise it is
   * printed: on a terminal after the end of the progress line, elsewhere immediately.
   */
  fail(line: string, forPrograms: string = line): void {
    this.#skippedCount += 1;
    if (this.#isForPrograms) {
      if (this.#skipped.length < KEPT) this.#skipped.push(forPrograms);
    } else if (!this.#stderr.isTTY) this.note(line);
    else if (this.#skipped.length < SHOWN) this.#skipped.push(line);
  }

  /** Counts skipped entries whose names the agent does not report. */
  skipUnnamed(count: number): void {
    if (count <= 0) return;
    this.fail(`skipped ${count} more, whose names the sandbox's agent did not send`);
    this.#skippedCount += count - 1;
  }

  /** On a terminal, prints the lines about skipped entries, which were held back while progress was shown. */
  show(): void {
    if (this.#isForPrograms || !this.#stderr.isTTY) return;
    for (const line of this.#skipped) this.note(line);
    const more = this.#skippedCount - this.#skipped.length;
    if (more > 0) this.note(`skipped ${more} more; use --json or 2> FILE to list all of them`);
  }

  /** At a terminal, prints how much a long copy has copied, and how long the copy took. */
  done(durationMs: number): void {
    if (!this.#stderr.isTTY || durationMs < LONG_MS || this.files === 0) return;
    const files = `${this.files} file${this.files === 1 ? "" : "s"}`;
    this.note(`copied ${files}, ${sizeWords(this.bytes)}, in ${(durationMs / 1_000).toFixed(1)} s`);
  }

  /** Writes a line to standard error, unless the output is JSON. */
  note(line: string): void {
    if (!this.#isForPrograms) this.#stderr.write(`guestctl: ${printable(line)}\n`);
  }
}

/** Delay before anything is shown, so that a short copy shows nothing. */
const FIRST_AFTER_MS = 500;
/**
 * Interval at which the progress line is redrawn, even while nothing is transferred, because it shows the elapsed
 * seconds.
 */
const EVERY_MS = 250;
const BAR_WIDTH = 24;
/** Assumed width of a terminal that does not report it. */
const USUAL_COLUMNS = 80;
const MIB = 1024 * 1024;

/** Shows the progress of a long transfer on a terminal until disposed of. Without a terminal it shows nothing. */
export class Progress implements Disposable {
  readonly #label: string;
  readonly #totalBytes: number | undefined;
  readonly #startedMs = performance.now();
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #terminal: NodeJS.WriteStream;
  #bytes = 0;
  #isShown = false;

  /** @param totalBytes size of the whole copy; undefined if it is not known */
  constructor({ host, options }: CopyContext, label: string, totalBytes: number | undefined) {
    this.#terminal = host.stderr;
    this.#label = printable(label);
    this.#totalBytes = totalBytes;
    if (host.stderr.isTTY && !options.isQuiet) this.#timer = setInterval(() => this.#draw(), EVERY_MS).unref();
  }

  add(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Clears the progress line. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    if (this.#isShown) this.#terminal.write("\r\u001b[K");
  }

  #draw(): void {
    const elapsedMs = performance.now() - this.#startedMs;
    if (elapsedMs < FIRST_AFTER_MS) return;
    this.#isShown = true;
    this.#terminal.write(`\r${this.#line(elapsedMs).slice(0, (this.#terminal.columns || USUAL_COLUMNS) - 1)}\u001b[K`);
  }

  #line(elapsedMs: number): string {
    const seconds = `${Math.floor(elapsedMs / 1_000)} s`;
    const rate = `${(this.#bytes / MIB / (elapsedMs / 1000)).toFixed(0)} MiB/s`;
    const moved = (this.#bytes / MIB).toFixed(1);
    if (this.#totalBytes === undefined) return `${moved} MiB  ${rate}  ${seconds}  ${this.#label}`;
    const share = this.#totalBytes === 0 ? 1 : Math.min(1, this.#bytes / this.#totalBytes);
    const bar = "=".repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH);
    const percent = `${Math.floor(share * 100)}%`.padStart(4);
    const total = (this.#totalBytes / MIB).toFixed(1);
    return `${percent} [${bar}] ${moved}/${total} MiB  ${rate}  ${seconds}  ${this.#label}`;
  }
}
