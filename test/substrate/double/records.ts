import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Hypeman } from "@onkernel/hypeman";
import { Mutex } from "../../../src/agent/domain/index.ts";
import { notFound } from "./failure.ts";

/** Things of one kind: a directory on the daemon's disk for each, and a record, mostly in the API's form. */
export class Records<T extends { readonly id: string }> {
  readonly #directory: string;
  readonly #all = new Map<string, T>();
  readonly #turns = new Map<string, Mutex>();

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** Where a thing's files are. */
  directoryOf(id: string): string {
    return join(this.#directory, id);
  }

  /** Makes the directory of a thing that has no record yet. */
  begin(id: string): string {
    mkdirSync(this.directoryOf(id), { mode: 0o700 });
    return this.directoryOf(id);
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
    rmSync(this.directoryOf(id), { recursive: true, force: true });
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

/** The thing of an id or a name (lib/ingress/manager.go:413-450). @throws ApiFailure */
export function found<T extends { readonly id: string; readonly name: string }>(
  records: Records<T>,
  reference: string,
): T {
  const known = records.get(reference) ?? records.all().find(({ name }) => name === reference);
  if (known === undefined) throw notFound();
  return known;
}

/** Key-value pairs of an instance, an image, a volume or a snapshot. */
export type Tags = Readonly<Record<string, string>>;

/** Entrypoint and arguments; what is absent or empty is the image's. */
export type Command = Pick<Hypeman.InstanceCreateParams, "entrypoint" | "cmd">;

const SIZE = /^\s*(\d+(?:\.\d+)?)\s*(?:B|([KMGT])i?B?)?\s*$/i;
const UNITS = ["", "K", "M", "G", "T"];

/** The tags of a query such as `tags[team]=a&tags[env]=b`: to set, or to look for. */
export function queryTags(query: URLSearchParams): Tags {
  const pairs = [...query].flatMap(([key, value]) => (/^tags\[.*\]$/.test(key) ? [[key.slice(5, -1), value]] : []));
  return Object.fromEntries(pairs) as Tags;
}

/** Whether something has all of the wanted tags. */
export function hasTags(has: Tags = {}, wanted: Tags = {}): boolean {
  return Object.entries(wanted).every(([key, value]) => has[key] === value);
}

/** A size such as "512MB", in bytes. */
export function bytesOf(value: string): number {
  const [, number, unit = ""] = SIZE.exec(value) ?? [];
  return Math.ceil(Number(number) * 1024 ** UNITS.indexOf(unit.toUpperCase()));
}

/** As "1.0 GB". */
export function sizeText(bytes: number): string {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${UNITS[power]}B`;
}

/** The substrate mounts nothing at or below these. */
const RESERVED = "bin boot dev etc lib lib64 proc root run sbin sys tmp usr var".split(" ").map((name) => `/${name}`);

/** Whether a volume can be mounted at a path. */
export function isMountable(path: string): boolean {
  return path.startsWith("/") && !RESERVED.some((each) => path === each || path.startsWith(`${each}/`));
}
