/**
 * Names of the bootstrap channel: the whole configuration of the agent. Every one of them is removed from the
 * environment of every child (contract, "Environment of an exec'd command", layer 1).
 */
export const BOOTSTRAP_VARIABLES = [
  "SVC_INSTANCE_TOKEN",
  "SVC_INSTANCE_TOKEN_FILE",
  "SVC_GUEST_PORT",
  "SVC_TLS_CERT_FILE",
  "SVC_TLS_KEY_FILE",
  "SVC_TLS_CLIENT_CA_FILE",
  "SVC_GUEST_SOCKET",
  "SVC_WORKLOAD_SOCKET",
  "SVC_PROCESS_SPEC",
  "SVC_PROCESS_SPEC_FILE",
  "SVC_HOOKS_SPEC",
  "SVC_HOOKS_SPEC_FILE",
  "SVC_LOG_LEVEL",
] as const;

/** A name of the bootstrap channel. */
export type BootstrapVariable = (typeof BOOTSTRAP_VARIABLES)[number];
