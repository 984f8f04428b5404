/**
 * Returns a function that tests whether a path matches one of the patterns; undefined if there are no patterns.
 *
 * A pattern without a slash, such as `node_modules` or `*.log`, is compared to the last component of the path. A
 * pattern with a slash, such as `build/*.o`, is compared to the whole path. `*` and `?` do not match a slash, but `**`
 * does. `[a-z]` matches one of the characters, and `[!a-z]` one other character. A slash at the beginning or end of a
 * pattern is ignored. Each character of the path stands for a byte ("latin1"), because names need not be UTF-8.
 */
export function matching(patterns: readonly (string | Uint8Array)[]): ((path: string) => boolean) | undefined {
  if (patterns.length === 0) return undefined;
  const expressions = patterns.map(expressionOf);
  return (path) => expressions.some((expression) => expression.test(path));
}

function expressionOf(pattern: string | Uint8Array): RegExp {
  const bytes = Buffer.from(pattern as string).toString("latin1");
  const rest = bytes.replace(/\/+$/, "");
  const isWhole = rest.includes("/");
  const source = rest.replace(/^\/+/, "").replaceAll(/\*\*\/?|\*|\?|\[(!?)(\]?[^\]]*)\]|[^]/g, translated);
  return new RegExp(`${isWhole ? "^" : "(?:^|/)"}${source}$`, "s");
}

/**
 * Translates a token of a pattern to a regular expression. If the token is not a character class, the groups are
 * undefined.
 */
function translated(token: string, negation: string | undefined, members: string | undefined): string {
  if (members !== undefined && members !== "")
    return `[${negation === "!" ? "^/" : ""}${members.replaceAll(/[\\^\]]/g, String.raw`\$&`)}]`;
  if (token.startsWith("**")) return token.endsWith("/") ? "(?:.*/)?" : ".*";
  if (token === "*") return "[^/]*";
  if (token === "?") return "[^/]";
  return token.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}
