/** Limits for all clients (docs/agent/operations.md, Limits). */

/** Largest gRPC message, in both directions. */
export const MESSAGE_LIMIT_BYTES: number = 4 * 1024 * 1024;
/** Limit for concurrent commands. */
export const EXEC_LIMIT = 256;
/** Limit for kept commands, including ended ones that linger. */
export const KEPT_COMMAND_LIMIT = 64;
/** Size of the output buffer of one kept command: maximum and default. */
export const KEPT_BUFFER_LIMIT_BYTES: number = 16 * 1024 * 1024;
export const DEFAULT_KEPT_BUFFER_BYTES: number = 1024 * 1024;
/** Limit for concurrent calls that read the workload's output. */
export const WORKLOAD_READERS_LIMIT = 32;
/** Limit for the output buffers of all kept commands together. */
export const KEPT_BUFFERS_LIMIT_BYTES: number = 32 * 1024 * 1024;
/** How long, by default, the output and the exit status of a kept command remain available after its end. */
export const DEFAULT_LINGER_MS = 600_000;
/** Largest `grace_ms` that EndExec accepts: 10 minutes. */
export const END_GRACE_LIMIT_MS = 600_000;
/** Longest delay of a timer in Node: 24.8 days. */
export const TIMER_LIMIT_MS: number = 2 ** 31 - 1;
/** Longest time for which a kept command may count as user activity without an attached call: 24 hours. */
export const AWAKE_LIMIT_MS = 86_400_000;
/**
 * Limit for concurrent ReadFile and WriteFile calls. Each call holds descriptors, and also memory while its client is
 * slow.
 */
export const FILE_CALL_LIMIT = 256;
/** Limit for concurrent ReadFile and WriteFile calls of one connection. */
export const CONNECTION_FILE_CALL_LIMIT = 64;
/** Limit for concurrent List and Remove calls. Each holds up to 16 descriptors. */
export const DIRECTORY_CALL_LIMIT = 64;
/** Limit for concurrent List and Remove calls of one connection. */
export const CONNECTION_DIRECTORY_CALL_LIMIT = 16;
/** Limit for concurrent FileTree.Watch calls. */
export const WATCH_CALL_LIMIT = 16;
/**
 * Limits for watched directories: of one Watch call, and of all Watch calls together. Each directory takes about 200
 * bytes of memory.
 */
export const WATCHED_DIRECTORIES_LIMIT = 65_536;
export const ALL_WATCHED_DIRECTORIES_LIMIT: number = 2 * WATCHED_DIRECTORIES_LIMIT;
/** Limit for the glob patterns of one Watch call. */
export const WATCH_PATTERN_LIMIT = 64;
/**
 * Limits for the changes that wait for the client of one Watch call: for their number, and for the bytes of their
 * paths. Changes within both limits fit into a message of 1.3 MiB.
 */
export const WATCH_CHANGES_LIMIT = 4_096;
export const WATCH_CHANGES_LIMIT_BYTES: number = 1024 * 1024;
/** Limit for the bytes of all requests that no handler has taken yet, including incomplete messages. */
export const UNREAD_LIMIT_BYTES: number = 64 * 1024 * 1024;
/** Limit for the number of arguments and variables of one command together. */
export const EXEC_ENTRIES_LIMIT: number = 128 * 1024;
/**
 * Limit for the bytes that the arguments and variables of one command take on the new process's stack, including NULs
 * and pointers. The kernel allows a quarter of the stack limit (execve(2)), which is 8 MiB by default.
 */
export const EXEC_STRINGS_LIMIT_BYTES: number = 2 * 1024 * 1024;
/** Longest path of a unix socket: sun_path has 108 bytes including the NUL (unix(7)). */
export const SOCKET_PATH_LIMIT_BYTES = 107;
/** Limit for connections per listener. */
export const CONNECTION_LIMIT = 64;
/** Time limit for a TLS handshake. After the handshake, the same limit applies to the headers of the first request. */
export const HANDSHAKE_TIMEOUT_MS = 5_000;
/**
 * Grace period between SIGTERM and SIGKILL. It applies to commands, hooks and ready_cmd whose timeout is over, and to
 * processes that the workload has left running.
 */
