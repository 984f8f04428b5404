import { LOG_EVENTS, type LogEvent } from "../../src/agent/domain/log-events.ts";

/**
 * When each event is logged, and at which level if that matters. Each event must have a meaning here, or the code does
 * not compile.
 */
const MEANINGS: Readonly<Record<LogEvent, string>> = {
  accept_failed:
    "The agent (`EMFILE`) or the guest (`ENFILE`) has no file descriptors left. Until descriptors are free, the agent closes new connections immediately. The agent logs this event at most once in 10 s for each listener.",
  agent_ended:
    "The agent exits. `agent_ended` is the last event in its log, except for `launcher_reaped`. `reason` says how the workload ended, or why an agent without a workload ends. The event is missing after `start_failed` and after an exit with 70.",
  agent_started: "The agent has read its configuration.",
  background_failed: "A background task failed because of a bug.",
  call_failed: "A call failed because of a bug. The client got INTERNAL.",
  certificate_times_enforced:
    "This build of the agent rejects certificates that, according to the guest's clock, are not valid yet. The project's own builds accept such certificates. `consequence` says what does not work.",
  cgroups_unavailable:
    "The guest has [no cgroups](reliability.md#finding-a-tree). `consequence` says what the agent does instead.",
  connection_broken:
    "After its first authenticated call, the client violated HTTP/2 or exceeded a limit, so the agent ended the connection. Level: debug.",
  connection_closed:
    "A client has disconnected. `connections` is the number of this listener's connections that are open now. Level: debug.",
  connection_failed:
    "The agent ended the connection. Before its first authenticated call, the client violated HTTP/2, exceeded a limit, or made no call in time. Or the connection had to make room for another one. On the socket of `WorkloadService`, the agent also logs violations of later requests.",
  connection_opened:
    "A client has connected. `connections` is the number of this listener's connections that are open now. Level: debug.",
  connection_refused:
    "The agent refused the connection, for example because of a missing or expired certificate, a wrong CA, plain text, or too many connections.",
  connection_unused: "The peer left during the TLS handshake, as load balancers do. Level: debug.",
  console_output_dropped:
    "The console did not read [kept output](run.md#the-workloads-output) fast enough. The agent logs this event at most once in 10 s, and once more when the workload has ended.",
  credentials_refused: "The changed token or TLS files are invalid or cannot be read. The old files stay in use.",
  credentials_renewed:
    "The agent has read the token and TLS files again. The level of this event is `debug` if the reason was a snapshot or a call with a wrong token.",
  freeze_expired:
    "The time limit `freeze_ms` of a freeze had passed. The agent killed the frozen session instead of thawing it, because the agent had [refused a spec file](snapshots.md#a-refused-spec).",
  frozen_session_kill_failed:
    "The kernel refused to kill the frozen session. The session stays frozen, and the agent tries again.",
  frozen_session_killed:
    "A signal (`signal`), `Lifecycle.Stop` (`signal` too) or the agent's exit (`leaving`) ended the freeze. The agent killed the frozen session instead of thawing it, because the agent had [refused a spec file](snapshots.md#a-refused-spec).",
  handshakes_unbounded:
    "This build of the agent cannot limit how much work a client causes by TLS handshakes. `consequence` says what can happen.",
  hook_ended: "A hook ended.",
  hook_killed_stale: "The restore steps killed a PRE_SNAPSHOT hook that was still running.",
  hook_processes_left:
    "The agent did not end daemons that a stopped hook left behind, because the guest has no cgroups. `pids` names the daemons that have the hook's output open.",
  hook_start_failed: "A hook could not be started ([reasons](#error-reasons)).",
  internal_error:
    "The agent has a bug; `error` has the stack. The call or connection ends. If more than 50 such errors occur in a burst, the agent exits with 70.",
  kept_pipe_closed:
    "Ended commands have left too many output pipes, which their [background processes](run.md#background-processes-of-a-command) still use. The agent closed the output pipe of the command that ended first.",
  launcher_reaped: "The launcher reaped an orphan or the agent. Level: debug.",
  launcher_signal:
    "The launcher got a signal, and forwards it to the agent. `sender` is the process id of the sender, or 0 if the kernel sent the signal. Level: debug.",
  management_listening: "The management listener accepts connections.",
  node_warning: "Node printed a warning, because of a bug in the agent.",
  peer_lost:
    "The agent closed the connection, because the client's kernel no longer acknowledges anything ([lost clients](reliability.md#lost-and-paused-clients)).",
  process_ended: "A child of the agent ended. Level: debug.",
  process_env_refused: "The changed spec file is invalid or cannot be read. The old file stays in use.",
  process_env_renewed: "New commands and hooks get the changed variables.",
  readiness_changed: "The result of `ready_cmd` changed.",
  replaced_authority_disconnected:
    "The agent ends connections whose client certificates were not issued by a CA in the new CA file.",
  restore_duties_done: "The restore steps ended. The level is `warn` if a step is degraded.",
  server_certificate_expired: "According to the guest's clock, the agent's certificate has expired.",
  session_freeze_failed:
    "The session could not be frozen, for one of [these reasons](snapshots.md#freeze_problem) (`problem`).",
  session_frozen:
    "The session is frozen. `pending` is the number of processes that have not stopped yet, because they wait in the kernel.",
  session_thaw_failed:
    "The kernel refused to thaw the session. The agent tries again, and the host should repeat the restore steps.",
  session_thawed: "The restore steps thawed the session.",
  signal_received:
    "The agent got a signal, or `Lifecycle.Stop` was called (`signal` is 15). `workload` is `forwarded` if the agent forwarded the signal to the workload, and `not_running` if no workload was running. Level: debug.",
  spec_field_ignored:
    "A changed spec file has a new value for a field (`field`) that cannot change while the agent runs. The old value stays in use.",
  start_failed: "The workload or a listener could not be started.",
  stop_requested: "`Lifecycle.Stop` was called.",
  thawed_without_duties:
    "The session thawed without restore steps. The field `why` has the reason: `freeze_ms` had passed (`time_over`), a signal or `Lifecycle.Stop` asked the workload or the agent to end (`signal`), or the agent is exiting (`leaving`).",
  variable_ignored:
    "The agent ignores the variable `name` of its environment. The variable begins with `SVC_`, but the agent has no variable with this name or a similar name.",
  variable_misspelt:
    "The agent ignores the variable `name` of its environment, which is probably misspelt: the agent has a variable with the similar name `meant`.",
  workload_ended:
    "The workload ended, and the agent will exit with `status`. If `oom_killed` is missing, the guest has no memory controller that counts out-of-memory kills.",
  workload_killed:
    "The agent sent SIGKILL, because processes of the workload still ran after the grace period. If some processes still ran after SIGKILL, `outcome` is `left`.",
  workload_socket_listening: "The socket of `WorkloadService` accepts connections.",
  workload_start_abandoned: "A signal asked the agent to stop before the workload ran.",
  workload_started: "The workload runs.",
};

/** The events of the agent's log as rows of a table: name, fields and meaning. */
export const LOG_EVENT_ROWS: readonly (readonly [name: string, fields: string, meaning: string])[] = (
  Object.keys(MEANINGS) as LogEvent[]
).map((name) => [`\`${name}\``, LOG_EVENTS[name].map((field) => `\`${field}\``).join(" "), MEANINGS[name]]);
