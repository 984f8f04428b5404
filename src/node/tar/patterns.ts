const SLASH = 0x2f;

/**
 * Whether a name of an entry, from the copied directory on, is one that the patterns leave out. A pattern without a
 * slash is about the last part of the name, wherever it is, such as `node_modules` or `*.log`; one with a slash about
 * the whole name, such as `build/*.o`. `*` and `?` match no slash, `**` does, `[a-z]` one of the characters, `[!a-z]`
 * any other one. As in .gitignore, a slash at the beginning or the end says nothing more. Undefined: no pattern.
 */
export function exclusion(patterns: readonly (string | Buffer)[]): ((name: Buffer) => boolean) | undefined {
  if (patterns.length === 0) return undefined;
  const expressions = patterns.map(expressionOf);
  return (name) => {
    // Each character is a byte, as in the patterns: names need not be UTF-8.
    const text = name.toString("latin1");
    return expressions.some((expression) => expression.test(text));
  };
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

function expressionOf(pattern: string | Buffer): RegExp {
  const bytes = Buffer.from(pattern).toString("latin1");
  const rest = bytes.replace(/\/+$/, "");
  const isWhole = rest.includes("/");
  const source = rest.replace(/^\/+/, "").replaceAll(/\*\*\/?|\*|\?|\[(!?)(\]?[^\]]*)\]|[^]/g, translated);
  return new RegExp(`${isWhole ? "^" : "(?:^|/)"}${source}$`, "s");
}

/** Undefined groups: not a class of characters. */
function translated(token: string, negation: string | undefined, members: string | undefined): string {
  if (members !== undefined && members !== "")
    return `[${negation === "!" ? "^/" : ""}${members.replaceAll(/[\\^\]]/g, String.raw`\$&`)}]`;
  if (token.startsWith("**")) return token.endsWith("/") ? "(?:.*/)?" : ".*";
  if (token === "*") return "[^/]*";
  if (token === "?") return "[^/]";
  return token.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}