export const TERM_GRACE_MS = 2_000;
/** Grace period between SIGHUP and SIGKILL for the session of a command whose client is gone. */
export const HANGUP_GRACE_MS = 5_000;
/** Longest wait for the end of a killed process: a process that hangs in the kernel must not block the agent. */
export const KILL_WAIT_MS = 10_000;
/** Limit for pipes of ended commands that the agent keeps reading because a background process writes to them. */
export const KEPT_PIPES_LIMIT = 256;
/** Default grace period of the workload's tree between SIGTERM and SIGKILL. */
export const DEFAULT_STOP_GRACE_MS = 10_000;
/** Default pause between two runs of ready_cmd. */
export const DEFAULT_READY_INTERVAL_MS = 1_000;
export const DEFAULT_READY_TIMEOUT_MS = 5_000;
/** Limit for the entropy in RunRestoreDuties. */
export const ENTROPY_LIMIT_BYTES: number = 64 * 1024;
/** Timeout of a hook if RunHook has no `timeout_ms`. */
export const DEFAULT_HOOK_TIMEOUT_MS = 30_000;
/** Largest `timeout_ms` that RunHook accepts: 10 minutes. */
export const HOOK_TIMEOUT_LIMIT_MS = 600_000;
/** Largest `freeze_ms` that RunHook accepts: 10 minutes. The time for which the VM is suspended does not count. */
export const FREEZE_LIMIT_MS = 600_000;
/**
 * A freeze waits twice, each time at most for this long: first until ready_cmd has ended and no command is starting,
 * then until all processes have stopped.
 */
export const FREEZE_WAIT_MS = 2_000;
/** How many of the last bytes of each output stream of a hook are kept. */
export const HOOK_TAIL_BYTES: number = 16 * 1024;
/** Limit for concurrent tunnels. Each holds a socket. */
export const TUNNEL_LIMIT = 256;
export const TUNNEL_CONNECT_LIMIT_MS = 10_000;
/** Limit for the bytes that all tunnels together have in flight to the guest. */
export const TUNNEL_WINDOWS_BYTES: number = 8 * 1024 * 1024;
/**
 * The window of a new tunnel is this fraction of what the other tunnels leave of TUNNEL_WINDOWS_BYTES. The window is
 * never smaller than NARROW_TUNNEL_WINDOW_BYTES.
 */
export const TUNNEL_WINDOW_PART: number = 1 / 8;
export const NARROW_TUNNEL_WINDOW_BYTES: number = 32 * 1024;
/** Timeout of WaitForPort: default and maximum. */
export const DEFAULT_PORT_WAIT_MS = 30_000;
export const PORT_WAIT_LIMIT_MS = 86_400_000;
/** Poll interval for listeners: while WaitForPort waits, and for WatchPorts. */
export const PORT_POLL_MS = 50;
export const PORT_WATCH_POLL_MS = 500;
/** Limit for the processes in an answer of ListProcesses. Each takes some 100 bytes in addition to its command line. */
export const PROCESSES_LISTED = 4_096;
/** Limit for the command line of one process, and for all command lines in an answer together. */
export const COMMAND_LINE_LIMIT_BYTES = 4_096;
export const COMMAND_LINES_LIMIT_BYTES: number = 2 * 1024 * 1024;
/** Limits for concurrent Tunnel.WatchPorts calls, and for the listeners in each list that they send. */
export const PORT_WATCH_LIMIT = 8;
export const PORTS_LISTED = 512;
export const USAGE_WATCH_LIMIT = 8;

export const HEALTH_WATCH_LIMIT = 8;
/** Interval of WatchUsage: minimum, default and maximum. */
export const LEAST_USAGE_INTERVAL_MS = 1_000;
export const DEFAULT_USAGE_INTERVAL_MS = 5_000;
export const USAGE_INTERVAL_LIMIT_MS = 86_400_000;
/** Largest number of file systems, and of network interfaces, in an answer of UsageService. */
export const FILE_SYSTEMS_LISTED = 64;
export const NETWORKS_LISTED = 32;
