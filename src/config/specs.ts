import { isUtf8 } from "node:buffer";
import {
  DEFAULT_READY_INTERVAL_MS,
  DEFAULT_READY_TIMEOUT_MS,
  DEFAULT_STOP_GRACE_MS,
  type HookSpec,
  type HooksSpec,
  type ProcessSpec,
  userSyntaxProblem,
} from "../domain/index.ts";
import {
  type Hook,
  HooksSchema,
  type Process,
  ProcessSchema,
  type ReadyCommand,
} from "../gen/svc/guest/v1alpha1/process_pb.ts";
import { readCredentialFile } from "./credential-file.ts";
import { decodeSpec } from "./decode-spec.ts";
import type { Read } from "./read.ts";

/** Reads SVC_PROCESS_SPEC. Absent: no workload. */
export function readProcessSpec(value = "{}"): Read<ProcessSpec> {
  const decoded = decodeSpec(ProcessSchema, value);
  return "problems" in decoded
    ? { value: EMPTY_PROCESS, problems: decoded.problems }
    : { value: processSpec(decoded.message), problems: processProblems(decoded.message) };
}

/** Reads SVC_HOOKS_SPEC. Absent: no hooks. */
export function readHooksSpec(value = "{}"): Read<HooksSpec> {
  const decoded = decodeSpec(HooksSchema, value);
  if ("problems" in decoded) return { value: NO_HOOKS, problems: decoded.problems };
  const { preSnapshot, postRestore } = decoded.message;
  return {
    value: { preSnapshot: preSnapshot && hookSpec(preSnapshot), postRestore: postRestore && hookSpec(postRestore) },
    problems: [...hookProblems("pre_snapshot", preSnapshot), ...hookProblems("post_restore", postRestore)],
  };
}

/** Reads a spec from the file that SVC_PROCESS_SPEC_FILE or SVC_HOOKS_SPEC_FILE names, at most 1 MiB of UTF-8. */
export function readSpecFile<Value>(path: string, read: (text: string | undefined) => Read<Value>): Read<Value> {
  const file = readCredentialFile(path);
  const problem = "problem" in file ? file.problem : isUtf8(file.bytes) ? undefined : "names a file that is not UTF-8";
  const { value, problems } = read("bytes" in file && problem === undefined ? file.bytes.toString() : undefined);
  return { value, problems: problem === undefined ? problems.map((found) => `in the file: ${found}`) : [problem] };
}

const EMPTY_PROCESS: ProcessSpec = {
  args: [],
  env: new Map(),
  cwd: "",
  user: "",
  readyCommand: undefined,
  stopGraceMs: DEFAULT_STOP_GRACE_MS,
};

const NO_HOOKS: HooksSpec = { preSnapshot: undefined, postRestore: undefined };

function processSpec(message: Process): ProcessSpec {
  const ready = message.readyCmd;
  return {
    args: message.args,
    env: new Map(Object.entries(message.env)),
    cwd: message.cwd,
    user: message.user,
    readyCommand: ready && {
      args: ready.args,
      intervalMs: ready.intervalMs || DEFAULT_READY_INTERVAL_MS,
      timeoutMs: ready.timeoutMs || DEFAULT_READY_TIMEOUT_MS,
    },
    stopGraceMs: message.stopGraceMs || DEFAULT_STOP_GRACE_MS,
  };
}

function hookSpec(message: Hook): HookSpec {
  return {
    args: message.args,
    env: new Map(Object.entries(message.env)),
    cwd: message.cwd,
    user: message.user,
  };
}

function processProblems(message: Process): string[] {
  return [
    ...commandNameProblems("args", message.args),
    ...argumentProblems("args", message.args),
    ...sessionProblems("", message),
    ...readyCommandProblems(message.readyCmd),
  ];
}

function readyCommandProblems(ready: ReadyCommand | undefined): string[] {
  return ready === undefined ? [] : requiredCommandProblems("ready_cmd.args", ready.args);
}

function hookProblems(name: string, hook: Hook | undefined): string[] {
  if (hook === undefined) return [];
  return [...requiredCommandProblems(`${name}.args`, hook.args), ...sessionProblems(`${name}.`, hook)];
}

function requiredCommandProblems(path: string, args: readonly string[]): string[] {
  if (args.length === 0) return [`${path}: is empty; name a command or leave ${path.replace(/\.args$/, "")} out`];
  return [...commandNameProblems(path, args), ...argumentProblems(path, args)];
}

function commandNameProblems(path: string, args: readonly string[]): string[] {
  return args[0] === "" ? [`${path}[0]: is empty; it names the command`] : [];
}

function argumentProblems(path: string, args: readonly string[]): string[] {
  return args.flatMap((argument, index) => (argument.includes("\0") ? [`${path}[${index}]: holds a NUL`] : []));
}

/** Problems of what Process and Hook have in common. */
function sessionProblems(prefix: string, session: Pick<Process, "env" | "cwd" | "user">): string[] {
  const problems = Object.entries(session.env).flatMap(([name, value], index) => {
    if (name === "") return [`${prefix}env: has a variable without a name`];
    if (/[=\0]/.test(name)) return [`${prefix}env: the name of variable ${index + 1} holds "=" or a NUL`];
    return value.includes("\0") ? [`${prefix}env: the value of ${JSON.stringify(name)} holds a NUL`] : [];
  });
  if (session.cwd !== "" && !session.cwd.startsWith("/")) problems.push(`${prefix}cwd: must be an absolute path`);
  if (session.cwd.includes("\0")) problems.push(`${prefix}cwd: holds a NUL`);
  const userProblem = userSyntaxProblem(session.user);
  if (userProblem !== undefined) problems.push(`${prefix}user: ${userProblem}`);
  return problems;
}
