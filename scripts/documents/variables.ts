import { BOOTSTRAP_VARIABLES } from "../../src/agent/config/index.ts";

/** What each variable of the agent means. Each variable must have a meaning here, or the code does not compile. */
const MEANINGS: Readonly<Record<(typeof BOOTSTRAP_VARIABLES)[number], string>> = {
  SVC_INSTANCE_TOKEN:
    "The token that every management call must have. Set either this variable or `SVC_INSTANCE_TOKEN_FILE`.",
  SVC_INSTANCE_TOKEN_FILE: "A file that contains the token.",
  SVC_GUEST_PORT:
    "The TCP port of the management listener. If you set this variable, you must also set the three `SVC_TLS_*` variables.",
  SVC_GUEST_VSOCK_PORT:
    "The [vsock port](transports.md#vsock) of the management listener. On this port, the agent serves only the host (CID 2). If the three TLS files are set, connections use mutual TLS.",
  SVC_TLS_CERT_FILE: "The agent's certificate, in PEM.",
  SVC_TLS_KEY_FILE: "The private key of the agent's certificate, in PEM.",
  SVC_TLS_CLIENT_CA_FILE:
    "The CA that signs client certificates, in PEM. The agent refuses a file without a CA certificate.",
  SVC_GUEST_SOCKET:
    "The path of the management listener's unix socket. Set at least one of `SVC_GUEST_PORT`, `SVC_GUEST_VSOCK_PORT` and `SVC_GUEST_SOCKET`.",
  SVC_WORKLOAD_SOCKET:
    "The path of the unix socket of [`WorkloadService`](run.md#declare-the-sandbox-idle). Only the workload inherits this variable.",
  SVC_PROBE_SOCKET:
    "The path of the unix socket that [answers probes](run.md#readiness-and-probes). If this variable is not set, the agent answers no probes.",
  SVC_PROCESS_SPEC:
    "The message [`Process`](run.md#your-process), as JSON or as base64 of its binary form. If neither this variable nor `SVC_PROCESS_SPEC_FILE` is set, the agent starts no workload.",
  SVC_PROCESS_SPEC_FILE:
    "A file that contains the message `Process`, as JSON or as base64 of its binary form. This variable cannot be combined with `SVC_PROCESS_SPEC`.",
  SVC_HOOKS_SPEC: "The message [`Hooks`](run.md#your-process), as JSON or as base64 of its binary form.",
  SVC_HOOKS_SPEC_FILE:
    "A file that contains the message `Hooks`, as JSON or as base64 of its binary form. This variable cannot be combined with `SVC_HOOKS_SPEC`.",
  SVC_LOG_LEVEL: "The lowest level of the events that the agent logs: `debug`, `info` (default), `warn` or `error`.",
};

/** The variables of the agent as rows of a table: name and meaning. */
export const VARIABLES: readonly (readonly [name: string, meaning: string])[] = BOOTSTRAP_VARIABLES.map(
  (name) => [`\`${name}\``, MEANINGS[name]] as const,
);
