/**
 * Every event of the agent's log with its fields. docs/agent/operations.md explains the events in a table that is
 * generated from this list. The launcher, which is written in C, logs the events whose names begin with `launcher_`.
 */
export const LOG_EVENTS = {
  accept_failed: ["listener", "errno"],
  agent_ended: ["status", "reason"],
  agent_started: ["version", "pid"],
  background_failed: ["task", "problem"],
  call_failed: ["method", "error"],
  certificate_times_enforced: ["consequence"],
  cgroups_unavailable: ["consequence"],
  connection_broken: ["connection", "peer", "reason"],
  connection_closed: ["connection", "peer", "connections"],
  connection_failed: ["listener", "peer", "reason", "suppressed"],
  connection_opened: ["connection", "peer", "connections"],
  connection_refused: ["listener", "peer", "reason", "suppressed"],
  connection_unused: ["listener", "peer"],
  console_output_dropped: ["dropped_bytes"],
  credentials_refused: ["cause", "problem"],
  credentials_renewed: ["cause"],
  freeze_expired: ["frozen_ms", "processes"],
  frozen_session_kill_failed: ["why"],
  frozen_session_killed: ["why", "frozen_ms", "processes"],
  handshakes_unbounded: ["consequence"],
  hook_ended: ["kind", "exit_code", "timed_out", "oom_killed", "cancelled", "duration_ms"],
  hook_killed_stale: ["kind"],
  hook_processes_left: ["kind", "pids"],
  hook_start_failed: ["kind", "reason", "step", "errno"],
  internal_error: ["origin", "error"],
  kept_pipe_closed: ["limit"],
  launcher_reaped: ["pid", "status", "signal"],
  launcher_signal: ["signal", "sender"],
  management_listening: ["port", "vsock_port", "path"],
  node_warning: ["name", "problem"],
  peer_lost: ["connection", "peer", "silent_ms", "errno"],
  process_ended: ["pid", "status", "signal"],
  process_env_refused: ["cause", "problem"],
  process_env_renewed: ["cause", "version"],
  readiness_changed: ["ready", "exit_code"],
  replaced_authority_disconnected: ["connections"],
  restore_duties_done: [
    "entropy_bytes_mixed",
    "entropy_credited",
    "clock_drift_ms",
    "clock_stepped",
    "degraded",
    "dropped_connections",
    "frozen",
    "thawed_without_duties",
  ],
  server_certificate_expired: ["not_after", "consequence"],
  session_freeze_failed: ["problem"],
  session_frozen: ["processes", "pending", "freeze_ms"],
  session_thaw_failed: ["why"],
  session_thawed: ["frozen_ms"],
  signal_received: ["signal", "workload"],
  spec_field_ignored: ["field"],
  start_failed: ["reason", "problem"],
  stop_requested: [],
  thawed_without_duties: ["why", "frozen_ms"],
  variable_ignored: ["name"],
  variable_misspelt: ["name", "meant"],
  workload_ended: [
    "pid",
    "status",
    "signal",
    "oom_killed",
    "core_dumped",
    "cpu_scope",
    "cpu_user_us",
    "cpu_system_us",
    "peak_memory_scope",
    "peak_memory_bytes",
  ],
  workload_killed: ["pid", "stop_grace_ms", "outcome"],
  workload_socket_listening: ["path"],
  workload_start_abandoned: ["signal"],
  workload_started: ["pid"],
} as const;

/** Stable name of an event. */
export type LogEvent = keyof typeof LOG_EVENTS;

type LogValue = string | number | boolean | undefined;

/** Fields of an event. They never contain a token, a key, an environment value, an argument or the content of a file. */
export type LogFieldsOf<Event extends LogEvent> = Readonly<
  Partial<Record<(typeof LOG_EVENTS)[Event][number], LogValue>>
>;

/** The fields of an event whose name is not known at compile time. */
export type LogFields = Readonly<Record<Lowercase<string>, LogValue>>;
