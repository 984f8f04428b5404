/** Options that several commands of `guestctl sandbox` share. */

/** Environment variables of the workload and of all commands. */
export const ENVIRONMENT_OPTIONS = {
  env: {
    short: "e",
    multiple: true,
    argument: "NAME=value",
    help: "set a variable; NAME without a value takes the value from guestctl's environment, so that other users cannot read it in the arguments",
  },
  "env-file": {
    multiple: true,
    argument: "FILE",
    completes: "file",
    help: "read environment variables from a file with one NAME=VALUE in each line",
  },
} as const;

/** Options of every command that restores a sandbox. */
export const RESTORE_OPTIONS = {
  "accept-bundle": {
    help: "restore even if the hypervisor or the agent version has changed since the suspension",
  },
  "accept-unfrozen": {
    help: "with --env, continue even if the session was not frozen, so that its processes may have used the old secrets",
  },
  "min-agent": {
    argument: "VERSION",
    help: "fail, and restore nothing, if the agent of the sandbox is older than this version",
  },
} as const;

export const FREEZE_OPTION = {
  freeze: {
    argument: "HOW",
    completes: ["on", "off", "required"],
    help: "freeze the session for the snapshot: on (default), off, or required (the command fails if it cannot freeze)",
  },
} as const;

export const TIMEOUT_OPTION = {
  timeout: {
    argument: "DURATION",
    help: "time limit of a hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
  },
} as const;

export const WAIT_OPTION = {
  wait: { argument: "DURATION", help: "time limit for the agent to answer, including the boot (default 60s)" },
} as const;

export const AGENT_OPTION = {
  agent: { argument: "FILE", completes: "file", help: "the agent's .tar.gz archive (default: $GUESTCTL_AGENT)" },
} as const;
