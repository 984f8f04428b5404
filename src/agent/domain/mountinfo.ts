/** A field of mountinfo (proc(5)), which has blanks and backslashes in octal. */
export function unescaped(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/**
 * The mount point that a path lies below, by its name alone: to follow its links might hang. Undefined: none but the
 * root.
 */
export function mountPointOf(path: string, mountinfo: string): string | undefined {
  const points = mountinfo.split("\n").map((line) => unescaped(line.split(" ")[4] ?? ""));
  const above = points.filter((point) => point.length > 1 && `${path}/`.startsWith(`${point}/`));
  return above.toSorted((a, b) => b.length - a.length)[0];
}
