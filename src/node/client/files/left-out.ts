import { GuestError } from "../errors/errors.ts";
import type { LeftEntry } from "./tree-entry.ts";

/** Limit on the entries that the error message names. */
const NAMED = 3;
/**
 * Limit on entries that a copy leaves out. The copy fails at this limit, because all names of such entries are kept in
 * memory.
 */
const LIMIT = 1_000_000;
/** The errno that is reported for entries that a copy does not support: devices, FIFOs and sockets. */
const UNSUPPORTED = "EOPNOTSUPP";

/** Collects the entries that a directory copy leaves out. Reports each entry once, even if the copy starts over. */
export class LeftOut {
  readonly #onFailure: ((failure: LeftEntry) => void) | undefined;
  readonly #names = new Set<string>();
  readonly #skipped: string[] = [];
  readonly #first: string[] = [];
  #failed = 0;
  #unnamed = 0;

  constructor(onFailure: ((failure: LeftEntry) => void) | undefined) {
    this.#onFailure = onFailure;
  }

  /** Names of devices, FIFOs and sockets, which do not count as failures. */
  get skipped(): readonly string[] {
    return this.#skipped;
  }

  /** Names of all entries that were left out, decoded as latin1, which keeps every byte. */
  get names(): ReadonlySet<string> {
    return this.#names;
  }

  has(rawName: Buffer): boolean {
    return this.#names.size > 0 && this.#names.has(rawName.toString("latin1"));
  }

  add({ rawName, errno, local }: Pick<LeftEntry, "rawName" | "errno" | "local">): void {
    const key = rawName.toString("latin1");
    if (this.#names.has(key)) return;
    // The number of names must be limited, because a hostile sandbox may report failures without end.
    if (this.#names.size >= LIMIT) throw this.#incomplete({ files: 0, bytes: 0 });
    this.#names.add(key);
    const name = rawName.toString();
    if (errno === UNSUPPORTED) this.#skipped.push(name);
    else {
      this.#failed += 1;
      if (this.#first.length < NAMED) this.#first.push(`${name === "" ? "." : name}: ${errno}`);
    }
    this.#onFailure?.({ name, rawName, errno, ...(local && { local }) });
  }

  /** Counts further failed entries. Their names are not known, because an older agent names only the first 100. */
  addUnnamed(count: number): void {
    this.#failed += Math.max(0, count);
    this.#unnamed += Math.max(0, count);
  }

  /** Throws GuestError if any entry has failed. The error's metadata has the numbers of copied and failed entries. */
  check(copied: { readonly files: number; readonly bytes: number } = { files: 0, bytes: 0 }): void {
    if (this.#failed > 0) throw this.#incomplete(copied);
  }

  #incomplete({ files, bytes }: { readonly files: number; readonly bytes: number }): GuestError {
    const more = this.#failed > this.#first.length ? `; and ${this.#failed - this.#first.length} more` : "";
    const entries = this.#failed === 1 ? "1 entry" : `${this.#failed} entries`;
    const message = `${entries} could not be copied, all others were: ${this.#first.join("; ")}${more}`;
    const counts = { failed: this.#failed, unnamed: this.#unnamed, files, bytes };
    const metadata = Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, String(count)]));
    return new GuestError({ status: "FAILED_PRECONDITION", code: "COPY_INCOMPLETE", message, metadata });
  }
}
