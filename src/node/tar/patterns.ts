import { matching } from "../../shared/patterns.ts";
import { EventLoopTurns } from "./event-loop.ts";

const SLASH = 0x2f;

/**
 * Returns a function that decides whether the patterns exclude an entry, given its path relative to the copied
 * directory. Undefined if there are no patterns.
 */
export function exclusion(patterns: readonly (string | Buffer)[]): ((name: Buffer) => boolean) | undefined {
  const matches = matching(patterns);
  return matches && ((name) => matches(name.toString("latin1")));
}

/** Returns the entries that no pattern excludes. A pattern also excludes everything below a directory that it matches. */
export function withoutExcluded<Entry extends { readonly name: Buffer }>(
  entries: AsyncIterable<Entry>,
  patterns: readonly (string | Buffer)[],
): AsyncIterable<Entry> {
  const isExcluded = exclusion(patterns);
  return isExcluded === undefined ? entries : others(entries, isExcluded);
}

async function* others<Entry extends { readonly name: Buffer }>(
  entries: AsyncIterable<Entry>,
  isExcluded: (name: Buffer) => boolean,
): AsyncGenerator<Entry> {
  const turns = new EventLoopTurns();
  for await (const entry of entries) {
    if (turns.isDue) await turns.next();
    const { name } = entry;
    let isOut = isExcluded(name);
    for (let at = name.indexOf(SLASH); at > 0 && !isOut; at = name.indexOf(SLASH, at + 1))
      isOut = isExcluded(name.subarray(0, at));
    if (!isOut) yield entry;
  }
}
