import { isUtf8 } from "node:buffer";
import {
  create,
  type DescField,
  type DescMessage,
  fromBinary,
  fromJsonString,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type CommandSpec,
  DEFAULT_KEPT_BUFFER_BYTES,
  DEFAULT_READY_INTERVAL_MS,
  DEFAULT_READY_TIMEOUT_MS,
  DEFAULT_STOP_GRACE_MS,
  type HooksSpec,
  KEPT_BUFFER_LIMIT_BYTES,
  type ProcessSpec,
} from "../domain/index.ts";
import { type Hook, HooksSchema, type Process, ProcessSchema } from "../../shared/gen/svc/guest/v1alpha1/process_pb.ts";
import { commandFaults, type GivenCommand, userSyntaxProblem } from "../session/index.ts";
import { type BootstrapFile, byteOrderMarkProblem } from "./files.ts";
import type { Read } from "./variables.ts";

/** Reads SVC_PROCESS_SPEC. If it is not set, there is no workload. */
export function readProcessSpec(value = "{}"): Read<ProcessSpec> {
  const { value: message, problems } = decodeSpec(ProcessSchema, value);
  const spec = processSpec(message);
  return {
    value: spec,
    problems: [
      ...problems,
      ...commandProblems("", spec),
      ...requiredCommandProblems("ready_cmd", spec.readyCommand),
      ...outputProblems(spec),
    ],
  };
}

/** Reads SVC_HOOKS_SPEC. If it is not set, there are no hooks. */
export function readHooksSpec(value = "{}"): Read<HooksSpec> {
  const { value: message, problems } = decodeSpec(HooksSchema, value);
  const preSnapshot = message.preSnapshot && commandSpec(message.preSnapshot);
  const postRestore = message.postRestore && commandSpec(message.postRestore);
  return {
    value: { preSnapshot, postRestore },
    problems: [
      ...problems,
      ...requiredCommandProblems("pre_snapshot", preSnapshot),
      ...requiredCommandProblems("post_restore", postRestore),
    ],
  };
}

/** Reads a spec from the file that SVC_PROCESS_SPEC_FILE or SVC_HOOKS_SPEC_FILE names: UTF-8, 1 MiB at most. */
export function readSpecFile<Value>(file: BootstrapFile, read: (text: string | undefined) => Read<Value>): Read<Value> {
  if ("problem" in file) return { ...read(undefined), problems: [file.problem] };
  if (!isUtf8(file.bytes)) return { ...read(undefined), problems: ["names a file that is not UTF-8"] };
  const { value, problems } = read(file.bytes.toString());
  return { value, problems: problems.map((found) => `in the file: ${found}`) };
}

function processSpec(message: Process): ProcessSpec {
  const ready = message.readyCmd;
  return {
    ...commandSpec(message),
    readyCommand: ready && {
      args: ready.args,
      intervalMs: ready.intervalMs || DEFAULT_READY_INTERVAL_MS,
      timeoutMs: ready.timeoutMs || DEFAULT_READY_TIMEOUT_MS,
    },
    stopGraceMs: message.stopGraceMs || DEFAULT_STOP_GRACE_MS,
    output:
      message.output?.mode.case === "keep"
        ? { bufferBytes: message.output.mode.value.bufferBytes || DEFAULT_KEPT_BUFFER_BYTES }
        : undefined,
  };
}

function commandSpec({ args, env, cwd, user }: Process | Hook): CommandSpec {
  return { args, env: new Map(Object.entries(env)), cwd, user };
}

function outputProblems({ output }: ProcessSpec): string[] {
  if (output === undefined || output.bufferBytes <= KEPT_BUFFER_LIMIT_BYTES) return [];
  return [`output.keep.buffer_bytes: is ${output.bufferBytes}, but the maximum is ${KEPT_BUFFER_LIMIT_BYTES}`];
}

function requiredCommandProblems(path: string, command: GivenCommand | undefined): string[] {
  if (command === undefined) return [];
  const missing = command.args.length === 0 ? [`${path}.args: is empty; name a command or leave ${path} out`] : [];
  return [...missing, ...commandProblems(`${path}.`, command)];
}

function commandProblems(path: string, command: GivenCommand): string[] {
  const problems = [...commandFaults(path, command)].map(([field, problem]) => `${field}: ${problem}`);
  const userProblem = userSyntaxProblem(command.user ?? "");
  return userProblem === undefined ? problems : [...problems, `${path}user: ${userProblem}`];
}

/**
 * Decodes a spec: proto3 JSON if it begins with `{`, otherwise the binary form in base64 (standard or URL-safe
 * alphabet). If there are problems, the returned value is an empty message.
 */
function decodeSpec<Desc extends DescMessage>(schema: Desc, value: string): Read<MessageShape<Desc>> {
  const mark = byteOrderMarkProblem(Buffer.from(value.slice(0, 1)));
  if (mark !== undefined) return invalidSpec(schema, mark);
  const text = value.trim();
  // A blank value is rejected, because it is probably a mistake. An empty spec is written as `{}`.
  if (text === "") return invalidSpec(schema, "is blank; set it to a spec or remove it");
  return text.startsWith("{") ? decodeJson(schema, value) : decodeBase64(schema, value);
}

function invalidSpec<Desc extends DescMessage>(schema: Desc, ...problems: readonly string[]): Read<MessageShape<Desc>> {
  return { value: create(schema), problems };
}

