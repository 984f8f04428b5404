/** A suite that others wrote, and how it is run against ours. */
export interface Suite {
  /** As on the command line. */
  readonly name: string;
  /** What it judges, in a few words. */
  readonly about: string;
  /** How many cases it has at least: a suite that has fewer was not run as a whole. */
  readonly cases: number;
  /** @throws Unavailable if this machine cannot have the suite; any other error is a failure */
  readonly run: () => Promise<Outcome>;
}

/** Result of a run. */
export interface Outcome {
  /** Of the suite. */
  readonly version: string;
  /** How many cases ran, those that failed included. */
  readonly cases: number;
  readonly failures: readonly Failure[];
}

/** A case that failed. */
export interface Failure {
  readonly name: string;
  /** The actual result, and the expected one. */
  readonly problem: string;
}

/** The suite cannot be installed here; the message says what is missing. */
export class Unavailable extends Error {}
