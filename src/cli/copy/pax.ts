import { damaged } from "./tar-header.ts";

const NEWLINE = 0x0a;
const SPACE = 0x20;
const EQUALS = 0x3d;

/** Values of a pax header (pax(1), Extended Header) that override those of the header after it. */
export type PaxValues = ReadonlyMap<string, Buffer>;

/** Writes `length key=value` lines. */
export function writePax(values: PaxValues): Buffer {
  return Buffer.concat([...values].map(([key, value]) => paxLine(key, value)));
}

/** The length counts its own digits. */
function paxLine(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

/** Reads `length key=value` lines. Throws Error for anything else. */
export function readPax(content: Buffer): PaxValues {
  const values = new Map<string, Buffer>();
  for (let at = 0; at < content.length;) {
    const space = content.indexOf(SPACE, at);
    const digits = space < 0 ? "" : content.toString("latin1", at, space);
    const length = /^\d{1,9}$/.test(digits) ? Number(digits) : 0;
    const line = content.subarray(space + 1, at + length);
    const equals = line.indexOf(EQUALS);
    // A line of no length would be read for ever.
    if (length === 0 || at + length > content.length || equals < 0 || line.at(-1) !== NEWLINE) throw damaged();
    values.set(line.toString("utf8", 0, equals), line.subarray(equals + 1, -1));
    at += length;
  }
  return values;
}
