import { writeSync } from "node:fs";

const STDERR = 2;

/**
 * Keeps Node from opening standard error, which it does by itself when some of its modules load, to learn about colours.
 * That would make the stream non-blocking for all who share it: the workload's writes would fail whenever it is full.
 */
export function leaveStandardErrorBlocking(): void {
  Object.defineProperty(process, "stderr", { value: undefined });
}

/** Prints a line for a person, when there is no log yet or any more. */
export function complain(line: string): void {
  writeSync(STDERR, `guest-agent: ${line}\n`);
}
