import { AgentError, type Reason, type SpawnError, type SpawnStep, type StatusName } from "../domain/index.ts";

interface Failure {
  readonly status: StatusName;
  readonly reason: Reason;
  readonly problem: string;
}

const LIMIT: Failure = {
  status: "RESOURCE_EXHAUSTED",
  reason: "EXEC_RESOURCE_LIMIT",
  problem: "the guest has no more processes, descriptors or memory to start it with; try again later",
};

const LIMIT_ERRNOS: ReadonlySet<string> = new Set(["EAGAIN", "ENOMEM", "EMFILE", "ENFILE"]);

/** execve(2): what each errno says about the command. */
const EXECVE: Readonly<Record<string, Failure>> = {
  ENOENT: {
    status: "NOT_FOUND",
    reason: "EXEC_NOT_FOUND",
    problem: "no such command (or the interpreter that it names is missing); check args[0] and PATH",
  },
  ENOTDIR: {
    status: "NOT_FOUND",
    reason: "EXEC_NOT_FOUND",
    problem: "a part of the command's path is not a directory",
  },
  ELOOP: { status: "NOT_FOUND", reason: "EXEC_NOT_FOUND", problem: "too many symbolic links on the command's path" },
  ENAMETOOLONG: { status: "INVALID_ARGUMENT", reason: "EXEC_NOT_FOUND", problem: "the command's path is too long" },
  EACCES: {
    status: "PERMISSION_DENIED",
    reason: "EXEC_PERMISSION_DENIED",
    problem: "the command is a directory, is not executable, or lies where its user may not go",
  },
  EPERM: {
    status: "PERMISSION_DENIED",
    reason: "EXEC_PERMISSION_DENIED",
    problem: "the guest's kernel does not permit to execute the command",
  },
  ENOEXEC: {
    status: "FAILED_PRECONDITION",
    reason: "EXEC_BAD_FORMAT",
    problem: "not a program for this machine (a script needs a #! line; no shell is tried)",
  },
  ELIBBAD: { status: "FAILED_PRECONDITION", reason: "EXEC_BAD_FORMAT", problem: "its interpreter is not a program" },
  EINVAL: { status: "FAILED_PRECONDITION", reason: "EXEC_BAD_FORMAT", problem: "not a valid program" },
  ETXTBSY: {
    status: "FAILED_PRECONDITION",
    reason: "EXEC_TEXT_BUSY",
    problem: "the command's file is open for writing; try again when its writer has closed it",
  },
  E2BIG: {
    status: "RESOURCE_EXHAUSTED",
    reason: "EXEC_ARGS_TOO_LONG",
    problem:
      "arguments and environment are larger than the kernel takes (execve(2)); pass large data by stdin or a file",
  },
};

/** chdir(2): what each errno says about the working directory. */
const CHDIR: Readonly<Record<string, Failure>> = {
  ENOENT: { status: "NOT_FOUND", reason: "EXEC_BAD_CWD", problem: "no such working directory" },
  ENOTDIR: {
    status: "FAILED_PRECONDITION",
    reason: "EXEC_BAD_CWD",
    problem: "the working directory is not a directory",
  },
  EACCES: {
    status: "PERMISSION_DENIED",
    reason: "EXEC_BAD_CWD",
    problem: "its user may not enter the working directory",
  },
};

const IDENTITY: Failure = {
  status: "PERMISSION_DENIED",
  reason: "EXEC_BAD_USER",
  problem: "the agent may not become that user; it needs CAP_SETUID and CAP_SETGID, and ids that the guest maps",
};

const TERMINAL: Failure = {
  status: "FAILED_PRECONDITION",
  reason: "EXEC_SETUP_FAILED",
  problem: "the guest has no terminal to give (it needs /dev/ptmx); run the command without one",
};

const KILLED: Failure = { status: "CANCELLED", reason: "CANCELLED", problem: "stopped while it was being started" };

const BAD_CWD: Failure = {
  status: "FAILED_PRECONDITION",
  reason: "EXEC_BAD_CWD",
  problem: "the working directory cannot be entered",
};

const NOT_EXECUTABLE: Failure = {
  status: "FAILED_PRECONDITION",
  reason: "EXEC_SETUP_FAILED",
  problem: "the command cannot be executed",
};

const SETUP: Failure = {
  status: "INTERNAL",
  reason: "EXEC_SETUP_FAILED",
  problem: "the agent could not set the process up",
};

function classify(step: SpawnStep, errno: string): Failure {
  if (LIMIT_ERRNOS.has(errno)) return LIMIT;
  switch (step) {
    case "execve":
      return EXECVE[errno] ?? NOT_EXECUTABLE;
    case "chdir":
      return CHDIR[errno] ?? BAD_CWD;
    case "setgroups":
    case "setgid":
    case "setuid":
      return IDENTITY;
    case "terminal":
      return TERMINAL;
    case "killed":
      return KILLED;
    case "prepare":
    case "clone":
    case "setsid":
    case "setpgid":
    case "ctty":
    case "cgroup":
    case "rlimit":
    case "stdio":
      return SETUP;
  }
}

/** The status for a command that could not be started. Its metadata has step and errno. */
export function startFailure(error: SpawnError, command: string, cwd: string): AgentError {
  const { status, reason, problem } = classify(error.step, error.errno);
  const about = error.step === "chdir" ? cwd : command;
  const message = `cannot start ${JSON.stringify(about)}: ${problem} (${error.step}: ${error.errno})`;
  return new AgentError(status, reason, message, { step: error.step, errno: error.errno, path: about }, error);
}
