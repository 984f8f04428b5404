import { invalidRequest, SchemaFailure } from "./failure.ts";

/** Key-value pairs of an instance, a volume or a snapshot. */
export type Tags = Readonly<Record<string, string>>;

/** A request's body: a JSON object. As on the substrate, unknown fields are ignored. */
export type Body = Readonly<Record<string, unknown>>;

const SIZE = /^(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B?)?$/i;
const UNIT_BYTES: Readonly<Record<string, number>> = { B: 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };
const MOST_TAGS = 50;
const LONGEST_TAG = { key: 128, value: 256 };
/** A text field; undefined where it is absent. As all that follow: @throws SchemaFailure for a value of another type */
export function text(body: Body, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw new SchemaFailure(`/${field}`, "value must be a string");
  return value;
}

/** One of these texts; undefined where the field is absent. `path` names the field in the body. */
export function oneOf<T extends string>(
  body: Body,
  field: string,
  allowed: readonly T[],
  path = `/${field}`,
): T | undefined {
  const value = text(body, field);
  const found = allowed.find((each) => each === value);
  if (value === undefined || found !== undefined) return found;
  throw new SchemaFailure(path, `value is not one of the allowed values [${allowed.join(", ")}]`);
}

/** A field that has to be there. */
export function required<T>(value: T | undefined, field: string): T {
  if (value === undefined) throw new SchemaFailure(`/${field}`, `property "${field}" is missing`);
  return value;
}

/** A boolean; false where it is absent. */
export function flag(body: Body, field: string): boolean {
  const value = body[field] ?? false;
  if (typeof value !== "boolean") throw new SchemaFailure(`/${field}`, "value must be a boolean");
  return value;
}

/** A whole number from 1 on; undefined where it is absent. */
export function count(body: Body, field: string): number | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1)
    throw new SchemaFailure(`/${field}`, "number must be an integer of at least 1");
  return value;
}

/** A list of texts; undefined where it is absent. */
export function texts(body: Body, field: string): readonly string[] | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string"))
    throw new SchemaFailure(`/${field}`, "value must be an array of strings");
  return value;
}

/** An object; empty where it is absent. */
export function object(body: Body, field: string): Body {
  return asObject(body[field] ?? {}, field);
}

/** A list of objects; empty where it is absent. */
export function objects(body: Body, field: string): readonly Body[] {
  const value = body[field] ?? [];
  if (!Array.isArray(value)) throw new SchemaFailure(`/${field}`, "value must be an array");
  return value.map((each, n) => asObject(each, `${field}/${n}`));
}

function asObject(value: unknown, path: string): Body {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new SchemaFailure(`/${path}`, "value must be an object");
  return value as Body;
}

/** An object of texts, as environments and tags are; empty where it is absent. */
export function pairs(body: Body, field: string): Readonly<Record<string, string>> {
  const value = object(body, field);
  for (const [key, each] of Object.entries(value))
    if (typeof each !== "string") throw new SchemaFailure(`/${field}/${key}`, "value must be a string");
  return value as Readonly<Record<string, string>>;
}

/** The tags of a body, within the API's limits. */
export function tagsOf(body: Body): Tags {
  return limited(pairs(body, "tags"));
}

/** The tags of a query such as `tags[team]=a&tags[env]=b`: to set, or to look for. */
export function queryTags(query: URLSearchParams): Tags {
  const found: Record<string, string> = {};
  for (const [name, value] of query) {
    const [, key] = /^tags\[(.*)\]$/.exec(name) ?? [];
    if (key !== undefined) found[key] = value;
  }
  return limited(found);
}

function limited(tags: Tags): Tags {
  const all = Object.entries(tags);
  if (all.length > MOST_TAGS) throw invalidRequest(`tags: at most ${MOST_TAGS}, not ${all.length}`);
  for (const [key, value] of all) {
    if (key === "" || key.length > LONGEST_TAG.key)
      throw invalidRequest(`tags: a key has 1 to ${LONGEST_TAG.key} characters`);
    if (value.length > LONGEST_TAG.value)
      throw invalidRequest(`tags: the value of ${key} has more than ${LONGEST_TAG.value} characters`);
  }
  return tags;
}

/** Whether something has all of the wanted tags. */
export function hasTags(tags: Tags, wanted: Tags): boolean {
  return Object.entries(wanted).every(([key, value]) => tags[key] === value);
}

/** A size such as "512MB", in bytes; undefined where it is absent. */
export function size(body: Body, field: string): number | undefined {
  const value = text(body, field);
  if (value === undefined) return undefined;
  const [, number = "", unit = "B"] = SIZE.exec(value.trim()) ?? [];
  const bytes = Number(number) * (UNIT_BYTES[unit.charAt(0).toUpperCase()] ?? Number.NaN);
  if (number === "" || !Number.isSafeInteger(Math.ceil(bytes)) || bytes < 1)
    throw invalidRequest(`${field}: a size such as "512MB" or "2GB", not "${value}"`);
  return Math.ceil(bytes);
}
