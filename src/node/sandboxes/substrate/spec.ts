import { randomBytes } from "node:crypto";
import { LAST_PORT } from "../../../shared/ports.ts";
import type { HooksSpec, ProcessSpec } from "../../client/index.ts";
import { SandboxError } from "./errors.ts";

/** Tags by key. The substrate accepts at most 50 tags. A key has at most 128 characters, and a value at most 256. */
export type Tags = Readonly<Record<string, string>>;

/** What `watch` does with a sandbox whose workload has declared itself idle. */
export type IdleAction = "none" | "standby" | "stop";

/** The specification from which `create` makes a sandbox. */
export interface SandboxSpec {
  /** Name of the image, as the substrate knows it. */
  readonly image: string;
  /** Name of the sandbox: at most 48 lowercase letters, digits and dashes. Default: a random name. */
  readonly name?: string | undefined;
  /**
   * The workload. Default: no workload, so that only the agent runs.
   *
   * The variables of the workload may contain secrets. The guest gets them in a file, because everyone who can request
   * the instance from the daemon can read the environment of the instance.
   *
   * The agent checks the values. If it refuses one, `create` rejects with AGENT_ENDED, and the error has the reason.
   */
  readonly process?: ProcessSpec | undefined;
  /** The hooks that run before a snapshot and after a restore. Default: none. */
  readonly hooks?: HooksSpec | undefined;
  /** Keys that begin with "svc." are reserved for the node. */
  readonly tags?: Tags | undefined;
  readonly network?: NetworkSpec | undefined;
  /**
   * Hypervisor of the instance. If this field, `vcpus`, `memory` or `overlaySize` is missing, the daemon uses its own
   * default.
   */
  readonly hypervisor?: string | undefined;
  readonly vcpus?: number | undefined;
  /** Size of the memory, with its unit, such as "1GB". */
  readonly memory?: string | undefined;
  /** Size of the writable layer above the image, with its unit, such as "10GB". */
  readonly overlaySize?: string | undefined;
  /** Time without user activity after which `watch` removes the sandbox, in milliseconds. Default: never. */
  readonly ttlMs?: number | undefined;
  /** What `watch` does once the workload has declared itself idle. Default: "none". */
  readonly idleAction?: IdleAction | undefined;
}

/** Which network access a sandbox has. */
export interface NetworkSpec {
  /**
   * The policy for mediated egress. Only a policy with `enabled: false` is accepted, because the substrate would accept
   * any other policy without enforcing it.
   */
  readonly egress?: { readonly enabled?: boolean | undefined; readonly mode?: string | undefined } | undefined;
}

/** How many of the 50 tags that the substrate accepts are reserved for the node. */
const OWN_TAGS = 10;
const TAGS_LIMIT = 50;
const TAG_KEY_CHARACTERS = 128;
const TAG_VALUE_CHARACTERS = 256;
/** Matches a valid key of a tag, and a valid value that is not empty. */
const TAG_TEXT = /^[A-Za-z0-9 _.:/=+@-]+$/;
const SIZE = /^\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*$/i;
const SIZE_UNITS = ["", "K", "M", "G", "T"];
const IDLE_ACTIONS: ReadonlySet<unknown> = new Set<IdleAction>(["none", "standby", "stop"]);

/**
 * The check of each field. Fields that are not in this table are rejected, because the substrate would silently drop
 * them.
 */
const FIELDS: Readonly<Record<keyof SandboxSpec, readonly [wanted: string, is: (value: unknown) => boolean]>> = {
  image: ["an image reference", isText],
  name: ["1 to 48 lowercase letters, digits and dashes, without a dash at the beginning or end", isName],
  process: ["an object without NaN or Infinity", isSpec],
  hooks: ["an object without NaN or Infinity", isSpec],
  tags: [
    `at most ${TAGS_LIMIT - OWN_TAGS} tags, each a string of up to ${TAG_VALUE_CHARACTERS} letters, digits, spaces and _.:/=+@-; keys that begin with "svc." are reserved`,
    isTags,
  ],
  network: ["an object", isObject],
  hypervisor: ['the name of a hypervisor, such as "qemu"', isText],
  vcpus: ["a whole number of 1 or more", (value) => Number.isSafeInteger(value) && Number(value) >= 1],
  memory: ['a size with its unit, such as "1GB"', isSize],
  overlaySize: ['a size with its unit, such as "10GB"', isSize],
  ttlMs: ["a positive whole number of milliseconds", (value) => Number.isSafeInteger(value) && Number(value) > 0],
  idleAction: ["none, standby or stop", (value) => IDLE_ACTIONS.has(value)],
};

