import { matching } from "../../shared/patterns.ts";

const SLASH = 0x2f;

/** Whether a name of an entry, from the copied directory on, is one that the patterns leave out. Undefined: no pattern. */
export function exclusion(patterns: readonly (string | Buffer)[]): ((name: Buffer) => boolean) | undefined {
  const matches = matching(patterns);
  return matches && ((name) => matches(name.toString("latin1")));
}

/** The entries that no pattern leaves out, nor a directory above them. */
export async function* withoutExcluded<Entry extends { readonly name: Buffer }>(
  entries: AsyncIterable<Entry>,
  patterns: readonly (string | Buffer)[],
): AsyncGenerator<Entry> {
  const isExcluded = exclusion(patterns);
  if (isExcluded === undefined) {
    yield* entries;
    return;
  }
  for await (const entry of entries) {
    const { name } = entry;
    let isOut = isExcluded(name);
    for (let at = name.indexOf(SLASH); at > 0 && !isOut; at = name.indexOf(SLASH, at + 1))
      isOut = isExcluded(name.subarray(0, at));
    if (!isOut) yield entry;
  }
}
