import type { ErrorCode, GuestError } from "../../client/index.ts";
import { jsonLine, printable } from "./output.ts";
import type { Remedy, SandboxCode, SandboxError } from "../../sandboxes/index.ts";
import { endWaiting } from "./waiting.ts";
import { CliError, STATUS_CANNOT_RUN, STATUS_FAILED, STATUS_NOT_FOUND, UsageError } from "./errors.ts";

const STATUS_BY_REASON: ReadonlyMap<unknown, number> = new Map([
  ["EXEC_NOT_FOUND", STATUS_NOT_FOUND],
  ["EXEC_PERMISSION_DENIED", STATUS_CANNOT_RUN],
  ["EXEC_BAD_FORMAT", STATUS_CANNOT_RUN],
]);

/** Returns a command's advice about an agent's error; undefined if guestctl's general advice applies. */
type Advice = (error: GuestError) => string | undefined;

/** Writes an error to standard error, as text or as JSON. Returns the exit status. */
export function reportFailure(
  failure: unknown,
  isForPrograms: boolean,
  host: Pick<NodeJS.Process, "stderr">,
  advice: Advice = () => undefined,
): number {
  endWaiting();
  const error = ownError(failure);
  const lines = failureLines(error, advice).map(printable);
  host.stderr.write(isForPrograms ? jsonLine(failureObject(error, advice)) : `guestctl: ${lines.join("\n")}\n`);
  return (isGuestError(error) ? STATUS_BY_REASON.get(error.reason) : undefined) ?? STATUS_FAILED;
}

/**
 * Returns the error to report. If a copy failed because a local source cannot be read, this is the error of the source,
 * whose message says everything.
 */
function ownError(error: unknown): unknown {
  return isGuestError(error) && isTold(error.cause) ? error.cause : error;
}

/**
 * Errors of the libraries are recognized by their names and properties, because importing their classes would load
 * modules that most commands do not need.
 */
function isNamed(error: unknown, ...names: readonly string[]): error is Error {
  return error instanceof Error && names.includes(error.name);
}

const isGuestError = (error: unknown): error is GuestError => error instanceof Error && "retryable" in error;
/** Whether an error was detected on this machine and its message can be shown as it is. */
const isTold = (error: unknown): error is Error =>
  error instanceof CliError || isNamed(error, "CredentialsError", "EntryError", "TarError", "UnpackError");
const isSandboxError = (error: unknown): error is SandboxError => error instanceof Error && "consoleTail" in error;

/** Formats the error, its reason and the next step in one line. A bug of guestctl is shown with its stack. */
export function failureWords(failure: unknown, advice?: Advice): string {
  const error = ownError(failure);
  if (isGuestError(error)) {
    const { status, code } = error;
    const cause = code === status ? status : `${status}, ${code}`;
    return withNextStep(`${wordsOf(error)} [${cause}]`, advice?.(error) ?? hintFor(error));
  }
  if (isSandboxError(error)) return withNextStep(`${error.message} [${error.code}]`, nextStepOf(error));
  if (error instanceof UsageError) return `${error.message} (see --help)`;
  if (isTold(error)) return error.message;
  // Any other error is a bug of guestctl, so print its stack.
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/**
 * Formats the error, followed by the last lines of the sandbox's console. The console lines are indented, so that a
 * sandbox cannot print a line that looks like one of guestctl.
 */
function failureLines(error: unknown, advice?: Advice): string[] {
  const words = failureWords(error, advice);
  if (isSandboxError(error)) return [words, ...error.consoleTail.map((line) => `  console: ${line}`)];
  return isGuestError(error) || isTold(error) ? [words] : words.split("\n");
}

function withNextStep(line: string, nextStep: string | undefined): string {
  return nextStep === undefined ? line : `${line}; ${nextStep}`;
}

/** The error as an object for JSON output. */
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
  return { error: { message: failureWords(error) } };
}

/**
 * Returns the error's message. If it names an option of the library, replaces that name by guestctl's name for the
 * option.
 */
function wordsOf(error: GuestError): string {
  const flag = flagOf(error);
  return flag === undefined ? error.message : error.messageWith(flag);
}

