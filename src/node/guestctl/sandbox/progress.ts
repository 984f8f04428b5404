import type { Step, SweepProgress } from "../../sandboxes/index.ts";
import { jsonLine, printable } from "../cli/index.ts";

/** Before anything is shown: a short operation leaves nothing to look at. */
const FIRST_AFTER_MS = 300;
/** Between two times that the line is drawn. The seconds in it must go on. */
const EVERY_MS = 250;
/** Between two plain lines about the same step or count. */
const PLAIN_EVERY_MS = 5_000;
/** For terminals of unknown width. */
const USUAL_COLUMNS = 80;
const MIB = 1024 * 1024;
/** Clears the line that the cursor is on. */
export const CLEAR_LINE = "\r\u001b[K";

/** How progress is shown. */
export interface ProgressOptions {
  /** As objects, a line each. */
  readonly isForPrograms: boolean;
  /** The command has results while it works, which a line that is drawn again would be mixed with. */
  readonly isEndless: boolean;
}

/**
 * The progress of `guestctl sandbox` on standard error: one line that is drawn again on a terminal, with the step, its
 * seconds and how much is done; elsewhere a line for each step.
 */
export class SandboxProgress implements Disposable {
  readonly #stream: NodeJS.WriteStream;
  readonly #isForPrograms: boolean;
  readonly #isDrawn: boolean;
  readonly #startedMs = performance.now();
  #step: Step | undefined;
  #stepMs = 0;
  #counts: { readonly operation: string; readonly progress: SweepProgress } | undefined;
  /** When the last plain line about each subject was written. */
  readonly #plainMs = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #isShown = false;

  constructor(stream: NodeJS.WriteStream, { isForPrograms, isEndless }: ProgressOptions) {
    this.#stream = stream;
    this.#isForPrograms = isForPrograms;
    this.#isDrawn = stream.isTTY && !isForPrograms && !isEndless;
  }

  /** The next step of the work, or how far the present one is. */
  step(step: Step): void {
    const { operation, name, step: what, bytes } = step;
    if (this.#step?.step !== what || this.#step.name !== name) this.#stepMs = performance.now();
    this.#step = step;
    const subject = `${operation} ${name}: ${what}`;
    if (this.#isDrawn) this.#begin();
    else if (bytes === undefined || this.#isDue(subject))
      this.#plain(step, bytes === undefined ? subject : `${subject}: ${bytesWords(bytes)}`);
  }

  /** How many of its things an operation is done with. */
  counts(operation: string, progress: SweepProgress): void {
    this.#counts = { operation, progress };
    if (this.#isDrawn) this.#begin();
    else if (progress.total > 0 && this.#isDue(operation))
      this.#plain({ operation, ...progress }, `${operation}: ${countWords(progress)}`);
  }

  /** Clears the line. */
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
  return `${done} of ${total} done${failed === 0 ? "" : `, ${failed} failed`}`;
}

function bytesWords({ sent, total }: NonNullable<Step["bytes"]>): string {
  return `${(sent / MIB).toFixed(1)} of ${(total / MIB).toFixed(1)} MiB`;
}
