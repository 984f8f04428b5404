/** A field of mountinfo (proc(5)), which has blanks and backslashes in octal. */
export function unescaped(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
