import { GuestError } from "../client/index.ts";
import { CredentialsError } from "../credentials/index.ts";
import { jsonLine, printable } from "./output.ts";
import type { SandboxError } from "../sandboxes/index.ts";
import { TarError } from "../tar/index.ts";
import { CliError, STATUS_CANNOT_RUN, STATUS_FAILED, STATUS_NOT_FOUND, UsageError } from "./errors.ts";

const STATUS_BY_REASON: ReadonlyMap<unknown, number> = new Map([
  ["EXEC_NOT_FOUND", STATUS_NOT_FOUND],
  ["EXEC_PERMISSION_DENIED", STATUS_CANNOT_RUN],
  ["EXEC_BAD_FORMAT", STATUS_CANNOT_RUN],
]);

/** Reports an error on standard error, for people or for programs. Returns the exit status. */
export function reportFailure(failure: unknown, isForPrograms: boolean, host: Pick<NodeJS.Process, "stderr">): number {
  // The error of reading a copy's source is enough.
  const error = failure instanceof GuestError && failure.cause instanceof CliError ? failure.cause : failure;
  const lines = failureLine(error).split("\n").map(printable);
  host.stderr.write(isForPrograms ? jsonLine(failureObject(error)) : `guestctl: ${lines.join("\n")}\n`);
  return (error instanceof GuestError ? STATUS_BY_REASON.get(error.reason) : undefined) ?? STATUS_FAILED;
}

/** By its name: the room of sandboxes loads with the one command that needs it. */
function isSandboxError(error: unknown): error is SandboxError {
  return error instanceof Error && error.name === "SandboxError";
}

/** One line: the error, its reason, and what to do. */
function failureLine(error: unknown): string {
  if (error instanceof GuestError) {
    const { status, reason, message } = error;
    const cause = reason === undefined || reason === status ? status : `${status}, ${reason}`;
    return withNextStep(`${message} [${cause}]`, hintFor(error));
  }
  if (isSandboxError(error)) return withNextStep(`${error.message} [${error.code}]`, error.nextStep);
  if (error instanceof UsageError) return `${error.message} (see --help)`;
  if (error instanceof CliError || error instanceof CredentialsError || error instanceof TarError) return error.message;
  // A fault of guestctl: only the stack helps.
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function withNextStep(line: string, nextStep: string | undefined): string {
  return nextStep === undefined ? line : `${line}; ${nextStep}`;
}

/** The error, for programs. */
export function failureObject(error: unknown): object {
  if (error instanceof GuestError) {
    const { status, reason, message, metadata } = error;
    return { error: { status, reason, message, metadata, next_step: hintFor(error) } };
  }
  if (isSandboxError(error)) {
    const { code, message, nextStep } = error;
    return { error: { code, message, next_step: nextStep } };
  }
  return { error: { message: failureLine(error) } };
}

/** The next step, with guestctl's own options. */
function hintFor(error: GuestError): string | undefined {
  const { status, reason, message } = error;
  if (status === "UNAUTHENTICATED") return "the token of --credentials is not that of this agent";
  if (status !== "UNAVAILABLE" || reason !== undefined) return error.nextStep;
  if (/altname/i.test(message)) return "the agent's certificate has another name; give it with --server-name";
  if (/certificate/i.test(message) && !/expired|not yet valid/i.test(message))
    return "the agent's certificate is not of the authority in --credentials";
  if (/closed before it was ready/.test(message)) {
    return "the agent may not accept the client certificate in --credentials";
  }
  return error.nextStep;
}
