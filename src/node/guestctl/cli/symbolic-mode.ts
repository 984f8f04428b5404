import { UsageError } from "./errors.ts";

/** Computes an entry's new permission bits from its current ones. */
export type ModeChange = (mode: number, isDirectory: boolean) => number;

const WHO = { u: 0o4700, g: 0o2070, o: 0o1007 } as const;
const PERMISSIONS: Readonly<Record<string, number>> = { r: 0o444, w: 0o222, x: 0o111, s: 0o6000, t: 0o1000 };
/**
 * All permission bits. A clause such as `+x`, without "u", "g", "o" or "a", applies to all of them. chmod(1) would
 * apply the umask to such a clause, but the guest's umask is not known.
 */
const ALL = 0o7777;
const CLAUSE = /^([ugoa]*)([-+=])([rwxXst]*)$/;

/**
 * Parses a mode of chmod(1): octal such as `0755`, or symbolic such as `u+x,go-w`, `+x` or `a=rX`. A clause without
 * "u", "g", "o" or "a" means "a". Copies of permissions (`g=u`) are rejected. Throws UsageError.
 */
export function parseModeChange(text: string): ModeChange {
  if (/^0?[0-7]{1,4}$/.test(text)) {
    const mode = Number.parseInt(text, 8);
    return () => mode;
  }
  const clauses = text.split(",").map(clauseOf);
  if (clauses.some((clause) => clause === undefined))
    throw new UsageError(`chmod requires a mode such as 0755, u+x or go-w, not ${JSON.stringify(text)}`);
  return (mode, isDirectory) =>
    clauses.reduce((current, clause) => clause?.(current, isDirectory) ?? current, mode & ALL);
}

function clauseOf(text: string): ModeChange | undefined {
  const [, who = "", operator, letters] = CLAUSE.exec(text) ?? [];
  if (operator === undefined || letters === undefined) return undefined;
  const everybody = who === "" || who.includes("a");
  const whose = everybody ? ALL : who.split("").reduce((bits, each) => bits | WHO[each as keyof typeof WHO], 0);
  return (mode, isDirectory) => {
    // "X" means "x" for directories, and for files that already have an execute bit (chmod(1)).
    const isExecutable = isDirectory || (mode & 0o111) !== 0;
    const named = letters
      .split("")
      .reduce((bits, letter) => bits | (letter === "X" ? (isExecutable ? 0o111 : 0) : (PERMISSIONS[letter] ?? 0)), 0);
    // The sticky bit applies only in a clause for all users, because it does not belong to u, g or o alone.
    const bits = named & (whose | (letters.includes("t") && everybody ? 0o1000 : 0));
    if (operator === "+") return mode | bits;
    if (operator === "-") return mode & ~bits;
    // As in GNU chmod, "=" keeps setuid and setgid of directories unless they are named.
    const cleared = whose & (isDirectory ? ~0o6000 : ALL);
    return (mode & ~cleared) | bits;
  };
}
