/** A piece of the bundled script that comes from one source, as offsets in the script. */
export interface Piece {
  readonly source: string;
  readonly start: number;
  readonly end: number;
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/** Of a digit: its value, and whether another follows. */
const VALUE_BITS = 5;
const VALUE = 31;

/** The numbers of a segment: each in digits to base 32, the least first, whose last bit is the sign. */
function numbersOf(segment: string): number[] {
  const numbers: number[] = [];
  let [value, shift] = [0, 0];
  for (const digit of segment) {
    const bits = DIGITS.indexOf(digit);
    value += (bits & VALUE) << shift;
    shift += VALUE_BITS;
    if (bits > VALUE) continue;
    numbers.push(value & 1 ? -(value >> 1) : value >> 1);
    [value, shift] = [0, 0];
  }
  return numbers;
}

/** What the sources of a source map became in the script (ECMA-426). Code that no source has is in no piece. */
export function piecesOf(script: string, map: string): Piece[] {
  const { sources, mappings } = JSON.parse(map) as { sources: string[]; mappings: string };
  /** Where a piece begins that another source, or the end, ends. */
  const starts: { source: string | undefined; start: number }[] = [];
  let [lineStart, source] = [0, 0];
  const lines = script.split("\n");
  for (const [index, line] of mappings.split(";").entries()) {
    let column = 0;
    for (const segment of line.split(",").filter(Boolean)) {
      const [columns = 0, sourcesFurther] = numbersOf(segment);
      column += columns;
      source += sourcesFurther ?? 0;
      const name = sourcesFurther === undefined ? undefined : sources[source];
      if (name !== starts.at(-1)?.source) starts.push({ source: name, start: lineStart + column });
    }
    lineStart += (lines[index]?.length ?? 0) + 1;
  }
  return starts.flatMap(({ source: name, start }, index) =>
    name === undefined ? [] : [{ source: name, start, end: starts[index + 1]?.start ?? script.length }],
  );
}
