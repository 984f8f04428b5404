/** What a copy has done so far. */
export class CopyReport {
  files = 0;
  bytes = 0;
  /** What was left out, and why. */
  readonly skipped: string[] = [];

  skip(name: string, reason: string): void {
    this.skipped.push(`${name}: ${reason}`);
  }
}
