import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Mutex } from "../../../src/agent/domain/index.ts";
import { ApiFailure, notFound } from "./failure.ts";

/** A thing's record, in its folder: mostly in the API's form. */
export const RECORD = "told.json";

/**
 * Things of one kind on the daemon's disk: a folder each, with a record that is replaced as a whole. A folder without a
 * record was left half-made by a daemon that was killed, and is removed when the records are next opened.
 */
export class Records<T extends { readonly id: string }> {
  readonly #folder: string;
  readonly #all = new Map<string, T>();
  readonly #turns = new Map<string, Mutex>();

  /** Opens the records of a folder, which is made where it is missing. */
  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    for (const id of readdirSync(folder)) {
      const record = this.#read(id);
      if (record === undefined) rmSync(join(folder, id), { recursive: true, force: true });
      else this.#all.set(id, record);
    }
  }

  #read(id: string): T | undefined {
    try {
      return JSON.parse(readFileSync(join(this.#folder, id, RECORD), "utf8")) as T;
    } catch {
      return undefined;
    }
  }

  /** Where a thing's files are. */
  folderOf(id: string): string {
    return join(this.#folder, id);
  }

  /** Makes the folder of a thing that has no record yet. */
  begin(id: string): string {
    mkdirSync(this.folderOf(id), { mode: 0o700 });
    return this.folderOf(id);
  }

  /** Adds a thing's record, or replaces it. */
  save(record: T): T {
    const file = join(this.folderOf(record.id), RECORD);
    writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
    renameSync(`${file}.new`, file);
    this.#all.set(record.id, record);
    return record;
  }

  /** Removes a thing with its files; the record first, so that half a folder is never taken for a thing. */
  remove(id: string): void {
    this.#all.delete(id);
    this.#turns.delete(id);
    rmSync(join(this.folderOf(id), RECORD), { force: true });
    rmSync(this.folderOf(id), { recursive: true, force: true });
  }

  get(id: string): T | undefined {
    return this.#all.get(id);
  }

  /** All records, in the order in which they were made. */
  all(): T[] {
    return [...this.#all.values()];
  }

  /** Runs an action on a thing once all earlier ones on it have ended, whether they failed or not. */
  alone<V>(id: string, action: () => Promise<V>): Promise<V> {
    const turn = this.#turns.get(id) ?? new Mutex();
    this.#turns.set(id, turn);
    return turn.run(action);
  }
}

/** The thing of an id, a name, or the beginning of an id (lib/ingress/manager.go:413-450). @throws ApiFailure */
export function found<T extends { readonly id: string; readonly name: string }>(
  records: Records<T>,
  reference: string,
): T {
  const all = records.all();
  const exact = records.get(reference) ?? all.find(({ name }) => name === reference);
  if (exact !== undefined) return exact;
  const [first, another] = reference === "" ? [] : all.filter(({ id }) => id.startsWith(reference));
  if (first === undefined) throw notFound();
  if (another !== undefined) throw new ApiFailure(409, "ambiguous", "multiple resources match, use full ID");
  return first;
}
