/**
 * Whether a path matches one of the patterns. A pattern without a slash is about the last part of the path, wherever it
 * is, such as `node_modules` or `*.log`; one with a slash about the whole path, such as `build/*.o`. `*` and `?` match
 * no slash, `**` does, `[a-z]` one of the characters, `[!a-z]` any other one. As in .gitignore, a slash at the
 * beginning or the end says nothing more. Each character of the path is a byte ("latin1"): names need not be UTF-8.
 * Undefined: no pattern.
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

/** Undefined groups: not a class of characters. */
function translated(token: string, negation: string | undefined, members: string | undefined): string {
  if (members !== undefined && members !== "")
    return `[${negation === "!" ? "^/" : ""}${members.replaceAll(/[\\^\]]/g, String.raw`\$&`)}]`;
  if (token.startsWith("**")) return token.endsWith("/") ? "(?:.*/)?" : ".*";
  if (token === "*") return "[^/]*";
  if (token === "?") return "[^/]";
  return token.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}
