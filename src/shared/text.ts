/** Breaks a text at blanks into lines of at most `width` characters. A longer word gets a line of its own. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/**
 * Number of typing errors that are accepted in a name. No error is accepted in a short name, because it often changes
 * it to another short name (such as tar and stat, or up and cp).
 */
function errorLimit(name: string): number {
  if (name.length < 4) return 0;
  return name.length < 8 ? 1 : 2;
}

/**
 * Returns the known name that was probably meant: the most similar one, with at most two typing errors. Undefined if no
 * name is similar enough.
 */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const near = Array.from(known, (each) => ({ each, distance: distance(name, each) }))
    .filter((candidate) => candidate.distance <= Math.min(errorLimit(name), errorLimit(candidate.each)))
    .toSorted((a, b) => a.distance - b.distance);
  return near[0]?.each;
}

/**
 * Smallest number of letters to insert, delete, replace, or exchange with the next letter, to turn `from` into `to`
 * (optimal string alignment distance; Damerau, 1964).
 */
function distance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 0; row < from.length; row += 1) {
    const current = [row + 1];
    for (let column = 0; column < to.length; column += 1) {
      const replaced = (previous[column] ?? 0) + (from[row] === to[column] ? 0 : 1);
      const isExchanged = row > 0 && from[row] === to[column - 1] && from[row - 1] === to[column];
      const exchanged = isExchanged ? (beforeLast[column - 1] ?? 0) + 1 : Infinity;
      current.push(Math.min(replaced, exchanged, (previous[column + 1] ?? 0) + 1, (current[column] ?? 0) + 1));
    }
    beforeLast = previous;
    previous = current;
  }
  return previous.at(-1) ?? 0;
}
