import { getSystemErrorMap } from "node:util";
import type { GuestClient } from "../../client/index.ts";
import type { Owners } from "../../tar/index.ts";
import { type Host, printable } from "../cli/index.ts";

/** What a copy works with. */
export interface CopyContext {
  readonly client: GuestClient;
  readonly report: CopyReport;
  /** Has the archives on its standard input and output, and shows progress on standard error, if that is a terminal. */
  readonly host: Host;
  readonly options: CopyOptions;
}

/** How the command line has it copied. */
export interface CopyOptions {
  /** Make missing directories above the destination. */
  readonly makesParents: boolean;
  /** A link that is named as a source is copied as a link. */
  readonly copiesLinks: boolean;
  /** Files of this machine get the guest's modes whatever the umask. */
  readonly keepsModes: boolean;
  /** End at the first entry that fails. */
  readonly failFast: boolean;
  /** Patterns of entries to leave out. */
  readonly exclude: readonly (string | Buffer)[];
  /** Which owners entries get. */
  readonly owners: Owners;
  /** Names of one file stay names of one file. */
  readonly hardLinks: boolean;
  /** Copy what links lead to, in their place. */
  readonly followLinks: boolean;
  /** Leave what is there. */
  readonly keepExisting: boolean;
  /** Do not descend into other file systems. */
  readonly oneFileSystem: boolean;
}

/** What the copy of one source works with. */
export interface CopyParts extends CopyContext {
  readonly progress: Progress;
}

/** Why devices, sockets and FIFOs are skipped. */
export const NOT_COPIED = "neither a file, a directory nor a link";

/** The words for an errno of an entry, as of perror(3). */
export function errnoWords(errno: string): string {
  if (errno === "EOPNOTSUPP") return NOT_COPIED;
  if (errno === "ESTALE") return "changed while it was being copied (ESTALE)";
  for (const [name, words] of getSystemErrorMap().values()) if (name === errno) return `${words} (${errno})`;
  return errno;
}

/** Names that a person sees at a terminal: more would scroll the first away. */
const SHOWN = 20;
/** Names that are kept for programs: a sandbox may have failures without end. */
const KEPT = 1_000_000;

/** Counts of copied entries, and the ones that were left out, with reasons. */
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

  /** Something was left out. */
  get isPartial(): boolean {
    return this.#skippedCount > 0;
  }

  /** For programs: all that was left out. */
  get skipped(): readonly string[] {
    return this.#skipped;
  }

  /** Names an entry that is left out. */
  skip(name: string, reason: string): void {
    this.fail(`skipped ${name}: ${reason}`, `${name}: ${reason}`);
  }

  /** Says why a source is left out: at once, but at a terminal at the end, below the progress. */
  fail(line: string, forPrograms: string = line): void {
    this.#skippedCount += 1;
    if (this.#isForPrograms) {
      if (this.#skipped.length < KEPT) this.#skipped.push(forPrograms);
    } else if (!this.#stderr.isTTY) this.note(line);
    else if (this.#skipped.length < SHOWN) this.#skipped.push(line);
  }

  /** Entries that are left out as well, whose names the agent did not say. */
  skipUnnamed(count: number): void {
    if (count <= 0) return;
    this.fail(`skipped ${count} more, which the sandbox's agent does not name`);
    this.#skippedCount += count - 1;
  }

  /** Shows what was held back for a terminal. */
  show(): void {
    if (this.#isForPrograms || !this.#stderr.isTTY) return;
    for (const line of this.#skipped) this.note(line);
    const more = this.#skippedCount - this.#skipped.length;
    if (more > 0) this.note(`skipped ${more} more; --json, or 2> FILE, names all of them`);
  }

  /** A line for people. */
  note(line: string): void {
    if (!this.#isForPrograms) this.#stderr.write(`guestctl: ${printable(line)}\n`);
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
