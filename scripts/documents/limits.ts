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
  ["size of a message", `${bytes(limits.MESSAGE_LIMIT_BYTES)}; the agent sends output in frames of at most 64 KiB`],
  ["commands at once", `${limits.EXEC_LIMIT} commands, not counting commands that have ended`],
  ["kept commands at once", `${limits.KEPT_COMMAND_LIMIT} commands, including commands that have ended`],
  [
    "output buffer of a kept command",
    `${bytes(limits.DEFAULT_KEPT_BUFFER_BYTES)} by default, at most ${bytes(limits.KEPT_BUFFER_LIMIT_BYTES)}; all buffers together have at most ${bytes(limits.KEPT_BUFFERS_LIMIT_BYTES)}`,
  ],
  [
    "pending input of a kept command",
    "When more than 256 KiB of input wait for the kept command and another 256 KiB wait in the attached call, the agent reads no more input from the call",
  ],
  [
    "time for which the agent keeps a kept command after its end",
    `${duration(limits.DEFAULT_LINGER_MS)} by default, at most 24.8 days`,
  ],
  [
    "grace period of EndExec",
    `${duration(limits.TERM_GRACE_MS)} by default, at most ${duration(limits.END_GRACE_LIMIT_MS)}`,
  ],
  [
    "kept output of the workload",
    `${bytes(limits.DEFAULT_KEPT_BUFFER_BYTES)} by default, at most ${bytes(limits.KEPT_BUFFER_LIMIT_BYTES)}; at most ${limits.WORKLOAD_READERS_LIMIT} calls may read the workload's output at the same time`,
  ],
  [
    "arguments and variables of a command",
    `A request has at most ${count(limits.EXEC_ENTRIES_LIMIT)} arguments and variables; variables that the command inherits do not count. Each argument or variable has at most 131,071 bytes (execve(2)). Together, the arguments and variables have at most ${bytes(limits.EXEC_STRINGS_LIMIT_BYTES)}. In this sum, each argument or variable counts 9 bytes more than its length: 1 for its NUL and 8 for its pointer`,
  ],
  [
    "fields of a message",
    "A message has at most 1,024 fields. A message of WriteTree may have 16,384 fields, and the first message of Exec may have 132,096 fields",
  ],
  [
    "ReadFile and WriteFile calls at once",
    `${limits.FILE_CALL_LIMIT} calls, of which at most ${limits.CONNECTION_FILE_CALL_LIMIT} may be on one connection`,
  ],
  [
    "List, Remove, ReadTree and WriteTree calls at once",
    `${limits.DIRECTORY_CALL_LIMIT} calls, of which at most ${limits.CONNECTION_DIRECTORY_CALL_LIMIT} may be on one connection`,
  ],
  [
    "duration of each system call that a file call makes",
    "A system call may take 15 s, and an fsync 10 min; after that time, the file system [counts as hung](files.md#limits)",
  ],
  [
    "FileTree.Watch calls at once",
    `${limits.WATCH_CALL_LIMIT} calls. One call watches at most ${count(limits.WATCHED_DIRECTORIES_LIMIT)} directories, and all calls together watch at most ${count(limits.ALL_WATCHED_DIRECTORIES_LIMIT)}. A call has at most ${limits.WATCH_PATTERN_LIMIT} glob patterns. If more than ${count(limits.WATCH_CHANGES_LIMIT)} changes wait for the client, or changes with more than ${bytes(limits.WATCH_CHANGES_LIMIT_BYTES)} of paths, the agent replaces these changes by [a \`RESCAN\`](files.md#watching)`,
  ],
  ["calls of grpc.health.v1.Health.Watch at once", `${limits.HEALTH_WATCH_LIMIT} calls`],
  [
    "WatchUsage calls at once",
    `${limits.USAGE_WATCH_LIMIT} calls. The interval between two reports is ${duration(limits.LEAST_USAGE_INTERVAL_MS)} to ${duration(limits.USAGE_INTERVAL_LIMIT_MS)}. A report has at most ${limits.FILE_SYSTEMS_LISTED} file systems and ${limits.NETWORKS_LISTED} network interfaces`,
  ],
  [
    "WatchPorts calls at once",
    `${limits.PORT_WATCH_LIMIT} calls. A list has at most ${limits.PORTS_LISTED} ports. The agent polls the ports every ${duration(limits.PORT_WATCH_POLL_MS)}, and every ${duration(limits.PORT_POLL_MS)} while a WaitForPort waits`,
  ],
  [
    "processes in an answer of ListProcesses",
    `The answer has at most ${count(limits.PROCESSES_LISTED)} processes, at most ${bytes(limits.COMMAND_LINE_LIMIT_BYTES)} of each command line, and at most ${bytes(limits.COMMAND_LINES_LIMIT_BYTES)} of all command lines together. If the agent cannot read a command line within 1 s, it lists the process without a command line. After 3 s for all command lines, or while two reads hang, the agent lists the remaining processes without command lines`,
  ],
  ["tunnels at once", `${limits.TUNNEL_LIMIT} tunnels`],
  [
    "flow-control window of a tunnel into the guest",
    `Up to ${bytes(limits.TUNNEL_WINDOWS_BYTES)} for all tunnels together, and ${bytes(limits.NARROW_TUNNEL_WINDOW_BYTES)} for each further tunnel. A new tunnel gets an eighth of the part that no other tunnel uses, but at least ${bytes(limits.NARROW_TUNNEL_WINDOW_BYTES)} and at most 1 MiB`,
  ],
  ["time to connect a tunnel", duration(limits.TUNNEL_CONNECT_LIMIT_MS)],
  [
    "duration of a WaitForPort",
    `${duration(limits.DEFAULT_PORT_WAIT_MS)} by default, at most ${duration(limits.PORT_WAIT_LIMIT_MS)}`,
  ],
  [
    "unread requests",
    `${bytes(limits.UNREAD_LIMIT_BYTES)} for all unread requests together. Incomplete messages and messages of more than 256 KiB always count toward this limit. A complete message of at most 256 KiB does not count while it waits for its command to read it. For example, if 250 commands do not read their input, the agent uses 188 MB of memory, of which the waiting messages take 150 MB`,
  ],
  [
    "connections to a listener",
    `${limits.CONNECTION_LIMIT} connections, and 16 surplus connections above this limit. At its first authenticated call, a surplus connection becomes one of the ${limits.CONNECTION_LIMIT}: it takes a free place, or the place of a connection that has made no authenticated call. If all ${limits.CONNECTION_LIMIT} have made one, the agent closes the connection with the oldest unanswered PING, if this PING is at least 60 s old. Otherwise, calls on the surplus connection fail with \`TOO_MANY_CONNECTIONS\` until another connection ends`,
  ],
  ["time for the TLS handshake, and then for the first request", `${duration(limits.HANDSHAKE_TIMEOUT_MS)} each`],
  [
    "certificate chain of a client",
    "at most four certificates, 5.5 KiB and 400 DER elements. Three certificates with RSA-4096 keys are within this limit",
  ],
  [
    "before the first authenticated call of a connection",
    "Until a connection makes its first authenticated call, the agent reads at most 256 KiB from the connection, in at most 1,000 reads. The agent also accepts only a burst of 100 calls, and after that 10 calls a second. If the client makes more calls, the agent closes the connection (GOAWAY `ENHANCE_YOUR_CALM`)",
  ],
  ["headers of a call", bytes(http2.headerListBytes)],
  ["CONTINUATION frames of a header block", `${http2.continuationFrames} frames ${CALM}`],
  ["calls on a connection at the same time", `${http2.streams} calls (\`REFUSED_STREAM\`)`],
  ["calls that a client cancels by RST_STREAM", `a burst of 500 calls, and after that 50 calls a second ${CALM}`],
  [
    "useless frames",
    `a burst of ${count(http2.idleFrames)} frames, and after that ${http2.idleFramesPerSecond} frames a second ${CALM}. Useless frames are a second GOAWAY, PRIORITY, frames of unknown types, unsolicited acknowledgements, and empty DATA frames. PING, SETTINGS and WINDOW_UPDATE count too, if there are more than 64 of them for each call and for each DATA frame of the agent. A cancelled or refused call counts as two frames. Before the first authenticated call, every frame counts`,
  ],
  ["answers to PING and SETTINGS that the peer does not read", `${http2.unwrittenAnswers} answers ${CALM}`],
  [
    "closing a connection",
    "The agent closes the socket when the peer has neither read nor sent anything for 1 s, and at the latest 5 s after the agent began to close the connection. If the connection has made no authenticated call, the agent closes the socket after at most 0.5 s",
  ],
  [
    "time until the agent refuses a call because of its headers",
    "The agent refuses the call when the client has sent the complete request, or after 1 s if the request is still incomplete",
  ],
  ["token", "4,096 characters"],
  [
    "hook",
    `A hook may run for ${duration(limits.DEFAULT_HOOK_TIMEOUT_MS)} by default, and for at most ${duration(limits.HOOK_TIMEOUT_LIMIT_MS)}. After this time, the hook gets SIGTERM and has ${duration(limits.TERM_GRACE_MS)} to exit. The answer has the last ${bytes(limits.HOOK_TAIL_BYTES)} of each output stream`,
  ],
  [
    "freeze of the session (`freeze_ms`)",
    `A freeze lasts at most ${duration(limits.FREEZE_LIMIT_MS)}. Before a freeze, the agent waits up to ${duration(limits.FREEZE_WAIT_MS)} until no command is being started. After that, the agent waits up to ${duration(limits.FREEZE_WAIT_MS)} until all processes are frozen`,
  ],
  ["entropy of one RunRestoreDuties", bytes(limits.ENTROPY_LIMIT_BYTES)],
];

