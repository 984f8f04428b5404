import type { Hypeman } from "@onkernel/hypeman";
import { invalidRequest, SchemaFailure } from "./failure.ts";

/** Key-value pairs of an instance, an image, a volume or a snapshot. */
export type Tags = Readonly<Record<string, string>>;

/** Entrypoint and arguments; what is absent or empty is the image's. */
export type Command = Pick<Hypeman.InstanceCreateParams, "entrypoint" | "cmd">;

const LEAST_MEMORY_BYTES = 256 * 2 ** 20;
const SIZE = /^\s*(\d+(?:\.\d+)?)\s*(?:B|([KMGT])i?B?)?\s*$/i;
const UNITS = ["", "K", "M", "G", "T"];
/** hypeman 8853445, lib/tags/constraints.go:14. */
const TAG_TEXT = /^[A-Za-z0-9 _.:/=+@-]+$/;
const NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** The substrate mounts nothing at or below these. */
const RESERVED = "bin boot dev etc lib lib64 proc root run sbin sys tmp usr var".split(" ").map((name) => `/${name}`);

/**
 * Checks a value at a path of a body. @throws SchemaFailure for one of another type, ApiFailure for one against the
 * rules
 */
type Check = (value: unknown, path: string) => void;

const typed =
  (isRight: (value: unknown) => boolean, problem: string): Check =>
  (value, path) => {
    if (!isRight(value)) throw new SchemaFailure(path, problem);
  };
/** A value that fits a check, and then a rule. */
const ruled =
  <Value>(check: Check, isRight: (value: Value) => boolean, rule: string): Check =>
  (value, path) => {
    check(value, path);
    if (!isRight(value as Value)) throw invalidRequest(`${path.slice(1)}: ${rule}`);
  };
const listOf =
  (check: Check): Check =>
  (value, path) => {
    if (!Array.isArray(value)) throw new SchemaFailure(path, "value must be an array");
    for (const [n, each] of value.entries()) check(each, `${path}/${n}`);
  };
const pairsOf =
  (check: Check): Check =>
  (value, path) => {
    object(value, path);
    for (const [key, each] of Object.entries(value as object)) check(each, `${path}/${key}`);
  };
/** An object with these fields. As on the substrate unknown ones are ignored. */
const fieldsOf =
  (fields: Readonly<Record<string, Check>>, required: readonly string[] = []): Check =>
  (value, path) => {
    object(value, path);
    for (const [field, check] of Object.entries(fields)) {
      const each = (value as Readonly<Record<string, unknown>>)[field];
      if (each !== undefined) check(each, `${path}/${field}`);
      else if (required.includes(field)) throw new SchemaFailure(`${path}/${field}`, `property "${field}" is missing`);
    }
  };

