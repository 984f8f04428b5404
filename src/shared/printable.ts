/**
 * Characters that control a terminal or reorder its text: control characters with DEL and C1 (ISO 6429), line
 * separators, and the controls of bidirectional text (UAX #9), which can disguise a name.
 */
const CONTROLS = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/**
 * Makes text safe to print on a terminal, because it may come from a sandbox: characters that control a terminal are
 * escaped as `\x1b`. Newlines and tabs are kept.
 */
export function printable(text: string): string {
  return text.replaceAll(CONTROLS, (character) =>
    character === "\n" || character === "\t" ? character : escaped(character),
  );
}

/**
 * Makes an error that is the cause of another one safe to print, if Node has created it for a failed system call: its
 * message may contain a file name from a sandbox. Other errors belong to the caller, and are not changed.
 */
export function printableCause(cause: unknown): unknown {
  if (!(cause instanceof Error) || !("syscall" in cause)) return cause;
  cause.message = printable(cause.message);
  if (cause.stack !== undefined) cause.stack = printable(cause.stack);
  return cause;
}

function escaped(character: string): string {
  const code = character.charCodeAt(0);
  return code > 0xff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\x${code.toString(16).padStart(2, "0")}`;
}
