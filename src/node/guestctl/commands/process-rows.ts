import { SessionProcessSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import type { GuestClient, GuestError, ProcessList, SessionProcess } from "../../client/index.ts";
import { quoted, sizeWords, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS } from "../connection/index.ts";
import { schemaObject } from "./schema.ts";

/**
 * The word on the command line that selects the workload's processes. The name of a kept command selects the processes
 * of that command.
 */
const WORKLOAD = "workload";

/** Reads the processes of the sandbox. Rejects with GuestError. */
export function readProcesses(client: GuestClient, signal?: AbortSignal): Promise<ProcessList> {
  return client.commands.processes({ requestTimeoutMs: ANSWER_TIMEOUT_MS, signal });
}

/** Advice about an agent that cannot list processes; undefined if the general advice applies. */
export function processAdvice({ code }: GuestError): string | undefined {
  return code === "AGENT_TOO_OLD" ? "update the agent; or, if the image has ps: guestctl exec -- ps" : undefined;
}

/**
 * Returns the processes that belong to one of the named commands, or all processes if no command is named. Throws
 * UsageError for an unknown name.
 */
export function processesOf({ processes }: ProcessList, names: readonly string[]): readonly SessionProcess[] {
  if (names.length === 0) return processes;
  for (const name of names) {
    if (processes.some((process) => belongsTo(process, name))) continue;
    throw new UsageError(
      `no process belongs to a kept command ${JSON.stringify(name)}; if this is the name of a sandbox, write --sandbox ${quoted(name)}`,
    );
  }
  return processes.filter((process) => names.some((name) => belongsTo(process, name)));
}

/** Whether the name stands for the process. A name is a process id, the name of a kept command, or "workload". */
function belongsTo({ pid, command }: SessionProcess, name: string): boolean {
  if (command?.kind === "kept" && command.name === name) return true;
  return name === String(pid) || (name === WORKLOAD && command?.kind === "workload");
}

/** Returns the table's cell for the command that a process belongs to; "-" if the command is not known. */
export function commandWords({ command }: SessionProcess): string {
  if (command === undefined) return "-";
  const { kind, name, client } = command;
  if (kind === "kept") return name;
  if (kind === "unknown") return "-";
  return kind === "attached" ? `exec from ${client}` : kind;
}

/** The command line of a process. If the process has none, its name in brackets, as ps(1) shows it. */
export function commandLine({ commandLine: bytes, commandLineTruncated, name }: SessionProcess): string {
  const line = argumentsOf(bytes).join(" ");
  if (line === "") return `[${name}]`;
  return commandLineTruncated ? `${line} …` : line;
}

function argumentsOf(bytes: Buffer): readonly string[] {
  return bytes.length === 0 ? [] : bytes.toString().replace(/\0$/, "").split("\0");
}

export function userOf({ user, uid }: SessionProcess): string {
  return user === "" ? String(uid) : user;
}

/** Processor time as `minutes:seconds`, as top(1) shows it. */
export function cpuTime({ cpuUs }: SessionProcess): string {
  const seconds = cpuUs / 1e6;
  return `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(2).padStart(5, "0")}`;
}

export function memoryOf({ rssBytes }: SessionProcess): string {
  return sizeWords(rssBytes);
}

/**
 * Converts a process to JSON with the schema's field names. The arguments become a list of texts, and the kind of the
 * command becomes its name.
 */
export function processObject(process: SessionProcess): Record<string, unknown> {
  const { command, ...fields } = process;
  const { command_line: _, ...object } = schemaObject(SessionProcessSchema, fields) as Record<string, unknown>;
  const { kind, name, execId, pid, client } = command ?? {};
  const word = kind === "unknown" ? null : kind;
  const belongs = command === undefined ? null : { kind: word, name, exec_id: execId, pid, client };
  return { ...object, args: argumentsOf(process.commandLine), command: belongs };
}

/** Cuts each line of a table to the width of the terminal, if standard output is one. */
export function cutToWidth(text: string, { isTTY, columns }: NodeJS.WriteStream): string {
  if (!isTTY || !(columns > 0)) return text;
  return text.replaceAll(/[^\n]+/g, (line) => line.slice(0, columns));
}

/** Formats the line which says that there are more processes than the answer lists. Empty if there are no more. */
export function moreWords({ truncated, processes }: ProcessList): string {
  return truncated ? `only the first ${processes.length} processes are listed; there are more\n` : "";
}