const object = typed(
  (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  "value must be an object",
);
const text = typed((value) => typeof value === "string", "value must be a string");
const flag = typed((value) => typeof value === "boolean", "value must be a boolean");
const count = typed(
  (value) => Number.isInteger(value) && Number(value) >= 1,
  "number must be an integer of at least 1",
);
const oneOf = (...allowed: readonly unknown[]): Check =>
  typed((value) => allowed.includes(value), `value is not one of the allowed values [${allowed.join(", ")}]`);
const name = ruled<string>(
  text,
  (value) => NAME.test(value),
  "lowercase letters, digits and dashes, at most 63, and no dash at either end",
);
/** The real substrate allows line breaks; the guest's init here reads lines. */
const line = ruled<string>(
  text,
  (value) => !/[\n\0]/.test(value),
  "no line break or NUL can be in it on the development substrate",
);
const size = ruled<string>(text, (value) => bytesOf(value) >= 1, 'a size such as "512MB" or "2GB"');
const tags = ruled<Tags>(
  pairsOf(text),
  (value) =>
    Object.keys(value).length <= 50 &&
    Object.entries(value).every(
      ([key, each]) =>
        key.length <= 128 && each.length <= 256 && TAG_TEXT.test(key) && (each === "" || TAG_TEXT.test(each)),
    ),
  "at most 50, with keys of 1 to 128 and values of at most 256 letters, digits, spaces and _.:/=+@-",
);
const env = ruled<Tags>(
  pairsOf(line),
  (value) => Object.keys(value).every((key) => /^[^=\s]+$/.test(key)),
  "a variable's name has no blank and no equals sign, and is not empty",
);
const volume = ruled<Hypeman.VolumeMount>(
  fieldsOf({ volume_id: text, mount_path: text, readonly: flag, overlay: flag, overlay_size: size }, [
    "volume_id",
    "mount_path",
  ]),
  ({ overlay, overlay_size, readonly }) => overlay !== true || (readonly === true && typeof overlay_size === "string"),
  "overlay needs readonly and overlay_size",
);
const command = { entrypoint: listOf(line), cmd: listOf(line) };
/** hypeman 8853445, openapi.yaml:1688-1705: a request against these never gets to the rules. */
const ingressName = typed(
  (value) => typeof value === "string" && NAME.test(value),
  'string doesn\'t match the regular expression "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"',
);
const whole = typed((value) => Number.isInteger(value), "value must be an integer");
const ingressRule = fieldsOf(
  {
    match: fieldsOf({ hostname: text, port: whole }, ["hostname"]),
    target: fieldsOf({ instance: text, port: whole }, ["instance", "port"]),
    tls: flag,
    redirect_http: flag,
  },
  ["match", "target"],
);
const ingressRules: Check = (value, path) => {
  listOf(ingressRule)(value, path);
  if ((value as readonly unknown[]).length === 0) throw new SchemaFailure(path, "minimum number of items is 1");
};

const requestOf =
  <Request>(check: Check) =>
  (body: unknown): Request => {
    check(body, "");
    return body as Request;
  };

/** The instance that a body describes. As all that follow: @throws ApiFailure, SchemaFailure */
export const instanceRequest: (body: unknown) => Hypeman.InstanceCreateParams = requestOf(
  fieldsOf(
    {
      ...command,
      name,
      image: text,
      // Only "qemu" is there, which shows when an instance is started.
      hypervisor: oneOf("cloud-hypervisor", "firecracker", "qemu", "qemu-microvm", "vz"),
      env,
      tags,
      volumes: listOf(volume),
      size: ruled<string>(size, (value) => bytesOf(value) >= LEAST_MEMORY_BYTES, "a guest needs 256MB or more"),
      overlay_size: size,
      vcpus: count,
      network: fieldsOf({
        enabled: flag,
        // The substrate checks the mode and enforces nothing.
        egress: fieldsOf({ enforcement: fieldsOf({ mode: oneOf("all", "http_https_only") }) }),
      }),
      skip_guest_agent: flag,
    },
    ["name", "image"],
  ),
);
export const startRequest: (body: unknown) => Command = requestOf(fieldsOf(command));
export const forkRequest: (body: unknown) => Hypeman.InstanceForkParams = requestOf(
  fieldsOf({ name, from_running: flag, target_state: oneOf("Stopped", "Standby", "Running") }, ["name"]),
);
export const snapshotRequest: (body: unknown) => Hypeman.Instances.SnapshotCreateParams = requestOf(
  fieldsOf({ kind: oneOf("Standby", "Stopped"), name, tags }, ["kind"]),
);
export const ingressRequest: (body: unknown) => Hypeman.IngressCreateParams = requestOf(
  fieldsOf({ name: ingressName, rules: ingressRules, tags }, ["name", "rules"]),
);
export const volumeRequest: (body: unknown) => Hypeman.VolumeCreateParams = requestOf(
  fieldsOf({ name: text, size_gb: count, id: text, tags }, ["name", "size_gb"]),
);

/** The tags of a query such as `tags[team]=a&tags[env]=b`: to set, or to look for. @throws ApiFailure */
export function queryTags(query: URLSearchParams): Tags {
  const found = [...query].flatMap(([key, value]) => (/^tags\[.*\]$/.test(key) ? [[key.slice(5, -1), value]] : []));
  return requestOf<Tags>(tags)(Object.fromEntries(found));
}

/** Whether something has all of the wanted tags. */
export function hasTags(has: Tags = {}, wanted: Tags = {}): boolean {
  return Object.entries(wanted).every(([key, value]) => has[key] === value);
}

/** A size such as "512MB", in bytes; NaN for what is none. */
export function bytesOf(value: string): number {
  const [, number, unit = ""] = SIZE.exec(value) ?? [];
  const bytes = Math.ceil(Number(number) * 1024 ** UNITS.indexOf(unit.toUpperCase()));
  return Number.isSafeInteger(bytes) ? bytes : Number.NaN;
}

/** As "1.0 GB". */
export function sizeText(bytes: number): string {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${UNITS[power]}B`;
}

/** Why nothing can be mounted at a path; undefined where it can. */
export function mountProblem(path: string): string | undefined {
  if (!path.startsWith("/") || path === "/" || path.split("/").includes(".."))
    return `mount_path ${JSON.stringify(path)} is no absolute path below /`;
  if (/[\s']/.test(path)) return `mount_path ${JSON.stringify(path)} has a blank or a quote in it`;
  const reserved = RESERVED.find((each) => path === each || path.startsWith(`${each}/`));
  return reserved === undefined ? undefined : `mount_path ${path} is at or below ${reserved}`;
}
