import {
  AgentError,
  type CommandSpec,
  type Failure,
  SpawnAborted,
  type SpawnError,
  type SpawnStep,
  type StatusName,
} from "../domain/index.ts";

const notFound = (problem: string): Failure => ["NOT_FOUND", "EXEC_NOT_FOUND", problem];
const denied = (problem: string): Failure => ["PERMISSION_DENIED", "EXEC_PERMISSION_DENIED", problem];
const badFormat = (problem: string): Failure => ["FAILED_PRECONDITION", "EXEC_BAD_FORMAT", problem];
const badCwd = (status: StatusName, problem: string): Failure => [status, "EXEC_BAD_CWD", problem];

const LIMIT: Failure = [
  "RESOURCE_EXHAUSTED",
  "EXEC_RESOURCE_LIMIT",
  "the guest is out of processes, descriptors or memory; try again later",
];

const LIMIT_ERRNOS: ReadonlySet<string> = new Set(["EAGAIN", "ENOMEM", "EMFILE", "ENFILE"]);

/** Errors of execve(2), with what each means for the command. */
const EXECVE: Readonly<Record<string, Failure>> = {
  ENOENT: notFound("no such command, or its interpreter is missing; check the command's name and PATH"),
  ENOTDIR: notFound("a component of the command's path is not a directory"),
  ELOOP: notFound("too many symbolic links on the command's path"),
  ENAMETOOLONG: ["INVALID_ARGUMENT", "EXEC_NOT_FOUND", "the command's path is too long"],
  EACCES: denied("the command is a directory, is not executable, or is in a directory that its user may not access"),
  EPERM: denied("the guest's kernel does not permit executing the command"),
  ENOEXEC: badFormat(
    "not a program for this machine (a script needs a #! line, because the agent does not try a shell)",
  ),
  ELIBBAD: badFormat("its interpreter is not an executable program"),
  EINVAL: badFormat("not a valid program"),
  ETXTBSY: [
    "FAILED_PRECONDITION",
    "EXEC_TEXT_BUSY",
    "the command's file is open for writing; try again when it is closed",
  ],
  E2BIG: [
    "RESOURCE_EXHAUSTED",
    "EXEC_ARGS_TOO_LONG",
    "arguments and environment exceed the kernel's limit (execve(2)); pass large data through stdin or a file",
  ],
};

/** Errors of chdir(2), with what each means for the working directory. */
const CHDIR: Readonly<Record<string, Failure>> = {
  ENOENT: badCwd("NOT_FOUND", "the working directory does not exist"),
  ENOTDIR: badCwd("FAILED_PRECONDITION", "the working directory is not a directory"),
  EACCES: badCwd("PERMISSION_DENIED", "its user may not access the working directory"),
};

const IDENTITY: Failure = [
  "PERMISSION_DENIED",
  "EXEC_BAD_USER",
  "the agent may not switch to that user; this requires CAP_SETUID and CAP_SETGID, and ids that the user namespace maps",
];

const SETUP: Failure = ["INTERNAL", "EXEC_SETUP_FAILED", "the process could not be set up"];

/** The failure for each step, for an errno that no other table contains. A step that is missing here fails as SETUP. */
const STEPS: Readonly<Partial<Record<SpawnStep, Failure>>> = {
  execve: ["FAILED_PRECONDITION", "EXEC_SETUP_FAILED", "the command cannot be executed"],
  chdir: badCwd("FAILED_PRECONDITION", "the working directory cannot be entered"),
  setgroups: IDENTITY,
  setgid: IDENTITY,
  setuid: IDENTITY,
  terminal: [
    "FAILED_PRECONDITION",
    "EXEC_SETUP_FAILED",
    "no terminal is available (it requires /dev/ptmx); run the command without one",
  ],
  killed: ["CANCELLED", "CANCELLED", "the command was stopped while it was starting"],
};

function classify(step: SpawnStep, errno: string): Failure {
  if (LIMIT_ERRNOS.has(errno)) return LIMIT;
  const ofErrno = step === "execve" ? EXECVE[errno] : step === "chdir" ? CHDIR[errno] : undefined;
  return ofErrno ?? STEPS[step] ?? SETUP;
}

/** Limit for one argument or variable with its NUL: 32 pages (MAX_ARG_STRLEN of execve(2)). A page has at least 4 KiB. */
const STRING_LIMIT_BYTES: number = 32 * 4096;

/** Describes the first argument or variable that alone exceeds the limit. Returns undefined if there is none. */
function oversizedString({ args, env }: Pick<CommandSpec, "args" | "env">): string | undefined {
  const argument = args.findIndex((text) => Buffer.byteLength(text) >= STRING_LIMIT_BYTES);
  const variable = [...env].find(([name, value]) => Buffer.byteLength(`${name}=${value}`) >= STRING_LIMIT_BYTES);
  if (argument < 0 && variable === undefined) return undefined;
  const what = variable === undefined || argument >= 0 ? `argument ${argument}` : `the variable ${variable[0]}`;
  return `${what} exceeds ${STRING_LIMIT_BYTES - 1} bytes, the kernel's limit for one string (execve(2))`;
}

/** The error for a command that could not be started. Its metadata contain the step and the errno. */
export function startFailure(
  error: SpawnError,
  { args, env, cwd }: Pick<CommandSpec, "args" | "env" | "cwd">,
): AgentError {
  const command = args[0] ?? "";
  if (error instanceof SpawnAborted && error.waited !== undefined) return startHung(error, command, cwd);
  const [status, reason, general] = classify(error.step, error.errno);
  const oversized = error.errno === "E2BIG" ? oversizedString({ args, env }) : undefined;
  const problem = oversized === undefined ? general : `${oversized}; pass large data through stdin or a file`;
  const isDirectory = error.step === "chdir";
  const about = isDirectory ? cwd : command;
  const what = isDirectory
    ? `${problem}: ${JSON.stringify(about)}`
    : `cannot start ${JSON.stringify(about)}: ${problem}`;
  const message = `${what} (${error.step}: ${error.errno})`;
  return new AgentError(status, reason, message, { step: error.step, errno: error.errno, path: about }, error);
}

/** The error for a start that was cancelled while it waited for the file system of its directory or program. */
function startHung(error: SpawnAborted, command: string, cwd: string): AgentError {
  const { step = "execve", mount } = error.waited ?? {};
  const path = step === "chdir" ? cwd : command;
  const where = mount === undefined ? "its file system" : `the file system mounted at ${JSON.stringify(mount)}`;
  const entering = step === "chdir" ? `cannot enter ${JSON.stringify(cwd)}: ` : "";
  const problem = `${where} did not respond in time; unmount it, or try again when it responds`;
  const message = `cannot start ${JSON.stringify(command)}: ${entering}${problem} (${step}: ETIMEDOUT)`;
  const metadata = { step, errno: "ETIMEDOUT", path, ...(mount !== undefined && { mount }) };
  return new AgentError("FAILED_PRECONDITION", "EXEC_SETUP_FAILED", message, metadata, error);
}