function decodeJson<Desc extends DescMessage>(schema: Desc, value: string): Read<MessageShape<Desc>> {
  let json: unknown;
  try {
    json = JSON.parse(value);
  } catch (error) {
    return invalidSpec(schema, `is not valid JSON${positionOf(error)}`);
  }
  const problems = jsonProblems(schema, json);
  if (problems.length > 0) return invalidSpec(schema, ...problems);
  try {
    // fromJsonString parses the text again, because it rejects duplicate keys. JSON.parse has dropped them from `json`.
    return { value: fromJsonString(schema, value), problems: [] };
  } catch {
    return invalidSpec(schema, `is not the JSON form of ${schema.typeName}; it may contain a duplicate key`);
  }
}

function decodeBase64<Desc extends DescMessage>(schema: Desc, value: string): Read<MessageShape<Desc>> {
  const base64 = value.replace(/\s+/g, "");
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(base64)) {
    return invalidSpec(schema, notASpec(schema));
  }
  try {
    return { value: fromBinary(schema, Buffer.from(base64, "base64")), problems: [] };
  } catch {
    return invalidSpec(schema, notASpec(schema));
  }
}

/**
 * The message for a value that is not base64 or is not a spec in base64. One message serves both, because a path that
 * was set by mistake may happen to be valid base64.
 */
function notASpec({ typeName }: DescMessage): string {
  const example = EXAMPLES[typeName] ?? "{}";
  return `is neither JSON nor a binary ${typeName} in base64; expected, for example, ${example}`;
}

const EXAMPLES: Readonly<Record<string, string>> = {
  [ProcessSchema.typeName]: '{"args": ["sleep", "10"]}',
  [HooksSchema.typeName]: '{"pre_snapshot": {"args": ["sync"]}}',
};

/**
 * Describes where JSON.parse stopped. The error's message must not be shown: it quotes the text, which may contain
 * secrets.
 */
function positionOf(error: unknown): string {
  const position = error instanceof Error ? /at position (\d+)/.exec(error.message)?.[1] : undefined;
  return position === undefined ? "" : ` (at character ${position})`;
}

/**
 * Returns the problems of a JSON value, one line per field, such as `ready_cmd.argz: unknown field`. Needed because the
 * protobuf library's check would stop at the first problem and quote the value. This function does not check enums, or
 * lists and maps of messages, because no spec has such fields.
 */
function jsonProblems(message: DescMessage, json: unknown, path = ""): string[] {
  if (!isObject(json)) return [`${path === "" ? "it" : path} must be an object`];
  const problems: string[] = [];
  for (const [key, value] of Object.entries(json)) {
    const field = message.fields.find((candidate) => candidate.name === key || candidate.jsonName === key);
    const fieldPath = join(path, field?.name ?? quotedName(key));
    if (field === undefined) problems.push(`${fieldPath}: unknown field of ${message.name}`);
    else if (value !== null) problems.push(...fieldProblems(field, value, fieldPath));
  }
  for (const { fields } of message.oneofs) {
    const given = fields.filter(({ name, jsonName }) => isObject(json[name] ?? json[jsonName]));
    if (given.length > 1)
      problems.push(`${path}: has ${given.map(({ name }) => name).join(" and ")}; set only one of them`);
  }
  return problems;
}

function fieldProblems(field: DescField, value: unknown, path: string): string[] {
  switch (field.fieldKind) {
    case "message":
      return jsonProblems(field.message, value, path);
    case "scalar":
      return scalarProblems(field.scalar, value, path);
    case "list":
      if (!Array.isArray(value)) return [`${path}: must be an array`];
      return field.listKind === "scalar"
        ? value.flatMap((item: unknown, index) => scalarProblems(field.scalar, item, `${path}[${index}]`))
        : [];
    case "map":
      if (!isObject(value)) return [`${path}: must be an object`];
      // The protobuf library would silently lose an entry named "__proto__", because its maps are plain objects.
      if (Object.hasOwn(value, "__proto__")) return [`${path}: must not contain a variable named "__proto__"`];
      return field.mapKind === "scalar"
        ? Object.entries(value).flatMap(([key, item]) => [
            ...scalarProblems(ScalarType.STRING, key, join(path, quotedName(key))),
            ...scalarProblems(field.scalar, item, join(path, quotedName(key))),
          ])
        : [];
    case "enum":
      return [];
  }
}

function scalarProblems(scalar: ScalarType, value: unknown, path: string): string[] {
  if (scalar === ScalarType.STRING) {
    if (typeof value !== "string") return [`${path}: must be a string`];
    // JSON can contain half of a surrogate pair, which cannot be encoded in UTF-8.
    if (!value.isWellFormed()) return [`${path}: must be valid Unicode text, but contains half of a surrogate pair`];
  }
  if (scalar === ScalarType.UINT32 && !isUint32(value)) return [`${path}: must be a whole number from 0 to 4294967295`];
  return [];
}

function isUint32(value: unknown): boolean {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isInteger(number) && number >= 0 && number <= 0xffff_ffff;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function join(path: string, name: string): string {
  return path === "" ? name : `${path}.${name}`;
}

/** Makes a name from outside safe to print: an identifier stays as it is; anything else is quoted and cut. */
function quotedName(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]{0,63}$/.test(name) ? name : JSON.stringify(name.slice(0, 64));
}