/** The limits of the workload's socket. */
export const WORKLOAD_LIMITS: readonly (readonly [what: string, limit: string])[] = [
  [
    "connections",
    `${workload.connections} connections; a further connection replaces a connection whose first request is not complete; if there is none, the agent refuses the further connection`,
  ],
  [
    "time from the start of a connection to its first bytes, which show whether it uses HTTP/1 or HTTP/2",
    `${duration(workload.headersTimeoutMs)}; with HTTP/2, the headers of the first request have another ${duration(workload.headersTimeoutMs)}`,
  ],
  [
    "time for a request and its answer",
    `${duration(workload.requestTimeoutMs)}; with HTTP/1, this time begins with the first bytes of the request`,
  ],
  ["time for which a connection may have no traffic", duration(workload.idleTimeoutMs)],
  [
    "age of an HTTP/2 connection",
    `${duration(workload.connectionAgeMs)}; after that, the connection accepts no more requests`,
  ],
  ["size of a message", bytes(MESSAGE_LIMIT_BYTES)],
  ["headers of a request", "8 KiB"],
  ["calls on a connection at the same time", "4 calls"],
  ["calls that a client cancels by RST_STREAM", "a burst of 50 calls, and after that 5 calls a second"],
  ["empty frames", "a burst of 100 frames, and after that 10 frames a second"],
  [
    "bytes read in one tick of the event loop",
    "8 KiB from all connections together, in turns of 2 KiB for each connection",
  ],
];
