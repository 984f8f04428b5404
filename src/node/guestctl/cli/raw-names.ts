import { isUtf8 } from "node:buffer";

/*
 * Names of files are bytes, and a command line's need not be UTF-8. In guestctl's texts, a byte that is not part of
 * UTF-8 is U+DC80 to U+DCFF, half of a surrogate pair, which no valid text has (as in Python, PEP 383). What splits and
 * joins paths so needs no other form of them. `nameOf` gives the bytes back, for Node and for the client.
 */

const ESCAPED = /[\udc80-\udcff]/;
const ESCAPE = 0xdc00;
/** Longest character. */
const UTF8_BYTES = 4;

/** The text of a name. */
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

/** The name that a text stands for: the text itself, or bytes where it is not UTF-8. */
export function nameOf(text: string): string | Buffer {
  if (!ESCAPED.test(text)) return text;
  return Buffer.concat(
    Array.from(text, (character) =>
      ESCAPED.test(character) ? Buffer.from([character.charCodeAt(0) - ESCAPE]) : Buffer.from(character),
    ),
  );
}

/** The bytes of the name that a text stands for. */
export function nameBytes(text: string): Buffer {
  return Buffer.from(nameOf(text));
}

/** Whether a text stands for a name that is not UTF-8. */
export function isRawName(text: string): boolean {
  return ESCAPED.test(text);
}

/** For people: each byte that is not UTF-8 as `\xNN`. */
export function withEscapes(text: string): string {
  return text.replaceAll(/[\udc80-\udcff]/g, (half) => `\\x${(half.charCodeAt(0) - ESCAPE).toString(16)}`);
}
