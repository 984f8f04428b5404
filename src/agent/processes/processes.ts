import {
  AgentError,
  type Clock,
  invalidField,
  PROCESSES_LISTED,
  type SessionProcess,
  type SessionProcesses,
  type Timers,
} from "../domain/index.ts";
import { CommandLines } from "./command-lines.ts";

/** Microseconds per clock tick (message SessionProcess), and nanoseconds per microsecond. */
const TICK_US = 10_000;
const NS_PER_US = 1_000n;
/** The largest signal number of Linux (SIGRTMAX). */
const SIGNAL_MAX = 64;

/** A command of the session, used to find the command that a process belongs to (message ProcessCommand). */
export interface CommandProcess {
  readonly kind: "workload" | "kept" | "attached";
  /** Pid of the command's first process. Undefined after the end of that process, because pids are reused. */
  readonly pid: number | undefined;
  /** The command's cgroup (`ChildProcess.cgroup`). */
  readonly cgroup: string | undefined;
  /** The name of a kept command. Undefined for the workload and for a command that is not kept. */
  readonly name?: string;
  readonly execId?: string;
  /** Address of the client of a command that is not kept. */
  readonly client?: string;
}

/** A process with its user name, command line and command. */
export interface ListedProcess extends SessionProcess {
  /** Time of the start in nanoseconds since 1970. */
  readonly startedNs: bigint;
  /** The user name; undefined if the user id has no name. */
  readonly user: string | undefined;
  readonly commandLine: { readonly bytes: Uint8Array; readonly truncated: boolean };
  /** The command that the process belongs to; undefined if it belongs to none. */
  readonly command: CommandProcess | undefined;
}

export interface ProcessListing {
  readonly processes: readonly ListedProcess[];
  readonly truncated: boolean;
  readonly uptimeUs: number;
}

export interface ProcessListParts {
  readonly processes: SessionProcesses;
  /** Returns the workload and the commands, including kept commands that have ended. */
  readonly commands: () => readonly CommandProcess[];
  /** Resolves with the name of a user id; undefined if the id has no name, or if names cannot be looked up. */
  readonly userName: (uid: number) => Promise<string | undefined>;
  readonly clock: Clock;
  readonly timers: Timers;
}

/** Lists and signals the processes of the session on request. It does no work between requests. */
export class ProcessList {
  readonly #parts: ProcessListParts;
  readonly #commandLines: CommandLines;

  constructor(parts: ProcessListParts) {
    this.#parts = parts;
    this.#commandLines = new CommandLines(parts.processes, parts.timers);
  }

  /** Reads the processes. Throws AgentError FAILED_PRECONDITION without a usable /proc. */
  async list(): Promise<ProcessListing> {
    const { processes, commands, clock } = this.#parts;
    const read = await processes.read(PROCESSES_LISTED);
    if (read === undefined) {
      const message = "processes cannot be listed: /proc is not mounted in the sandbox, or shows another PID namespace";
      throw new AgentError("FAILED_PRECONDITION", "PROCESSES_UNREADABLE", message);
    }
    const { truncated, uptimeUs } = read;
    const bootNs = clock.wallNs() - BigInt(uptimeUs) * NS_PER_US;
    const commandOf = assigned(read.processes, commands());
    const [lines, users] = [await this.#commandLines.of(read.processes), await this.#users(read.processes)];
    const listed = read.processes.map((one, index) => ({
      ...one,
      startedNs: bootNs + BigInt(one.startTicks * TICK_US) * NS_PER_US,
      user: users.get(one.uid),
      commandLine: lines[index] ?? { bytes: new Uint8Array(), truncated: false },
      command: commandOf(one),
    }));
    return { processes: listed, truncated, uptimeUs };
  }

  /** Sends a signal to a process. Throws AgentError INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED or UNIMPLEMENTED. */
  signal(pid: number, startTicks: number, signal: number): void {
    if (signal < 1 || signal > SIGNAL_MAX) throw invalidField("signal", `is ${signal}, but must be 1 to ${SIGNAL_MAX}`);
    const problem = this.#parts.processes.signal(pid, startTicks, signal);
    const metadata = { pid: String(pid) };
    if (problem === "not_permitted") {
      const message = `the agent may not signal process ${pid}: it belongs to a more privileged user`;
      throw new AgentError("PERMISSION_DENIED", "PROCESS_NOT_PERMITTED", message, metadata);
    }
    if (problem === "unsupported") {
      const message = "the sandbox's kernel cannot signal a process safely: it has no pidfds, which require Linux 5.3";
      throw new AgentError("UNIMPLEMENTED", "PROCESS_SIGNALS_UNSUPPORTED", message, metadata);
    }
    if (problem === "unknown") {
      const message = `there is no process ${pid} with this start time: it has ended, or does not belong to the session`;
      throw new AgentError("NOT_FOUND", "PROCESS_UNKNOWN", message, metadata);
    }
  }

  async #users(processes: readonly SessionProcess[]): Promise<ReadonlyMap<number, string | undefined>> {
    const uids = [...new Set(processes.map(({ uid }) => uid))];
    return new Map(await Promise.all(uids.map(async (uid) => [uid, await this.#parts.userName(uid)] as const)));
  }
}

/**
 * Returns a function that finds the command to which a process belongs. With cgroups, this is the command that has the
 * process's cgroup. Without cgroups, it is the running command whose first process leads the process's session. If
 * there is no such command, the function tries the process's parent, and so on.
 */
function assigned(
  processes: readonly SessionProcess[],
  commands: readonly CommandProcess[],
): (one: SessionProcess) => CommandProcess | undefined {
  const byPid = new Map(processes.map((one) => [one.pid, one]));
  const byCgroup = new Map(commands.flatMap((one) => (one.cgroup === undefined ? [] : [[one.cgroup, one]])));
  const byLeader = new Map(commands.flatMap((one) => (one.pid === undefined ? [] : [[one.pid, one]])));
  const found = new Map<number, CommandProcess | undefined>();
  return (process) => {
    const passed: number[] = [];
    let command: CommandProcess | undefined;
    // The steps from parent to parent may lead back to an earlier process, because the processes were not all read at
    // the same moment. So the loop ends at a pid that it has already passed.
    for (let at: SessionProcess | undefined = process; at !== undefined && !passed.includes(at.pid);) {
      if (found.has(at.pid)) {
        command = found.get(at.pid);
        break;
      }
      passed.push(at.pid);
      command =
        (at.cgroup === undefined ? undefined : byCgroup.get(at.cgroup)) ??
        byLeader.get(at.session) ??
        byLeader.get(at.pid);
      if (command !== undefined || at.cgroup !== undefined) break;
      at = byPid.get(at.parent);
    }
    for (const pid of passed) found.set(pid, command);
    return command;
  };
}
