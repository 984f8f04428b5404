import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Mutex } from "../../../src/agent/domain/index.ts";
import { notFound } from "./failure.ts";

/** Things of one kind: a folder on the daemon's disk for each, and a record, mostly in the API's form. */
export class Records<T extends { readonly id: string }> {
  readonly #folder: string;
  readonly #all = new Map<string, T>();
  readonly #turns = new Map<string, Mutex>();

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
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
    this.#all.set(record.id, record);
    return record;
  }

  /** Removes a thing with its files. */
  remove(id: string): void {
    this.#all.delete(id);
    this.#turns.delete(id);
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
  const first = all.find(({ id }) => reference !== "" && id.startsWith(reference));
  if (first === undefined) throw notFound();
  return first;
}