/** Says what to do next. Names guestctl's commands instead of the library's methods. */
function hintFor(error: GuestError): string | undefined {
  const { code, metadata } = error;
  if (code === "PATH_NOT_FOUND" && /[*?[]/.test(metadata["path"] ?? ""))
    return 'patterns are not expanded here, as by a shell: guestctl exec -- sh -c "…"';
  return nextStepOf(error);
}

/** Reasons of the agent for which guestctl suggests one of its own commands as the next step. */
type Reason = "EXEC_NAME_IN_USE" | "TOO_MANY_KEPT_BYTES" | "TOO_MANY_KEPT_EXECS" | "UNAUTHENTICATED";

/**
 * guestctl's names for the library's options. A Map is used instead of an object, because an agent may send any name,
 * such as `__proto__`.
 */
const FLAGS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    "keep.name": "--name",
    "keep.bufferBytes": "--buffer",
    "keep.lingerMs": "--linger",
    "keep.awakeForMs": "--awake-for",
    "keep.replaceEnded": "--replace",
    beneath: "the destination",
    caPem: "ca.pem",
    certPem: "client.pem",
    keyPem: "client.key",
    cwd: "--workdir",
    exclusive: "--exclusive",
    flag: "--exclusive",
    freezeMs: "--freeze",
    graceMs: "--grace",
    intervalMs: "--interval",
    parents: "--parents",
    recursive: "rm -r",
    serverName: "--server-name",
    stderrOffset: "--from-offset",
    stdoutOffset: "--from-offset",
    timeoutMs: "--timeout",
  }),
);

/**
 * Next steps by error code. They replace the library's advice where it names the library's methods and options, which
 * users of guestctl do not know.
 */
const GUESTCTL_NEXT_STEPS: Readonly<Partial<Record<ErrorCode | SandboxCode | Reason, string>>> = {
  COMMAND_CUT_OFF: "start the command with --name, so that it outlives its connection",
  EXEC_NAME_IN_USE:
    '"guestctl attach" attaches to the command with this name, "guestctl end" ends it and frees its name',
  KEEP_UNSUPPORTED: "update the agent, or run the command without --name",
  SERVER_CERTIFICATE_UNTRUSTED: "put the certificate of the authority that issued the agent's certificate into ca.pem",
  SERVER_NAME_MISMATCH: "set --server-name to the name in the agent's certificate",
  TOO_MANY_KEPT_BYTES: '"guestctl execs" lists the kept commands, "guestctl end" removes one with its output',
  TOO_MANY_KEPT_EXECS: '"guestctl execs" lists the kept commands, "guestctl end" ends and removes one',
  UNAUTHENTICATED:
    "put the current token of this instance into the directory of --credentials; a restore may have replaced the old token",
  // Codes of the sandbox library.
  BUNDLE_MISMATCH:
    "use the same hypervisor and agent version as at the suspension, create the sandbox or snapshot again, or pass --accept-bundle to accept the difference",
  NODE_ID_CONFLICT: "give each node its own id; if the journal was lost, run a sweep with --take-over",
  NOT_FROZEN:
    "fix the freeze problem (the agent's docs explain each one), or use --freeze on, which suspends the sandbox even if the freeze fails",
  RESTORE_DEGRADED:
    "the message lists what the agent could not do; --accept-degraded keeps the fork anyway, but another guest may then draw the same random numbers",
};

/** For each kind of the library's remedies, the command of guestctl that does the same. */
const REMEDIES: Readonly<Record<Remedy["kind"], (name: string) => string>> = {
  resume: (name) => `run this first: guestctl sandbox resume ${name}`,
  start: (name) => `boot it again: guestctl sandbox start ${name}`,
  wake: (name) => `when the host has enough free resources, resume it: guestctl sandbox resume ${name}`,
  fork: (name) => `make a sandbox from it: guestctl sandbox fork ${name}`,
  resumeAgain: (name) =>
    `${name} stays frozen for some minutes; within this time, resume it again with other variables, or without --env: guestctl sandbox resume ${name}`,
  suspendFirst: (name) =>
    `boot it without --env; then run guestctl sandbox standby ${name} and guestctl sandbox resume ${name} --env`,
  acceptUnfrozen: () =>
    "fix the freeze problem (the agent's docs explain each one), and suspend the sandbox again, with --freeze required, which fails if the session cannot be frozen; or pass --accept-unfrozen if several sandboxes may have the same secrets",
  list: () => "guestctl sandbox ls lists the sandboxes of this node; -H ADDRESS chooses any other agent",
  elsewhere: () => "run the command on that node, or name the directory of its journal with --state",
  archive: () =>
    'name the agent\'s .tar.gz archive with --agent or GUESTCTL_AGENT; "npm run build" of the project makes dist/guest-agent-VERSION-linux-ARCH.tar.gz',
};

/** The fields of an error that determine its next step. */
type Advised = { readonly code: string } & Partial<Pick<GuestError, "nextStep"> & Pick<SandboxError, "remedy">>;

/** guestctl's name for the option that an error is about; undefined if the library's name is used. */
function flagOf({ option = "" }: GuestError): string | undefined {
  return FLAGS.get(option);
}

/** What the user should do about a library's error. Undefined if the message says that already. */
export function nextStepOf({ code, nextStep, remedy }: Advised): string | undefined {
  if (remedy !== undefined) return REMEDIES[remedy.kind](remedy.name);
  return new Map(Object.entries(GUESTCTL_NEXT_STEPS)).get(code) ?? nextStep;
}
