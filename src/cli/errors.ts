/** Something that guestctl itself cannot do. The message says what is wrong and what to do. */
export class CliError extends Error {
  override readonly name: string = "CliError";
}

/** The command line is wrong. */
export class UsageError extends CliError {
  override readonly name = "UsageError";
}
