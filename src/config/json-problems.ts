import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";

/**
 * What keeps a JSON value from being the given message, one line a field, such as `ready_cmd.argz: unknown field`.
 *
 * The protobuf library would refuse the same, but it stops at the first problem and quotes the value. Covers the kinds
 * of fields that the specs have; the library judges the rest.
 */
export function jsonProblems(message: DescMessage, json: unknown, path = ""): string[] {
  if (!isObject(json)) return [`${path === "" ? "it" : path} must be an object`];
  const problems: string[] = [];
  for (const [key, value] of Object.entries(json)) {
    const field = message.fields.find((candidate) => candidate.name === key || candidate.jsonName === key);
    const fieldPath = join(path, field?.name ?? quotedName(key));
    if (field === undefined) problems.push(`${fieldPath}: unknown field of ${message.name}`);
    else if (value !== null) problems.push(...fieldProblems(field, value, fieldPath));
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
      return field.mapKind === "scalar"
        ? Object.entries(value).flatMap(([key, item]) =>
            scalarProblems(field.scalar, item, join(path, quotedName(key))),
          )
        : [];
    case "enum":
      return [];
  }
}

function scalarProblems(scalar: ScalarType, value: unknown, path: string): string[] {
  if (scalar === ScalarType.STRING && typeof value !== "string") return [`${path}: must be a string`];
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

/** A name from outside, safe to print: bare where it is an identifier, else quoted and cut. */
function quotedName(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]{0,63}$/.test(name) ? name : JSON.stringify(name.slice(0, 64));
}
