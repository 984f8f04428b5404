/** Bounds that hold for every client (docs/agent/operations.md, Limits). Units are in the names. */

/** Largest gRPC message accepted or sent. */
export const MESSAGE_LIMIT_BYTES: number = 4 * 1024 * 1024;
/** Execs that may run at once. */
export const EXEC_LIMIT = 256;
/** Kept execs at once, those that have ended and linger included. */
export const KEPT_EXEC_LIMIT = 64;
/** Output that one kept exec may hold for later calls: the most, and the default. */
export const KEPT_BUFFER_LIMIT_BYTES: number = 16 * 1024 * 1024;
export const DEFAULT_KEPT_BUFFER_BYTES: number = 1024 * 1024;
/** Calls that may read the workload's output at once. */
export const WORKLOAD_READERS_LIMIT = 32;
/** Output that all kept execs together may hold. */
export const KEPT_BUFFERS_LIMIT_BYTES: number = 32 * 1024 * 1024;
/** Time that output and exit of a kept exec stay after its end, unless its request says otherwise. */
export const DEFAULT_LINGER_MS = 600_000;
/** Longest time that may be allowed for a tree to end by EndExec. */
export const END_GRACE_LIMIT_MS = 600_000;
/** Longest delay that a timer takes: 24.8 days. */
export const TIMER_LIMIT_MS: number = 2 ** 31 - 1;
/** Longest time for which a kept exec may count as user activity by itself: 24 hours. */
export const AWAKE_LIMIT_MS = 86_400_000;
/** ReadFile and WriteFile calls at once; each holds descriptors, and memory while its client does not read or send. */
export const FILE_CALL_LIMIT = 256;
/** Of those, the calls of one connection. */
export const CONNECTION_FILE_CALL_LIMIT = 64;
/** List and Remove calls at once; each holds up to 16 descriptors. */
export const DIRECTORY_CALL_LIMIT = 64;
/** Of those, the calls of one connection. */
export const CONNECTION_DIRECTORY_CALL_LIMIT = 16;
/** Received bytes of all requests that no handler has taken: incomplete messages and unread ones. */
export const UNREAD_LIMIT_BYTES: number = 64 * 1024 * 1024;
/** Arguments and variables of one exec, together. */
export const EXEC_ENTRIES_LIMIT: number = 128 * 1024;
/** Their size on the new process's stack, with NULs and pointers: a quarter of its usual limit, as execve(2) allows. */
export const EXEC_STRINGS_LIMIT_BYTES: number = 2 * 1024 * 1024;
/** Longest path of a unix socket: sun_path is 108 bytes with its NUL (unix(7)). */
export const SOCKET_PATH_LIMIT_BYTES = 107;
/** Connections that a listener holds at once. */
export const CONNECTION_LIMIT = 64;
/** Time allowed for a TLS handshake, and again for the first request's headers. */
export const HANDSHAKE_TIMEOUT_MS = 5_000;
/** Time from SIGTERM to SIGKILL for an exec, hook or ready_cmd at its timeout, and for what a workload left. */
export const TERM_GRACE_MS = 2_000;
/** Time from SIGHUP to SIGKILL for the session of an exec whose client is gone. */
export const HANGUP_GRACE_MS = 5_000;
/** Longest wait after SIGKILL: a process that hangs in the kernel must not hold up the agent. */
export const KILL_WAIT_MS = 10_000;
/** Pipes of ended commands that the agent still reads because a background process writes to them. */
export const KEPT_PIPES_LIMIT = 256;
/** Time from SIGTERM to SIGKILL for the workload's tree at a stop, unless its spec says otherwise. */
export const DEFAULT_STOP_GRACE_MS = 10_000;
/** Pause between two runs of ready_cmd, unless its spec says otherwise. */
export const DEFAULT_READY_INTERVAL_MS = 1_000;
/** Time allowed for one run of ready_cmd, unless its spec says otherwise. */
export const DEFAULT_READY_TIMEOUT_MS = 5_000;
/** Largest entropy of one RunRestoreDuties. */
export const ENTROPY_LIMIT_BYTES: number = 64 * 1024;
/** Time allowed for a hook, unless its call says otherwise. */
export const DEFAULT_HOOK_TIMEOUT_MS = 30_000;
/** Longest time that may be allowed for a hook. */
export const HOOK_TIMEOUT_LIMIT_MS = 600_000;
/** Longest time for which the session may be frozen. */
export const FREEZE_LIMIT_MS = 600_000;
/** Longest wait for commands that are being started, and again for processes to stop, when the session is frozen. */
export const FREEZE_WAIT_MS = 2_000;
/** How much is kept of the end of each output stream of a hook. */
export const HOOK_TAIL_BYTES: number = 16 * 1024;
/** Tunnels at once. */
export const TUNNEL_LIMIT = 256;
/** Time allowed for a tunnel to be connected in the guest. */
export const TUNNEL_CONNECT_LIMIT_MS = 10_000;
/** Bytes in flight into the guest that all tunnels together may hold. */
export const TUNNEL_WINDOWS_BYTES: number = 8 * 1024 * 1024;
/** The part that a tunnel gets of what the others leave, and the least that it gets. */
export const TUNNEL_WINDOW_PART: number = 1 / 8;
export const NARROW_TUNNEL_WINDOW_BYTES: number = 32 * 1024;
/** Time that WaitForPort waits: the default, and the most. */
export const DEFAULT_PORT_WAIT_MS = 30_000;
export const PORT_WAIT_LIMIT_MS = 86_400_000;
/** Time between two polls for listeners: while a port is waited for, and for those who only watch. */
export const PORT_POLL_MS = 50;
export const PORT_WATCH_POLL_MS = 500;
/** Tunnel.WatchPorts calls at once, and the listeners in a list. */
export const PORT_WATCH_LIMIT = 8;
export const PORTS_LISTED = 512;
/** UsageService.WatchUsage calls at once. */
export const USAGE_WATCH_LIMIT = 8;

/** Calls of grpc.health.v1.Health.Watch at once. */
export const HEALTH_WATCH_LIMIT = 8;
/** Their interval: the least, the default, and the most. */
export const LEAST_USAGE_INTERVAL_MS = 1_000;
export const DEFAULT_USAGE_INTERVAL_MS = 5_000;
export const USAGE_INTERVAL_LIMIT_MS = 86_400_000;
/** File systems and network interfaces that an answer of UsageService lists. */
export const FILE_SYSTEMS_LISTED = 64;
export const NETWORKS_LISTED = 32;
