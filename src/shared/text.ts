/** Lines of at most `width` characters, broken at blanks. A longer word gets a line of its own. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** Allows typing errors, but not other words. */
const DISTANCE_LIMIT = 2;

/** The known name that is most similar, within two letters and half of its own; undefined if none is similar. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const near = Array.from(known, (each) => ({ each, distance: distance(name, each) }))
    .filter((candidate) => candidate.distance <= DISTANCE_LIMIT && 2 * candidate.distance <= candidate.each.length)
    .toSorted((a, b) => a.distance - b.distance);
  return near[0]?.each;
}

/** Number of letters to insert, delete or replace (Levenshtein, 1966). */
function distance(from: string, to: string): number {
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let row = 0; row < from.length; row += 1) {
    const current = [row + 1];
    for (let column = 0; column < to.length; column += 1) {
      const replaced = (previous[column] ?? 0) + (from[row] === to[column] ? 0 : 1);
      current.push(Math.min(replaced, (previous[column + 1] ?? 0) + 1, (current[column] ?? 0) + 1));
    }
    previous = current;
  }
  return previous.at(-1) ?? 0;
}
