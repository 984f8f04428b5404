import { isUtf8 } from "node:buffer";

/*
 * File names are bytes, and need not be UTF-8. In guestctl's strings, a lone surrogate from U+DC80 to U+DCFF stands for
 * a byte that is not part of valid UTF-8, as in Python (PEP 383). Valid text never contains such a surrogate. So the
 * code that splits and joins paths also works for these names. `nameOf` converts a string back to bytes, for Node and
 * for the client.
 */

const ESCAPED = /[\udc80-\udcff]/;
const ESCAPE = 0xdc00;
/** Length of the longest UTF-8 character. */
const UTF8_BYTES = 4;

/** Converts the bytes of a name to a string. */
export function textOf(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString();
  let text = "";
  for (let at = 0; at < bytes.length;) {
    let length = 1;
    while (length <= UTF8_BYTES && !isUtf8(bytes.subarray(at, at + length))) length += 1;
    if (length > UTF8_BYTES) length = 1;
    const part = bytes.subarray(at, at + length);
    text += isUtf8(part) ? part.toString() : String.fromCodePoint(ESCAPE + (part[0] ?? 0));
    at += length;
  }
  return text;
}

/** Returns the name that a string represents: the string itself, or bytes if the name is not UTF-8. */
export function nameOf(text: string): string | Buffer {
  if (!ESCAPED.test(text)) return text;
  return Buffer.concat(
    Array.from(text, (character) =>
      ESCAPED.test(character) ? Buffer.from([character.charCodeAt(0) - ESCAPE]) : Buffer.from(character),
    ),
  );
}

/** Converts a string back to the bytes of the name that it represents. */
export function nameBytes(text: string): Buffer {
  return Buffer.from(nameOf(text));
}

/** Whether a string represents a name that is not UTF-8. */
export function isRawName(text: string): boolean {
  return ESCAPED.test(text);
}

/** Formats a name for people. Each byte that is not UTF-8 becomes `\xNN`. */
export function withEscapes(text: string): string {
  return text.replaceAll(/[\udc80-\udcff]/g, (half) => `\\x${(half.charCodeAt(0) - ESCAPE).toString(16)}`);
}
