import { invalidRequest, SchemaFailure } from "./failure.ts";

/** Key-value pairs of an instance, a volume or a snapshot. */
export type Tags = Readonly<Record<string, string>>;

/** A request's body: a JSON object of whatever fields. Those that nobody asks for are ignored, as the substrate does. */
export type Body = Readonly<Record<string, unknown>>;

/** Hypervisors that the API knows by name. Only "qemu" is there. */
const HYPERVISORS = ["cloud-hypervisor", "firecracker", "qemu", "qemu-microvm", "vz"];
const NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const SIZE = /^(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B?)?$/i;
const UNIT_BYTES: Readonly<Record<string, number>> = { B: 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };
const MOST_TAGS = 50;
const LONGEST_TAG = { key: 128, value: 256 };
/** At and below these the substrate mounts nothing. */
const RESERVED = "bin boot dev etc lib lib64 proc root run sbin sys tmp usr var".split(" ").map((name) => `/${name}`);

/** A text field; undefined where it is absent. */
export function text(body: Body, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw new SchemaFailure(`/${field}`, "value must be a string");
  return value;
}

/** A field that has to be there. */
export function required<T>(value: T | undefined, field: string): T {
  if (value === undefined) throw new SchemaFailure(`/${field}`, `property "${field}" is missing`);
  return value;
}

/** A truth value; false where it is absent. */
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

/** The tags of a query, as `tags[team]=a&tags[env]=b`: those to set, or those to look for. */
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

/** A name of an instance or a snapshot. */
export function checkedName(name: string): string {
  if (!NAME.test(name))
    throw invalidRequest("name: lowercase letters, digits and dashes, at most 63, and no dash at either end");
  return name;
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

/** The hypervisor that is asked for. Whether it is there shows when it is started. */
export function hypervisor(body: Body): string {
  const name = text(body, "hypervisor") ?? "qemu";
  if (!HYPERVISORS.includes(name))
    throw new SchemaFailure("/hypervisor", `value is not one of the allowed values [${HYPERVISORS.join(", ")}]`);
  return name;
}

/** The state that is asked for; undefined where none is. */
export function targetState(body: Body): "Running" | "Standby" | "Stopped" | undefined {
  const state = text(body, "target_state");
  if (state === undefined || state === "Running" || state === "Standby" || state === "Stopped") return state;
  throw new SchemaFailure("/target_state", "value is not one of the allowed values [Stopped, Standby, Running]");
}

/** Why nothing can be mounted at a path; undefined where it can. */
export function mountProblem(path: string): string | undefined {
  if (!path.startsWith("/") || path === "/" || path.split("/").includes(".."))
    return `mount_path ${JSON.stringify(path)} is no absolute path below /`;
  if (/[\s']/.test(path)) return `mount_path ${JSON.stringify(path)} has a blank or a quote in it`;
  const reserved = RESERVED.find((each) => path === each || path.startsWith(`${each}/`));
  return reserved === undefined ? undefined : `mount_path ${path} is at or below ${reserved}`;
}

/** Refuses a line break where the guest's init reads lines. Here the development substrate is narrower than the real one. */
export function oneLine(value: string, field: string): string {
  if (/[\n\0]/.test(value))
    throw invalidRequest(`${field}: no line break or NUL can be in it on the development substrate`);
  return value;
}
