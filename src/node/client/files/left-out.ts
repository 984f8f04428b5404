import { GuestError } from "../errors.ts";
import type { LeftEntry } from "./tree-entry.ts";

/** Entries that the message of the error names. */
const NAMED = 3;
/** More of them end the copy: each is remembered. */
const LIMIT = 1_000_000;
/** What a copy does not hold: devices, FIFOs and sockets. */
const UNSUPPORTED = "EOPNOTSUPP";

/** The entries that a copy of a directory leaves out, each of them once, however often the copy begins again. */
export class LeftOut {
  readonly #onFailure: ((failure: LeftEntry) => void) | undefined;
  /** Their names, of which each character is a byte. */
  readonly #names = new Set<string>();
  readonly #skipped: string[] = [];
  readonly #first: string[] = [];
  #failed = 0;
  #unnamed = 0;

  constructor(onFailure: ((failure: LeftEntry) => void) | undefined) {
    this.#onFailure = onFailure;
  }

  /** Devices, FIFOs and sockets: they are no failures. */
  get skipped(): readonly string[] {
    return this.#skipped;
  }

  has(rawName: Buffer): boolean {
    return this.#names.size > 0 && this.#names.has(rawName.toString("latin1"));
  }

  add({ rawName, errno, local }: Pick<LeftEntry, "rawName" | "errno" | "local">): void {
    const key = rawName.toString("latin1");
    if (this.#names.has(key)) return;
    // A sandbox may report failures without end.
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

  /** Entries that failed as well, without their names: an older agent names the first 100. */
  addUnnamed(count: number): void {
    this.#failed += Math.max(0, count);
    this.#unnamed += Math.max(0, count);
  }

  /** Throws GuestError where an entry failed; its metadata counts what was copied, and what was not. */
  check(copied: { readonly files: number; readonly bytes: number } = { files: 0, bytes: 0 }): void {
    if (this.#failed > 0) throw this.#incomplete(copied);
  }

  #incomplete({ files, bytes }: { readonly files: number; readonly bytes: number }): GuestError {
    const more = this.#failed > this.#first.length ? `; and ${this.#failed - this.#first.length} more` : "";
    const entries = this.#failed === 1 ? "1 entry was" : `${this.#failed} entries were`;
    const message = `${entries} not copied, everything else was: ${this.#first.join("; ")}${more}`;
    const counts = { failed: this.#failed, unnamed: this.#unnamed, files, bytes };
    const metadata = Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, String(count)]));
    return new GuestError({ status: "FAILED_PRECONDITION", code: "COPY_INCOMPLETE", message, metadata });
  }
}
