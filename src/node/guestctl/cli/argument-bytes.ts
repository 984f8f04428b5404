import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import { textOf } from "./raw-names.ts";

/** Node decodes each invalid UTF-8 sequence to this character. */
const REPLACEMENT = "\ufffd";

/**
 * Finds an argument that is not valid UTF-8, and returns the error message for it. Node has already decoded the
 * arguments and replaced invalid bytes, so the original bytes are read from /proc/self/cmdline. Returns undefined if
 * all arguments are valid or /proc is missing.
 */
export function alteredArgument(args: readonly string[]): string | undefined {
  if (!args.some((argument) => argument.includes(REPLACEMENT))) return undefined;
  const all = pieces("/proc/self/cmdline");
  const own = all.slice(all.length - args.length);
  const index = own.findIndex((bytes) => !isUtf8(bytes));
  const wrong = own[index];
  if (wrong === undefined) return undefined;
  return `argument ${index + 1} after the command name is not valid UTF-8 at byte ${firstWrong(wrong)}; guestctl accepts only UTF-8`;
}

/** Restores the bytes of arguments that are not valid UTF-8, in the form of raw-names.ts. */
export function restoredArguments(args: readonly string[]): readonly string[] {
  if (!args.some((argument) => argument.includes(REPLACEMENT))) return args;
  const all = pieces("/proc/self/cmdline");
  const own = all.slice(all.length - args.length);
  return args.map((argument, index) => {
    const bytes = own[index];
    // Use the bytes only if they decode to the argument that Node has passed. If they do not, they belong to another
    // argument.
    return bytes?.toString() === argument ? textOf(bytes) : argument;
  });
}

/**
 * Returns the error message for an environment variable of guestctl that is not valid UTF-8; undefined if the variable
 * is valid.
 */
export function alteredVariable(name: string, value: string): string | undefined {
  if (!value.includes(REPLACEMENT)) return undefined;
  const prefix = Buffer.from(`${name}=`);
  const bytes = pieces("/proc/self/environ").find((each) => each.subarray(0, prefix.length).equals(prefix));
  if (bytes === undefined || isUtf8(bytes)) return undefined;
  return `the variable ${name} is not valid UTF-8 at byte ${firstWrong(bytes.subarray(prefix.length))}; guestctl accepts only UTF-8`;
}

/** Splits a file at its NUL bytes. Returns nothing if the file cannot be read. */
function pieces(path: string): Buffer[] {
  const found: Buffer[] = [];
  try {
    const content = readFileSync(path);
    for (let begin = 0, end; (end = content.indexOf(0, begin)) >= 0; begin = end + 1)
      found.push(content.subarray(begin, end));
  } catch {
    // Without /proc, the original bytes of the arguments cannot be read.
  }
  return found;
}

/** Index of the first byte that is not part of valid UTF-8; undefined if all bytes are. */
export function firstNotUtf8(bytes: Buffer): number | undefined {
  return isUtf8(bytes) ? undefined : firstWrong(bytes);
}

function firstWrong(bytes: Buffer): number {
  // Check only the bytes since the last valid prefix. These bytes become valid as soon as they contain a whole
  // character, which has at most four bytes.
  let valid = 0;
  for (let end = 1; end <= bytes.length; end++) if (isUtf8(bytes.subarray(valid, end))) valid = end;
  return valid;
}
