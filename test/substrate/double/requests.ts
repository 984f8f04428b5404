import type { Hypeman } from "@onkernel/hypeman";

/** Key-value pairs of an instance, an image, a volume or a snapshot. */
export type Tags = Readonly<Record<string, string>>;

/** Entrypoint and arguments; what is absent or empty is the image's. */
export type Command = Pick<Hypeman.InstanceCreateParams, "entrypoint" | "cmd">;

const SIZE = /^\s*(\d+(?:\.\d+)?)\s*(?:B|([KMGT])i?B?)?\s*$/i;
const UNITS = ["", "K", "M", "G", "T"];

/** The tags of a query such as `tags[team]=a&tags[env]=b`: to set, or to look for. */
export function queryTags(query: URLSearchParams): Tags {
  const found = [...query].flatMap(([key, value]) => (/^tags\[.*\]$/.test(key) ? [[key.slice(5, -1), value]] : []));
  return Object.fromEntries(found) as Tags;
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
