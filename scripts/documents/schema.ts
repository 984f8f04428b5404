import { readFileSync } from "node:fs";
import { join } from "node:path";

const SCHEMA = join(import.meta.dirname, "../../proto/svc/guest/v1alpha1");

/**
 * The fields of a message of the schema as rows of a table: name, type, and the comment above the field. If a field has
 * a nested message, the fields of that message follow the first such field, with its name as a prefix:
 * `ready_cmd.args`.
 */
export function fieldsOf(
  file: string,
  message: string,
  prefix = "",
  shown: Set<string> = new Set(),
): readonly string[][] {
  const text = readFileSync(join(SCHEMA, file), "utf8");
  const [, body] = new RegExp(`^message ${message} \\{\n([^]*?)^\\}`, "m").exec(text) ?? [];
  if (body === undefined) throw new Error(`${file} has no message ${message}`);
  const fields = body.matchAll(/((?:^ +\/\/.*\n)+) +(?!oneof)(repeated |map)?([\w<>, ]+?) (\w+) = \d+;/gm);
  return Array.from(fields).flatMap(([, comment = "", label = "", type = "", name = ""]) => {
    const meaning = comment
      .replaceAll(/^ +\/\/ ?/gm, "")
      .trim()
      .replaceAll("\n", " ")
      .replaceAll("|", "\\|");
    const row = [`\`${prefix}${name}\``, `\`${label}${type}\``, meaning];
    const isNested = label === "" && !shown.has(type) && new RegExp(`^message ${type} \\{\n`, "m").test(text);
    shown.add(type);
    return [row, ...(isNested ? fieldsOf(file, type, `${prefix}${name}.`, shown) : [])];
  });
}
