import type { SandboxCode, Warning } from "../../src/node/sandboxes/index.ts";

/** When a method rejects with each code. Each code must have a meaning here, or the code does not compile. */
const CODES: Readonly<Record<SandboxCode, string>> = {
  CAPABILITY_MISSING:
    "The node does not support the request. For example, the request needs mediated egress, a live snapshot or more resources than the host has, or the hypervisor is not installed or does not support the operation. This error also occurs if the daemon drops the tags of an instance, or if the kernel does not list the processor's feature flags.",
  SNAPSHOT_INVALIDATED:
    "The daemon no longer has the image from which the snapshot was made, or this image is not ready.",
  BUNDLE_MISMATCH:
    "The hypervisor or the agent has changed since the suspension. `acceptBundle` (`--accept-bundle`) accepts the difference, unless the daemon can no longer start the hypervisor.",
  AGENT_TOO_OLD:
    "The agent is older than `minAgentVersion` (`--min-agent`), or its version is unknown. No sandbox was resumed.",
  CPU_CLASS_MISMATCH: "The host's processor does not have the same feature flags as at the suspension.",
  INVALID_SPEC:
    "A field of the request is invalid, or the agent's archive is invalid. The message names the invalid field.",
  IMAGE_NOT_READY: "The image is missing or not ready. The error's `nextStep` says what to do.",
  IMAGE_UNSUITABLE: "The image has no /bin/sh, has a WORKDIR that does not exist, or starts systemd or /sbin/init.",
  NOT_FOUND:
    "This node has no sandbox or snapshot with this name. If another node has it, the message names that node.",
  ALREADY_EXISTS: "The name is already in use, for example by another node or by an old ingress rule.",
  WRONG_STATE: "The sandbox is not in the required state, or is still initializing after `reachTimeoutMs`.",
  PAUSED:
    "The daemon was interrupted during a suspension or restore. The daemon's operator [can save the sandbox](#what-only-the-daemons-operator-can-do).",
  SIBLING_RUNNING:
    "A sandbox with the same vsock CID is running, and under QEMU, only one sandbox with a given CID can run at a time. The message names the running sandbox. A fork of a snapshot, or of a sandbox on standby, has the CID that the sandbox had when it was suspended. If you fork a running sandbox, the fork has the CID that the source had until then, and the daemon gives the source a new CID.",
  LEFT_BEHIND:
    "The daemon was killed during a request and has left a broken record behind: a volume without its instance, an instance that the daemon lists but does not find (404), or several records with the same id (409 `ambiguous`). Only the daemon's operator can remove such a record.",
  SOURCE_ASLEEP: "A snapshot or fork failed, and its source could not be resumed. Call `resume`.",
  NOT_FROZEN:
    'The session could not be frozen. If the call had `freeze: "required"`, the sandbox was not suspended. If the call had `env`, the sandbox was not forked or resumed.',
  ENV_UNSUPPORTED: "The sandbox's agent is older than 0.3.0, or a node older than 0.3.0 suspended the sandbox.",
  ENV_NOT_TAKEN:
    "The session thawed before it had the new variables, or the agent refused the variables or a spec file. A fork with this error is removed. If the agent refused a spec file during `resume`, the session stays [frozen](#secrets-of-a-fork).",
  RESTORE_DEGRADED:
    "A fork could not reseed its random generators. `acceptDegraded` (`--accept-degraded`) keeps the fork.",
  AGENT_UNREACHABLE:
    "The agent did not answer within `reachTimeoutMs`, or the connection broke. Other causes: the guest's kernel panicked while it booted, or the daemon's init was built for another processor architecture.",
  AGENT_ENDED: "The agent exited before its first answer.",
  HOSTNAME_IN_USE: "The hostname already has an ingress rule.",
  INGRESS_NOT_SERVED:
    "The proxy does not run, the proxy does not have the rule (404), or another program uses the proxy's port.",
  GUEST_NOT_LISTENING:
    "The proxy reached no server in the sandbox (502, 503), for example because the server listens only on the loopback.",
  SUBSTRATE_UNAVAILABLE: "The daemon does not run, the daemon did not answer in time, or another program answered.",
  SUBSTRATE_UNAUTHORIZED:
    "The daemon refused the token, or the token lacks a scope. The error's message names the missing scope, and its `nextStep` lists all required scopes.",
  INSUFFICIENT_RESOURCES: "The host does not have enough resources at the moment (409, 429).",
  SUBSTRATE_REFUSED: "The daemon answered 4xx.",
  SUBSTRATE_FAILED:
    "The daemon answered 5xx, but not 502 to 504, for example because its disk is full. The daemon's log says why.",
  ABORT_ERR:
    "The caller's `signal` was aborted. The error's `name` is `AbortError`, and its `cause` is the signal's reason.",
  OPERATION_TIMED_OUT: "The operation has not ended within its `requestTimeoutMs`.",
  SANDBOX_BUSY: "Another process has been working on the sandbox for more than `lockTimeoutMs` (30 s).",
  JOURNAL_FAILED: "The state directory is full, damaged, or accessible to others.",
  NODE_ID_CONFLICT:
    "Another journal has recorded resources with this node's id: another node has the same id, or this node's journal was lost. `sweep` removes these resources only with `takeOver`.",
  MISSING_PACKAGE: "An optional package or `node:sqlite` is missing.",
};

/** When an operation that succeeds has each warning in its result. */
const WARNINGS: Readonly<Record<Warning["code"], string>> = {
  DUTIES_DEGRADED:
    "A restore step failed. The message has the agent's [codes](../agent/snapshots.md#degraded) of the failed steps.",
  CLOCK_OFF:
    "After the restore steps, the guest's clock differs from the host's by more than 100 ms. The library subtracts the inaccuracy of its measurement from the difference before it compares.",
  THAWED_WITHOUT_DUTIES: "The frozen session thawed before the restore steps, so it ran with the old time.",
  NOT_FROZEN:
    "The session could not be frozen, for example because the sandbox's agent is too old. From the resume or fork until the restore steps, the session runs with the old time, the same random numbers as other forks, and the secrets of its source.",
  HOOK_FAILED: "The POST_RESTORE hook failed.",
  HOOK_TIMED_OUT: "The POST_RESTORE hook did not end in time.",
  BUNDLE_DIFFERS:
    "The daemon's build has changed since the suspension, or the hypervisor or the agent has changed and the caller had set `acceptBundle`.",
  STOP_BOUNDED: "The agent did not answer, so the workload had only 5 s to stop.",
  STOP_FORCED: "The agent answered, but did not exit in time.",
};

type Row = readonly [name: string, meaning: string];

function rowsOf(meanings: Readonly<Record<string, string>>): readonly Row[] {
  return Object.entries(meanings).map(([name, meaning]) => [`\`${name}\``, meaning]);
}

/** The codes of errors and of warnings as rows of tables. */
export const SANDBOX_CODES: readonly Row[] = rowsOf(CODES);
export const SANDBOX_WARNINGS: readonly Row[] = rowsOf(WARNINGS);
