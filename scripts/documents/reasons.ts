import type { Reason, StatusName } from "../../src/agent/domain/index.ts";

/** The gRPC statuses with which a reason is reported, and what the reason means. */
type Description = readonly [statuses: readonly StatusName[] | "by errno", meaning: string];

/** What each reason of an error means. Each reason must have a meaning here, or the code does not compile. */
const DESCRIPTIONS: Readonly<Record<Reason, Description>> = {
  ALREADY_EXISTS: [
    ["ALREADY_EXISTS"],
    "The path exists already, and the call does not allow the agent to replace it. If the agent logs this reason at its start, a port or socket of the agent is in use.",
  ],
  AUTHORITY_REPLACED: [
    ["UNAVAILABLE"],
    "The agent has read a new CA file, and no CA in this file issued the client's certificate. Use a new certificate.",
  ],
  CANCELLED: [["CANCELLED"], "The caller cancelled the call."],
  CHECKSUM_MISMATCH: [["DATA_LOSS"], "The bytes do not match the declared checksum. Nothing was written."],
  CROSS_DEVICE: [
    ["FAILED_PRECONDITION"],
    "Rename cannot move an entry to another file system or mount. Copy the entry and remove the original.",
  ],
  DEADLINE_EXCEEDED: [["DEADLINE_EXCEEDED"], "The deadline of the call has passed."],
  EXEC_ARGS_TOO_LONG: [
    ["RESOURCE_EXHAUSTED"],
    "The arguments and variables of the command exceed [the limits of the agent](#limits) or the limits of the kernel.",
  ],
  EXEC_BAD_CWD: [
    ["NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED"],
    "The working directory does not exist, is not a directory, or is not accessible to the user.",
  ],
  EXEC_BAD_FORMAT: [["FAILED_PRECONDITION"], "The file is not a program for this machine. A script needs a `#!` line."],
  EXEC_BAD_USER: [
    ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION"],
    "The user is malformed, has no name (`:group`) or does not exist, or the agent may not switch to this user.",
  ],
  EXEC_ENDED: [["FAILED_PRECONDITION"], "SignalExec cannot signal the command, because the command has ended."],
  EXEC_NAME_IN_USE: [
    ["ALREADY_EXISTS"],
    "A kept command with the requested name exists; the metadata has the `pid`, `execId` and `state` of this command. Attach to the command, end it, or set `replace_ended`.",
  ],
  EXEC_NOT_ENDED: [
    ["FAILED_PRECONDITION"],
    "EndExec sent SIGKILL, but a process of the command waits in the kernel and has not ended.",
  ],
  EXEC_NOT_FOUND: [["NOT_FOUND", "INVALID_ARGUMENT"], "The command or its interpreter does not exist."],
  EXEC_OFFSET_PAST_END: [
    ["OUT_OF_RANGE"],
    "An offset in `attach` or `ack` is larger than the number of bytes in the stream. In the metadata, `field` is the name of the request's field, and `end` is the number of bytes in the stream.",
  ],
  EXEC_PERMISSION_DENIED: [["PERMISSION_DENIED"], "The user may not execute the command."],
  EXEC_RESOURCE_LIMIT: [
    ["RESOURCE_EXHAUSTED"],
    "The guest has no processes, descriptors or memory left for the command.",
  ],
  EXEC_SETUP_FAILED: [
    ["INTERNAL", "FAILED_PRECONDITION"],
    "The agent could not set up the command; `step` and `errno` in the metadata say which step failed and why. Or the set-up took longer than `timeout_ms`, because the file system at `mount` (in the metadata) did not answer.",
  ],
  EXEC_TAKEN_OVER: [
    ["ABORTED"],
    "Another call attached to the kept command. A client must not attach again unless its user requests it.",
  ],
  EXEC_TEXT_BUSY: [["FAILED_PRECONDITION"], "The program file of the command is open for writing."],
  EXEC_UNKNOWN: [
    ["NOT_FOUND"],
    "No kept command has the requested name and `exec_id`. Perhaps the command has ended and the agent has forgotten it.",
  ],
  FILE_ERROR: ["by errno", "A file call failed, and no other reason of this table fits its errno."],
  FILE_SYSTEM_HUNG: [
    ["FAILED_PRECONDITION"],
    "The file system [does not answer](files.md#limits); `mount` in the metadata is its mount point, if the agent knows it. Unmount the file system, or wait.",
  ],
  FOLDER_NOT_EMPTY: [
    ["FAILED_PRECONDITION"],
    "The directory is not empty, so Remove without `recursive` cannot remove it, and Rename cannot replace it.",
  ],
  FRAME_ORDER: [
    ["INVALID_ARGUMENT"],
    "The client sent a message that is not allowed at this point of the call. For example, the first message is not `start`, `attach`, `header` or `open`, or input follows the end of the input.",
  ],
  INTERNAL: [["INTERNAL"], "The agent has a bug. The agent's log has details."],
  INVALID_FIELD: [["INVALID_ARGUMENT"], "A field of the request is invalid; `field` in the metadata names the field."],
  MALFORMED_MESSAGE: [
    ["INVALID_ARGUMENT", "UNIMPLEMENTED"],
    "The status is INVALID_ARGUMENT if the message is truncated, is not protobuf, or has too many fields. The status is UNIMPLEMENTED if the client sent no message or several messages to a method that takes exactly one.",
  ],
  MESSAGE_TOO_LARGE: [["RESOURCE_EXHAUSTED"], "The message exceeds 4 MiB."],
  MOUNT_POINT: [["FAILED_PRECONDITION"], "The path is a mount point, which cannot be removed or renamed."],
  NOT_A_FOLDER: [["FAILED_PRECONDITION"], "The path is not a directory."],
  NOT_A_REGULAR_FILE: [["FAILED_PRECONDITION"], "The path is not a regular file."],
  NO_SPACE: [["RESOURCE_EXHAUSTED"], "The file system or the user's quota is full."],
  PATH_ESCAPES: [
    ["FAILED_PRECONDITION"],
    "The path leaves the directory `beneath`, or crosses [a link that is refused](files.md#trust).",
  ],
  PATH_NOT_FOUND: [["NOT_FOUND"], "The file or directory does not exist."],
  PATH_PERMISSION_DENIED: [["PERMISSION_DENIED"], "The file system denies access or is read-only."],
  PORTS_NOT_KNOWN: [["FAILED_PRECONDITION"], "The agent cannot list ports, because the guest has no /proc."],
  PORT_NOT_LISTENING: [
    ["DEADLINE_EXCEEDED"],
    "WaitForPort reached its time limit. No server listened on the `port`, or the server listened only on an address that tunnels do not reach. In the second case, the message names this address.",
  ],
  PORT_REFUSED: [["FAILED_PRECONDITION"], "No server listens for stream connections on the `port` or `path`."],
  PORT_RESET: [["ABORTED"], "The server reset the connection of the tunnel."],
  PORT_UNREACHABLE: [
    ["FAILED_PRECONDITION"],
    "The server did not accept the connection [in time](#limits), or the guest has no route to it (`errno`).",
  ],
  PROCESSES_UNREADABLE: [
    ["FAILED_PRECONDITION"],
    "ListProcesses cannot read the processes, because the guest has no /proc, or /proc belongs to another PID namespace.",
  ],
  PROCESS_NOT_PERMITTED: [
    ["PERMISSION_DENIED"],
    "The agent may not signal the process (`pid`), because it belongs to a more privileged user.",
  ],
  PROCESS_SIGNALS_UNSUPPORTED: [
    ["UNIMPLEMENTED"],
    "SignalProcess needs pidfds, which the guest's kernel does not have (Linux before 5.3) or forbids.",
  ],
  PROCESS_UNKNOWN: [["NOT_FOUND"], "No process of the session has the requested `pid` and start time."],
  SERVICE_NOT_FOUND: [
    ["NOT_FOUND"],
    "The agent does not serve the `service` that grpc.health.v1.Health.Check asked for.",
  ],
  SESSION_FROZEN: [
    ["FAILED_PRECONDITION"],
    "The session is frozen. Run the restore steps, or wait for `leftMs` milliseconds.",
  ],
  SHUTTING_DOWN: [["UNAVAILABLE"], "The agent is exiting."],
  SIZE_MISMATCH: [["DATA_LOSS"], "The bytes do not match the declared size. The file was not written."],
  TOO_MANY_CONNECTIONS: [
    ["RESOURCE_EXHAUSTED"],
    "The agent already has [as many connections](#limits) as it accepts. Close a connection, or use one connection for several calls.",
  ],
  TOO_MANY_DIRECTORIES: [
    ["RESOURCE_EXHAUSTED"],
    "A Watch covers too many directories: more than the agent's [limit](#limits), or more than the guest's `fs.inotify.max_user_watches` allows. Exclude some directories with `ignore`, or raise `fs.inotify.max_user_watches`.",
  ],
  TOO_MANY_EXECS: [["RESOURCE_EXHAUSTED"], "[Too many commands](#limits) run at once."],
  TOO_MANY_FILE_CALLS: [
    ["RESOURCE_EXHAUSTED"],
    "[Too many file calls](#limits) run at once. The call that has been idle for the longest time gets this error and ends, if it has been idle for at least 60 s. Otherwise the new call gets this error.",
  ],
  TOO_MANY_KEPT_BYTES: [
    ["RESOURCE_EXHAUSTED"],
    "The output buffers of all kept commands together would be [too large](#limits).",
  ],
  TOO_MANY_KEPT_EXECS: [["RESOURCE_EXHAUSTED"], "The agent already keeps [as many commands](#limits) as it can."],
  TOO_MANY_TUNNELS: [["RESOURCE_EXHAUSTED"], "[Too many tunnels](#limits) are open at once."],
  TOO_MANY_WATCHERS: [
    ["RESOURCE_EXHAUSTED"],
    "[Too many calls](#limits) that watch health, usage, ports or directories, or that read the workload's output, run at the same time.",
  ],
  TOO_MUCH_UNREAD: [
    ["RESOURCE_EXHAUSTED"],
    "The agent has received [too many bytes](#limits) that it could not process yet. The call that has been idle for the longest time gets this error and ends, if it has been idle for at least 60 s. Otherwise the new call gets this error.",
  ],
  UNAUTHENTICATED: [["UNAUTHENTICATED"], "The token is missing or wrong."],
  UNIMPLEMENTED: [["UNIMPLEMENTED"], "The agent has no such method, or the guest's kernel does not support the call."],
  UNSUPPORTED_COMPRESSION: [
    ["UNIMPLEMENTED", "INTERNAL"],
    "The agent accepts no compressed messages. If the header `grpc-encoding` names a compression, the status is UNIMPLEMENTED. If a message is compressed without such a header, the status is INTERNAL.",
  ],
  WORKLOAD_OUTPUT_NOT_KEPT: [
    ["FAILED_PRECONDITION"],
    "There is no workload, or its output [is not kept](run.md#the-workloads-output), because the process spec has no `output.keep`.",
  ],
};

/** The reasons of errors as rows of a table, sorted: reason, statuses and meaning. */
export const REASONS: readonly (readonly [reason: string, statuses: string, meaning: string])[] = Object.entries(
  DESCRIPTIONS,
)
  .map(([reason, [statuses, meaning]]) => {
    const listed = statuses === "by errno" ? "[by errno](files.md#errors-by-errno)" : statuses.join(", ");
    return [`\`${reason}\``, listed, meaning] as const;
  })
  .toSorted(([a], [b]) => (a < b ? -1 : 1));
