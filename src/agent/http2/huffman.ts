/** Code length of each symbol in bits (RFC 7541, Appendix B): bytes 0 to 255, then the end-of-string symbol. */
// prettier-ignore
const CODE_BITS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
  30,
];
const END_OF_STRING = 256;
const LONGEST_BITS = 30;

/**
 * The code is canonical, so three numbers for each code length define it: the first code, the number of codes, and the
 * index of their first symbol.
 */
const first = new Int32Array(LONGEST_BITS + 1);
const count = new Int32Array(LONGEST_BITS + 1);
const begin = new Int32Array(LONGEST_BITS + 1);
const symbols = new Uint16Array(CODE_BITS.length);

for (const bits of CODE_BITS) count[bits] = (count[bits] as number) + 1;
for (let bits = 1, code = 0, at = 0; bits <= LONGEST_BITS; bits++) {
  code = (code + (count[bits - 1] as number)) * 2;
  first[bits] = code;
  begin[bits] = at;
  for (let symbol = 0; symbol < CODE_BITS.length; symbol++) if (CODE_BITS[symbol] === bits) symbols[at++] = symbol;
}

/**
 * Decodes a Huffman string (RFC 7541, 5.2) into `target`. The size of `target` must be at least 8/5 of the string's
 * size, because the shortest code has five bits. Returns the number of decoded bytes, or a negative number if the
 * string is malformed.
 */
export function decodeHuffman(bytes: Uint8Array, start: number, end: number, target: Uint8Array): number {
  let written = 0;
  let code = 0;
  let bits = 0;
  for (let at = start; at < end; at++) {
    const byte = bytes[at] as number;
    for (let shift = 7; shift >= 0; shift--) {
      code = (code << 1) | ((byte >> shift) & 1);
      bits++;
      const offset = code - (first[bits] as number);
      if (offset < 0 || offset >= (count[bits] as number)) {
        if (bits === LONGEST_BITS) return -1;
        continue;
      }
      const symbol = symbols[(begin[bits] as number) + offset] as number;
      if (symbol === END_OF_STRING) return -1;
      target[written++] = symbol;
      code = 0;
      bits = 0;
    }
  }
  // The rest is padding: fewer than eight one-bits, a prefix of the end-of-string code.
  return bits > 7 || code !== (1 << bits) - 1 ? -1 : written;
}
