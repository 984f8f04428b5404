import { printable } from "./output.ts";

/** Delay before anything is shown, so that a short operation shows nothing. */
const FIRST_AFTER_MS = 300;
/** Interval at which the line is redrawn, because the seconds in it must advance. */
const EVERY_MS = 250;
/** If an operation takes longer than this, its result says how long it took. */
export const LONG_MS = 1_000;
const CLEAR_LINE = "\r\u001b[K";

/** The value of an operation, and how long it took. */
export interface Timed<Value> {
  readonly value: Value;
  readonly durationMs: number;
}

/** For each operation that is in progress, a function that ends its display. The operation that began last comes last. */
const shownWaits: (() => void)[] = [];

/**
 * Waits for an operation. On a terminal, shows during that time what guestctl waits for, and for how many seconds. This
 * is one line on standard error, which is cleared at the end. If several operations are in progress, the one that began
 * last is shown.
 *
 * @param operation receives a function that writes a line to standard error, above the line that shows the operation
 */
export async function waitedFor<Value>(
  what: string,
  { stderr }: Pick<NodeJS.Process, "stderr">,
  operation: (note: (line: string) => void) => Promise<Value>,
  firstAfterMs: number = FIRST_AFTER_MS,
): Promise<Timed<Value>> {
  const startedMs = performance.now();
  let isShown = false;
  const clear = (): void => {
    if (isShown) stderr.write(CLEAR_LINE);
    isShown = false;
  };
  const draw = (): void => {
    const elapsedMs = performance.now() - startedMs;
    if (elapsedMs < firstAfterMs || shownWaits.at(-1) !== end) return;
    isShown = true;
    stderr.write(`\r${printable(what)}  ${Math.floor(elapsedMs / 1_000)} s\u001b[K`);
  };
  const timer = stderr.isTTY ? setInterval(draw, EVERY_MS).unref() : undefined;
  const end = (): void => {
    clearInterval(timer);
    clear();
    const at = shownWaits.indexOf(end);
    if (at >= 0) shownWaits.splice(at, 1);
  };
  if (timer !== undefined) shownWaits.push(end);
  try {
    const value = await operation((line) => {
      clear();
      stderr.write(line);
    });
    return { value, durationMs: Math.round(performance.now() - startedMs) };
  } finally {
    end();
  }
}

/** Clears the lines of all operations, before guestctl reports why it ends. */
export function endWaiting(): void {
  for (const end of shownWaits.toReversed()) end();
}

/**
 * Adds to the last line of a result how long the operation took. Does so only if the operation took at least a second
 * and standard output is a terminal.
 */
export function withDuration(text: string, durationMs: number, { stdout }: Pick<NodeJS.Process, "stdout">): string {
  if (!stdout.isTTY || durationMs < LONG_MS || text === "") return text;
  return text.replace(/\n?$/, ` (${(durationMs / 1_000).toFixed(1)} s)\n`);
}
