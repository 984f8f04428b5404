import type { GuestError } from "../../client/index.ts";
import { jsonLine, printable } from "./output.ts";
import type { SandboxError } from "../../sandboxes/index.ts";
import { flagOf, nextStepOf } from "./next-steps.ts";
import { CliError, STATUS_CANNOT_RUN, STATUS_FAILED, STATUS_NOT_FOUND, UsageError } from "./errors.ts";

const STATUS_BY_REASON: ReadonlyMap<unknown, number> = new Map([
  ["EXEC_NOT_FOUND", STATUS_NOT_FOUND],
  ["EXEC_PERMISSION_DENIED", STATUS_CANNOT_RUN],
  ["EXEC_BAD_FORMAT", STATUS_CANNOT_RUN],
]);

/** What to do about an agent's error, if the failed command has better advice than guestctl in general. */
type Advice = (error: GuestError) => string | undefined;

/** Reports an error on standard error, for people or for programs. Returns the exit status. */
export function reportFailure(
  failure: unknown,
  isForPrograms: boolean,
  host: Pick<NodeJS.Process, "stderr">,
  advice: Advice = () => undefined,
): number {
  // The source's own error says enough.
  const error = isGuestError(failure) && failure.cause instanceof CliError ? failure.cause : failure;
  const lines = failureLine(error, advice).split("\n").map(printable);
  host.stderr.write(isForPrograms ? jsonLine(failureObject(error, advice)) : `guestctl: ${lines.join("\n")}\n`);
  return (isGuestError(error) ? STATUS_BY_REASON.get(error.reason) : undefined) ?? STATUS_FAILED;
}

/** Errors of the libraries are known by their names: their rooms load only with the commands that need them. */
function isNamed(error: unknown, ...names: readonly string[]): error is Error {
  return error instanceof Error && names.includes(error.name);
}

const isGuestError = (error: unknown): error is GuestError => isNamed(error, "GuestError");
const isSandboxError = (error: unknown): error is SandboxError => isNamed(error, "SandboxError");

/** The error, its reason, and what to do; then what the console of a sandbox says about it. */
function failureLine(error: unknown, advice?: Advice): string {
  if (isGuestError(error)) {
    const { status, code } = error;
    const cause = code === status ? status : `${status}, ${code}`;
    return withNextStep(`${wordsOf(error)} [${cause}]`, advice?.(error) ?? hintFor(error));
  }
  if (isSandboxError(error)) {
    const { message, code, consoleTail } = error;
    return [
      withNextStep(`${message} [${code}]`, nextStepOf(error)),
      ...consoleTail.map((line) => `  console: ${line}`),
    ].join("\n");
  }
  if (error instanceof UsageError) return `${error.message} (see --help)`;
  if (isNamed(error, "CliError", "CredentialsError", "TarError")) return error.message;
  // A fault of guestctl: only the stack helps.
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function withNextStep(line: string, nextStep: string | undefined): string {
  return nextStep === undefined ? line : `${line}; ${nextStep}`;
}

/** The error, for programs. */
export function failureObject(error: unknown, advice?: Advice): object {
  if (isGuestError(error)) {
    const { status, code, reason, metadata } = error;
    return {
      error: {
        status,
        code,
        reason,
        message: wordsOf(error),
        metadata,
        next_step: advice?.(error) ?? hintFor(error),
      },
    };
  }
  if (isSandboxError(error)) {
    const { code, message, consoleTail } = error;
    const tail = consoleTail.length === 0 ? undefined : consoleTail;
    return { error: { code, message, next_step: nextStepOf(error), console_tail: tail } };
  }
  return { error: { message: failureLine(error) } };
}

/** The message, with guestctl's name of the option that it is about. */
function wordsOf(error: GuestError): string {
  const flag = flagOf(error);
  return flag === undefined ? error.message : error.messageWith(flag);
}

/** The next step, in guestctl's words. */
function hintFor(error: GuestError): string | undefined {
  const { code, metadata } = error;
  if (code === "PATH_NOT_FOUND" && /[*?[]/.test(metadata["path"] ?? ""))
    return 'patterns are not expanded here, as by a shell: guestctl exec -- sh -c "…"';
  return nextStepOf(error);
}
