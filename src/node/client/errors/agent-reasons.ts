/**
 * The reasons that the agent sends with its errors (docs/agent/operations.md). A GuestError has the reason in `code`
 * and `reason`. A newer agent may send other reasons.
 */
export type AgentReason =
  /** The path exists already, and the call does not allow the agent to replace it. */
  | "ALREADY_EXISTS"
  /** The agent has read a new CA file, and no CA in it issued the client's certificate. */
  | "AUTHORITY_REPLACED"
  /** The call was cancelled. */
  | "CANCELLED"
  /** The bytes do not match the declared checksum. Nothing was written. */
  | "CHECKSUM_MISMATCH"
  /** Rename cannot move an entry to another file system or mount. */
  | "CROSS_DEVICE"
  /** The deadline of the call has passed. */
  | "DEADLINE_EXCEEDED"
  /** The arguments and variables of the command are too long. */
  | "EXEC_ARGS_TOO_LONG"
  /** The working directory does not exist, is not a directory, or is not accessible to the user. */
  | "EXEC_BAD_CWD"
  /** The file is not a program for this machine. A script needs a `#!` line. */
  | "EXEC_BAD_FORMAT"
  /** The user is malformed or does not exist, or the agent may not switch to this user. */
  | "EXEC_BAD_USER"
  /** The command cannot be signalled, because it has ended. */
  | "EXEC_ENDED"
  /** A kept command with this name exists. Attach to it, end it, or set `keep.replaceEnded`. */
  | "EXEC_NAME_IN_USE"
  /** The agent sent SIGKILL, but a process of the command hangs in the kernel and has not ended. */
  | "EXEC_NOT_ENDED"
  /** The program of the command, or the program's interpreter, does not exist. */
  | "EXEC_NOT_FOUND"
  /** An offset in `attach` or `acknowledge` is larger than the number of bytes in the stream. */
  | "EXEC_OFFSET_PAST_END"
  /** The user may not execute the program. */
  | "EXEC_PERMISSION_DENIED"
  /** The guest has no processes, descriptors or memory left for the command. */
  | "EXEC_RESOURCE_LIMIT"
  /** The command could not be set up (`step` and `errno` in the metadata). */
  | "EXEC_SETUP_FAILED"
  /** Another call has attached to the kept command. */
  | "EXEC_TAKEN_OVER"
  /** The program file of the command is open for writing. */
  | "EXEC_TEXT_BUSY"
  /** No kept command has this name and `execId`. It may have ended, and the agent may have forgotten it. */
  | "EXEC_UNKNOWN"
  /** A file call failed, and no other reason fits its `errno` (in the metadata). */
  | "FILE_ERROR"
  /** The file system does not answer. */
  | "FILE_SYSTEM_HUNG"
  /** The directory is not empty. */
  | "FOLDER_NOT_EMPTY"
  /** The client sent a message that is not allowed at this point of the call. */
  | "FRAME_ORDER"
  /** The agent has a bug. The agent's log has details. */
  | "INTERNAL"
  /** A field of the request is invalid. The error's property `option` names the field. */
  | "INVALID_FIELD"
  /** The request is not a valid protobuf message. */
  | "MALFORMED_MESSAGE"
  /** The request exceeds 4 MiB. */
  | "MESSAGE_TOO_LARGE"
  /** The path is a mount point, which cannot be removed or renamed. */
  | "MOUNT_POINT"
  /** The path is not a directory. */
  | "NOT_A_FOLDER"
  /** The path is not a regular file. */
  | "NOT_A_REGULAR_FILE"
  /** The file system or the user's quota is full. */
  | "NO_SPACE"
  /** The path leaves the directory `beneath`, or crosses a link that is refused. */
  | "PATH_ESCAPES"
  /** The file or directory does not exist. */
  | "PATH_NOT_FOUND"
  /** The file system denies access or is read-only. */
  | "PATH_PERMISSION_DENIED"
  /** The agent cannot list ports, because the guest has no /proc. */
  | "PORTS_NOT_KNOWN"
  /** The wait for the port reached its time limit: no server listened on the port at an address that tunnels reach. */
  | "PORT_NOT_LISTENING"
  /** No server listens on the port or path. */
  | "PORT_REFUSED"
  /** The server reset the connection of the tunnel. */
  | "PORT_RESET"
  /** The server did not accept the connection in time, or the guest has no route to it. */
  | "PORT_UNREACHABLE"
  /** The agent cannot list processes, because the guest has no usable /proc. */
  | "PROCESSES_UNREADABLE"
  /** The agent may not signal the process, because it belongs to a more privileged user. */
  | "PROCESS_NOT_PERMITTED"
  /** The guest's kernel has no pidfds (Linux before 5.3), or forbids them. */
  | "PROCESS_SIGNALS_UNSUPPORTED"
  /** No process of the session has this `pid` and `startTicks`. */
  | "PROCESS_UNKNOWN"
  /** The session is frozen. Run the restore steps, or wait until the freeze ends. */
  | "SESSION_FROZEN"
  /** The agent is exiting. */
  | "SHUTTING_DOWN"
  /** The bytes do not match the declared size. The file was not written. */
  | "SIZE_MISMATCH"
  /** Too many file calls run at once. */
  | "TOO_MANY_FILE_CALLS"
  /** The agent holds too many bytes of requests that it has not processed yet. */
  | "TOO_MUCH_UNREAD"
  /** The agent already has as many connections as it accepts. */
  | "TOO_MANY_CONNECTIONS"
  /** A watch covers too many directories. Exclude some with `ignore`. */
  | "TOO_MANY_DIRECTORIES"
  /** Too many commands run at once. */
  | "TOO_MANY_EXECS"
  /** The output buffers of all kept commands together would be too large. */
  | "TOO_MANY_KEPT_BYTES"
  /** The agent already keeps as many commands as it can. */
  | "TOO_MANY_KEPT_EXECS"
  /** Too many tunnels are open at once. */
  | "TOO_MANY_TUNNELS"
  /** The agent does not serve the service of a grpc.health.v1 check. */
  | "SERVICE_NOT_FOUND"
  /** Too many watches, or readers of the workload's output, run at once. */
  | "TOO_MANY_WATCHERS"
  /** The token is missing or wrong. */
  | "UNAUTHENTICATED"
  /** The agent has no such method, or the guest's kernel does not support the call. */
  | "UNIMPLEMENTED"
  /** The agent accepts no compressed messages. */
  | "UNSUPPORTED_COMPRESSION"
  /** There is no workload, or its spec has no `output.keep`. */
  | "WORKLOAD_OUTPUT_NOT_KEPT";