/**
 * Throws SandboxError. The code is CAPABILITY_MISSING for a feature that the substrate accepts but does not implement,
 * and otherwise INVALID_SPEC.
 */
export function checkSpec(spec: SandboxSpec): void {
  if (!isObject(spec)) throw new SandboxError("INVALID_SPEC", "the spec of a sandbox must be an object with an image");
  for (const [field, value] of Object.entries(spec) as [string, unknown][]) {
    const rule = Object.hasOwn(FIELDS, field) ? FIELDS[field as keyof SandboxSpec] : undefined;
    if (rule === undefined)
      throw new SandboxError("INVALID_SPEC", `the spec of a sandbox has no field ${JSON.stringify(field)}`);
    const [wanted, is] = rule;
    if (value !== undefined && !is(value)) throw new SandboxError("INVALID_SPEC", `${field} must be ${wanted}`);
  }
  if (spec.image === undefined) throw new SandboxError("INVALID_SPEC", "image is missing");
  const unknown = Object.keys(spec.network ?? {}).find((field) => field !== "egress");
  if (unknown !== undefined)
    throw new SandboxError("INVALID_SPEC", `the spec of a sandbox has no field network.${unknown}`);
  const { egress } = spec.network ?? {};
  if (egress !== undefined && egress.enabled !== false) {
    const message = "the substrate does not enforce network.egress (egressControl is false); leave network.egress out";
    throw new SandboxError("CAPABILITY_MISSING", message);
  }
}

/**
 * Converts a size such as "512MB" to bytes. Units are powers of 1024, as at the substrate. Undefined if the text is not
 * a size.
 */
export function sizeBytesOf(text: string): number | undefined {
  const [, number, unit = ""] = SIZE.exec(text) ?? [];
  return number === undefined ? undefined : Number(number) * 1024 ** SIZE_UNITS.indexOf(unit.toUpperCase());
}

/** Throws SandboxError (INVALID_SPEC) for an invalid node id. It must be valid as the value of a tag. */
export function checkNodeId(nodeId: string): void {
  if (isTagText(nodeId, TAG_VALUE_CHARACTERS)) return;
  const message = `nodeId must be 1 to ${TAG_VALUE_CHARACTERS} letters, digits, spaces and _.:/=+@-, because it becomes the value of a tag`;
  throw new SandboxError("INVALID_SPEC", message);
}

/** Throws SandboxError (INVALID_SPEC) unless the value is a TCP port. */
export function checkPort(port: number, field: string): void {
  if (Number.isInteger(port) && port >= 1 && port <= LAST_PORT) return;
  throw new SandboxError("INVALID_SPEC", `${field} must be a port, from 1 to ${LAST_PORT}, not ${String(port)}`);
}

/** Throws SandboxError (INVALID_SPEC) for an invalid name of a sandbox or snapshot. */
export function checkName(name: string): void {
  const [wanted, is] = FIELDS.name;
  if (!is(name)) throw new SandboxError("INVALID_SPEC", `a name must be ${wanted}, not ${JSON.stringify(name)}`);
}

export function randomName(prefix: string): string {
  return `${prefix}-${randomBytes(8).toString("hex")}`;
}

function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

function isSize(value: unknown): boolean {
  return typeof value === "string" && (sizeBytesOf(value) ?? 0) > 0;
}

function isTagText(value: unknown, mostCharacters: number): boolean {
  return typeof value === "string" && value.length <= mostCharacters && TAG_TEXT.test(value);
}

/**
 * Whether a value is a valid name of a sandbox. It has at most 48 characters, because the node appends suffixes to the
 * name, and the result must be valid for the substrate.
 */
function isName(value: unknown): boolean {
  return typeof value === "string" && /^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$/.test(value);
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Whether JSON can express the spec. JSON.stringify would write null for NaN and Infinity, which would stand for the
 * default value.
 */
function isSpec(value: unknown): boolean {
  if (!isObject(value)) return false;
  const parts: unknown[] = Object.values(value as object);
  return parts.every((part) => (typeof part === "number" ? Number.isFinite(part) : !isObject(part) || isSpec(part)));
}

function isTags(value: unknown): boolean {
  if (!isObject(value)) return false;
  const entries = Object.entries(value as object) as [string, unknown][];
  return (
    entries.length <= TAGS_LIMIT - OWN_TAGS &&
    entries.every(
      ([key, text]) =>
        isTagText(key, TAG_KEY_CHARACTERS) &&
        !key.startsWith("svc.") &&
        (text === "" || isTagText(text, TAG_VALUE_CHARACTERS)),
    )
  );
}
