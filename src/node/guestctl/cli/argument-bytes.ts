import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import { textOf } from "./raw-names.ts";

/** What Node puts in the place of bytes that are not UTF-8. */
const REPLACEMENT = "\ufffd";

/**
 * Why arguments cannot be passed on: Node has decoded them as UTF-8 already, and has replaced what is not. The bytes
 * are in /proc/self/cmdline; where that is missing, nothing is found. Undefined: they are as the caller wrote them.
 */
export function alteredArgument(args: readonly string[]): string | undefined {
  if (!args.some((argument) => argument.includes(REPLACEMENT))) return undefined;
  const all = pieces("/proc/self/cmdline");
  const own = all.slice(all.length - args.length);
  const index = own.findIndex((bytes) => !isUtf8(bytes));
  const wrong = own[index];
  if (wrong === undefined) return undefined;
  return `argument ${index + 1} after the command name is not UTF-8, from byte ${firstWrong(wrong)} on; guestctl passes on only UTF-8`;
}

/** The arguments as the caller wrote them, in the form of raw-names.ts where they are not UTF-8. */
export function restoredArguments(args: readonly string[]): readonly string[] {
  if (!args.some((argument) => argument.includes(REPLACEMENT))) return args;
  const all = pieces("/proc/self/cmdline");
  const own = all.slice(all.length - args.length);
  return args.map((argument, index) => {
    const bytes = own[index];
    // What Node has decoded is taken from the bytes only if it is the same argument.
    return bytes?.toString() === argument ? textOf(bytes) : argument;
  });
}

/** The same for a variable of guestctl's own environment. */
export function alteredVariable(name: string, value: string): string | undefined {
  if (!value.includes(REPLACEMENT)) return undefined;
  const prefix = Buffer.from(`${name}=`);
  const bytes = pieces("/proc/self/environ").find((each) => each.subarray(0, prefix.length).equals(prefix));
  if (bytes === undefined || isUtf8(bytes)) return undefined;
  return `the variable ${name} is not UTF-8, from byte ${firstWrong(bytes.subarray(prefix.length))} on; guestctl passes on only UTF-8`;
}

/** What NUL bytes end in a file; none where it cannot be read. */
function pieces(path: string): Buffer[] {
  const found: Buffer[] = [];
  try {
    const content = readFileSync(path);
    for (let begin = 0, end; (end = content.indexOf(0, begin)) >= 0; begin = end + 1)
      found.push(content.subarray(begin, end));
  } catch {
    // Without /proc nothing is known.
  }
  return found;
}

/** Index of the first byte that is not part of valid UTF-8; undefined: there is none. */
export function firstNotUtf8(bytes: Buffer): number | undefined {
  return isUtf8(bytes) ? undefined : firstWrong(bytes);
}

/** Index of the first byte that is not part of valid UTF-8. */
function firstWrong(bytes: Buffer): number {
  // A character has at most four bytes: the longest valid beginning ends within them.
  let valid = 0;
  for (let end = 1; end <= bytes.length; end++) if (isUtf8(bytes.subarray(valid, end))) valid = end;
  return valid;
}
