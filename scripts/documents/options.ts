import { readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

/**
 * The properties of an interface in a source file as rows of a table: name and doc comment. Throws if a property has no
 * doc comment. Optional properties have a question mark.
 */
export function optionsOfInterface(file: string, name: string): readonly (readonly string[])[] {
  const [, body] =
    new RegExp(`^(?:export )?interface ${name}(?: extends \\w+)? \\{\n([^]*?)^\\}`, "m").exec(
      readFileSync(join(ROOT, file), "utf8"),
    ) ?? [];
  if (body === undefined) throw new Error(`${file} has no interface ${name}`);
  const properties = body.matchAll(/(?:^ {2}\/\*\*([^]*?)\*\/\n)?^ {2}readonly (\w+\??):/gm);
  return Array.from(properties, ([, comment, property = ""]) => {
    if (comment === undefined) throw new Error(`${file}: ${name}.${property} has no doc comment`);
    const meaning = comment.replaceAll(/\s*\n\s*\*? ?/g, " ").trim();
    return [`\`${property}\``, meaning.replaceAll("|", "\\|").replaceAll("<", "&lt;")];
  });
}
