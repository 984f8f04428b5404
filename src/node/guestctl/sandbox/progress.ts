import type { Step, SweepProgress } from "../../sandboxes/index.ts";
import { jsonLine, printable } from "../cli/index.ts";

/** Delay before anything is shown, so that a short operation shows nothing. */
const FIRST_AFTER_MS = 300;
/** Interval at which the progress line is redrawn, because it shows the elapsed seconds. */
const EVERY_MS = 250;
/** Interval between two plain lines about the same step or count. */
const PLAIN_EVERY_MS = 5_000;
/** Assumed width of a terminal that does not report it. */
const USUAL_COLUMNS = 80;
const MIB = 1024 * 1024;
/** Clears the line that the cursor is on. */
export const CLEAR_LINE = "\r\u001b[K";

export interface ProgressOptions {
  /** Show the progress as JSON, one object per line. */
  readonly isForPrograms: boolean;
  /**
   * Whether the command prints results while it runs. Progress is then shown as plain lines, because a redrawn line
   * would be mixed with the results.
   */
  readonly isEndless: boolean;
  /**
   * Whether --verbose prints lines. Progress is then shown as plain lines, because a redrawn line would be mixed with
   * those of --verbose.
   */
  readonly isVerbose: boolean;
}

/**
 * Shows the progress of `guestctl sandbox` on standard error. On a terminal, redraws one line, which shows the step,
 * its duration so far, and the bytes or items done. Elsewhere, prints one line for each step.
 */
export class SandboxProgress implements Disposable {
  readonly #stream: NodeJS.WriteStream;
  readonly #isForPrograms: boolean;
  readonly #isDrawn: boolean;
  readonly #startedMs = performance.now();
  #step: Step | undefined;
  #stepMs = 0;
  #counts: { readonly operation: string; readonly progress: SweepProgress } | undefined;
  /** Time of the last line about each step or operation. Used only if the progress line is not redrawn. */
  readonly #plainMs = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #isShown = false;

  constructor(stream: NodeJS.WriteStream, { isForPrograms, isEndless, isVerbose }: ProgressOptions) {
    this.#stream = stream;
    this.#isForPrograms = isForPrograms;
    this.#isDrawn = stream.isTTY && !isForPrograms && !isEndless && !isVerbose;
  }

  /** Reports the next step of the work, or the progress of the current step. */
  step(step: Step): void {
    const { operation, name, step: what, bytes } = step;
    if (this.#step?.step !== what || this.#step.name !== name) this.#stepMs = performance.now();
    this.#step = step;
    const subject = `${operation} ${name}: ${what}`;
    if (this.#isDrawn) this.#begin();
    else if (bytes === undefined || this.#isDue(subject))
      this.#plain(step, bytes === undefined ? subject : `${subject}: ${bytesWords(bytes)}`);
  }

  /** Reports how many items an operation has finished. */
  counts(operation: string, progress: SweepProgress): void {
    this.#counts = { operation, progress };
    if (this.#isDrawn) this.#begin();
    else if (progress.total > 0 && this.#isDue(operation))
      this.#plain({ operation, ...progress }, `${operation}: ${countWords(progress)}`);
  }

  /** Clears the progress line. */
  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    if (this.#isShown) this.#stream.write(CLEAR_LINE);
  }

  #begin(): void {
    this.#timer ??= setInterval(() => this.#draw(), EVERY_MS).unref();
  }

  #draw(): void {
    const now = performance.now();
    if (now - this.#startedMs < FIRST_AFTER_MS) return;
    const counts = this.#counts && `${this.#counts.operation}: ${countWords(this.#counts.progress)}`;
    const seconds = `${Math.floor((now - this.#stepMs) / 1_000)} s`;
    const step = this.#step && `${this.#step.operation} ${this.#step.name}: ${this.#step.step}`;
    const bytes = this.#step?.bytes && bytesWords(this.#step.bytes);
    const line = [counts, step, bytes, this.#step && seconds].filter((part) => part !== undefined).join("  ");
    this.#isShown = true;
    this.#stream.write(`\r${printable(line).slice(0, (this.#stream.columns || USUAL_COLUMNS) - 1)}\u001b[K`);
  }

  #plain(progress: object, line: string): void {
    this.#stream.write(this.#isForPrograms ? jsonLine({ progress }) : `guestctl: ${line}\n`);
  }

  #isDue(subject: string): boolean {
    const now = performance.now();
    if (now - (this.#plainMs.get(subject) ?? Number.NEGATIVE_INFINITY) < PLAIN_EVERY_MS) return false;
    this.#plainMs.set(subject, now);
    return true;
  }
}

function countWords({ done, total, failed }: SweepProgress): string {
  const failures = failed === 0 ? "" : `, ${failed} failed`;
  return `${done} of ${total} done${failures}`;
}

function bytesWords({ sent, total }: NonNullable<Step["bytes"]>): string {
  return `${(sent / MIB).toFixed(1)} of ${(total / MIB).toFixed(1)} MiB`;
}
