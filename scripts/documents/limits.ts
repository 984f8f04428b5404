import * as limits from "../../src/agent/domain/limits.ts";
import { DEFAULT_HTTP2_LIMITS as http2 } from "../../src/agent/http2/limits.ts";
import { DEFAULT_WORKLOAD_LIMITS as workload, MESSAGE_LIMIT_BYTES } from "../../src/agent/workload-service/limits.ts";

const count = (number: number): string => number.toLocaleString("en");

/** A number of bytes in the largest binary unit that divides it. */
function bytes(number: number): string {
  if (number % 2 ** 20 === 0) return `${count(number / 2 ** 20)} MiB`;
  return number % 2 ** 10 === 0 ? `${count(number / 2 ** 10)} KiB` : `${count(number)} bytes`;
}

/** A duration in the largest unit that divides it. */
function duration(ms: number): string {
  for (const [unit, length] of [
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
  ] as const)
    if (ms % length === 0) return `${ms / length} ${unit}`;
  return `${ms} ms`;
}

const CALM = "(`ENHANCE_YOUR_CALM`)";

/** The limits of the management listener and of all calls. The numbers come from the sources if these export them. */
export const LIMITS: readonly (readonly [what: string, limit: string])[] = [
  ["size of a message", `${bytes(limits.MESSAGE_LIMIT_BYTES)}; output arrives in frames of at most 64 KiB`],
  ["commands at once", `${limits.EXEC_LIMIT}, not counting those that have ended`],
  ["kept commands at once", `${limits.KEPT_COMMAND_LIMIT}, including those that have ended`],
  [
    "output buffer of a kept command",
    `${bytes(limits.DEFAULT_KEPT_BUFFER_BYTES)} by default, at most ${bytes(limits.KEPT_BUFFER_LIMIT_BYTES)}; all buffers together ${bytes(limits.KEPT_BUFFERS_LIMIT_BYTES)}`,
  ],
  ["pending input of a kept command", "256 KiB in the kept command, and 256 KiB more in the attached call"],
  [
    "how long the agent keeps a kept command after its end",
    `${duration(limits.DEFAULT_LINGER_MS)} by default, at most 24.8 days`,
  ],
  [
    "grace period of EndExec",
    `${duration(limits.TERM_GRACE_MS)} by default, at most ${duration(limits.END_GRACE_LIMIT_MS)}`,
  ],
  [
    "kept output of the workload",
    `${bytes(limits.DEFAULT_KEPT_BUFFER_BYTES)} by default, at most ${bytes(limits.KEPT_BUFFER_LIMIT_BYTES)}; at most ${limits.WORKLOAD_READERS_LIMIT} calls read it at once`,
  ],
  [
    "arguments and variables of a command",
    `${count(limits.EXEC_ENTRIES_LIMIT)} arguments and variables; ${bytes(limits.EXEC_STRINGS_LIMIT_BYTES)} in all, where 9 bytes are added for each; 131,071 bytes in each (execve(2))`,
  ],
  ["fields of a message", "1,024, but 16,384 in a message of WriteTree"],
  [
    "ReadFile and WriteFile calls at once",
    `${limits.FILE_CALL_LIMIT}; ${limits.CONNECTION_FILE_CALL_LIMIT} on one connection`,
  ],
  [
    "List and Remove calls at once",
    `${limits.DIRECTORY_CALL_LIMIT}; ${limits.CONNECTION_DIRECTORY_CALL_LIMIT} on one connection`,
  ],
  [
    "duration of a system call of a file call",
    "15 s, or 10 min for an fsync; after that time, the file system [counts as hung](files.md#limits)",
  ],
  [
    "FileTree.Watch calls at once",
    `${limits.WATCH_CALL_LIMIT}; a call watches at most ${limits.WATCHED_DIRECTORIES_LIMIT.toLocaleString("en")} directories, and all calls together ${limits.ALL_WATCHED_DIRECTORIES_LIMIT.toLocaleString("en")}; a call has at most ${limits.WATCH_PATTERN_LIMIT} glob patterns; if more than ${limits.WATCH_CHANGES_LIMIT.toLocaleString("en")} changes or ${limits.WATCH_CHANGES_LIMIT_BYTES / 2 ** 20} MiB of their paths wait for the client, they become [a rescan](files.md#watching)`,
  ],
  ["calls of grpc.health.v1.Health.Watch at once", `${limits.HEALTH_WATCH_LIMIT}`],
  [
    "WatchUsage calls at once",
    `${limits.USAGE_WATCH_LIMIT}; the interval is ${duration(limits.LEAST_USAGE_INTERVAL_MS)} to ${duration(limits.USAGE_INTERVAL_LIMIT_MS)}; a report has at most ${limits.FILE_SYSTEMS_LISTED} file systems and ${limits.NETWORKS_LISTED} network interfaces`,
  ],
  [
    "WatchPorts calls at once",
    `${limits.PORT_WATCH_LIMIT}; a list has at most ${limits.PORTS_LISTED} ports; the agent polls ports every ${duration(limits.PORT_WATCH_POLL_MS)}, and every ${duration(limits.PORT_POLL_MS)} during a WaitForPort`,
  ],
  [
    "processes in an answer of ListProcesses",
    `${count(limits.PROCESSES_LISTED)}; ${bytes(limits.COMMAND_LINE_LIMIT_BYTES)} of each command line, ${bytes(limits.COMMAND_LINES_LIMIT_BYTES)} of all command lines; if reading a command line takes more than 1 s, the process is listed without it`,
  ],
  ["tunnels at once", `${limits.TUNNEL_LIMIT}`],
  [
    "flow-control window of a tunnel into the guest",
    `${bytes(limits.TUNNEL_WINDOWS_BYTES)} for all tunnels together. A new tunnel gets an eighth of what is left, but at least ${bytes(limits.NARROW_TUNNEL_WINDOW_BYTES)} and at most 1 MiB`,
  ],
  ["connecting a tunnel", duration(limits.TUNNEL_CONNECT_LIMIT_MS)],
  [
    "WaitForPort",
    `${duration(limits.DEFAULT_PORT_WAIT_MS)} by default, at most ${duration(limits.PORT_WAIT_LIMIT_MS)}`,
  ],
  [
    "unread requests: incomplete messages, and complete ones over 256 KiB",
    `${bytes(limits.UNREAD_LIMIT_BYTES)} in all. Complete messages of at most 256 KiB that wait for their command are not counted. If 250 commands read no input, such messages take 150 MB of the 188 MB of memory that the agent then uses`,
  ],
  [
    "connections to a listener",
    `${limits.CONNECTION_LIMIT}. Above this limit, the agent accepts 16 surplus connections. At the first authenticated call on a surplus connection, this connection changes places with a connection that has had no authenticated call. If every connection has had such a call, the agent closes the connection with the oldest unanswered PING, if this PING is at least 60 s old. Otherwise the calls on the surplus connection fail with \`TOO_MANY_CONNECTIONS\` until another connection ends`,
  ],
  ["TLS handshake; then the wait for the first request", `${duration(limits.HANDSHAKE_TIMEOUT_MS)} each`],
  [
    "certificate chain of a client",
    "at most four certificates, 5.5 KiB and 400 DER elements. Three certificates with RSA-4096 keys are within this limit. The [security model](security-model.md#what-is-protected) says more",
  ],
  [
    "before the first authenticated call of a connection",
    "at most 256 KiB in at most 1,000 reads; a burst of 100 calls, then 10 calls a second (GOAWAY `ENHANCE_YOUR_CALM`)",
  ],
  ["headers of a call", bytes(http2.headerListBytes)],
  ["CONTINUATION frames of a header block", `${http2.continuationFrames} ${CALM}`],
  ["calls at once on a connection", `${http2.streams} (\`REFUSED_STREAM\`)`],
  ["calls that a client cancels by a reset", `500 at once, 50 a second ${CALM}`],
  [
    "useless frames (PING, WINDOW_UPDATE, GOAWAY, unsolicited acknowledgements, empty frames)",
    `${count(http2.idleFrames)} at once, ${http2.idleFramesPerSecond} a second ${CALM}`,
  ],
  ["answers to PING and SETTINGS that the peer does not read", `${http2.unwrittenAnswers} ${CALM}`],
  [
    "closing a connection",
    "the agent closes the socket when the peer has neither read nor sent for 1 s, or at the latest 5 s after the close began",
  ],
  ["answer to a call that is refused because of its headers", "sent when the request is complete, or after 1 s"],
  ["token", "4,096 characters"],
  [
    "hook",
    `${duration(limits.DEFAULT_HOOK_TIMEOUT_MS)} by default, at most ${duration(limits.HOOK_TIMEOUT_LIMIT_MS)}, then ${duration(limits.TERM_GRACE_MS)} to exit after SIGTERM; the last ${bytes(limits.HOOK_TAIL_BYTES)} of each output stream are returned`,
  ],
  [
    "freeze of the session (`freeze_ms`)",
    `${duration(limits.FREEZE_LIMIT_MS)} at most; for a freeze, the agent waits ${duration(limits.FREEZE_WAIT_MS)} for commands that are being started, and ${duration(limits.FREEZE_WAIT_MS)} for processes to stop`,
  ],
  ["entropy of one RunRestoreDuties", bytes(limits.ENTROPY_LIMIT_BYTES)],
];

/** The limits of the workload's socket. */
export const WORKLOAD_LIMITS: readonly (readonly [what: string, limit: string])[] = [
  [
    "connections",
    `${workload.connections}; a new connection replaces the oldest connection whose first request is not complete`,
  ],
  ["from connecting to the headers of the first request", duration(workload.headersTimeoutMs)],
  ["a request and its answer", duration(workload.requestTimeoutMs)],
  ["a connection without traffic", duration(workload.idleTimeoutMs)],
  [
    "age of an HTTP/2 connection",
    `${duration(workload.connectionAgeMs)}; after that, the connection accepts no more requests`,
  ],
  ["size of a message", bytes(MESSAGE_LIMIT_BYTES)],
  ["headers of a request", "8 KiB"],
  ["calls at once on a connection", "4"],
  ["calls that a client cancels by a reset", "32 at once, 1 a second"],
  ["empty frames", "100 at once, 10 a second"],
  ["bytes read in one tick of the event loop", "2 KiB from one connection, 8 KiB from all connections together"],
];
