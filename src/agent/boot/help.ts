import { AGENT_VERSION } from "../../shared/version.ts";

/** The text that `guest-agent --help` prints. The manual page contains it, too. */
export const HELP: string = `guest-agent ${AGENT_VERSION}
Runs inside a sandbox. Without arguments it starts the agent. The environment variables SVC_* configure the agent (see
docs/agent/operations.md).

  run               start the agent, as without arguments; for hosts that require an explicit command
  bridge [SOCKET]   connect standard input and output to the socket of a running agent (default: SVC_GUEST_SOCKET)
  check [--json]    report what the agent can do in this guest; exits with 1 if something is limited
  check --config [--json]
                    check the SVC_* variables and their files without starting anything; exits with 78 on a fault
  probe [--ready] [SOCKET]
                    ask a running agent over its SVC_PROBE_SOCKET whether it is alive, or with --ready whether its
                    workload is ready; exits with 0 (yes), 1 (no, or no answer) or 64 (wrong arguments, or no socket);
                    waits at most 5 s for the connection and 5 s for the answer; for Kubernetes probes and Docker
                    health checks
  install DIR       copy the agent into a directory, which is created if missing; for Kubernetes init containers
  --version         print the version
  --help            print this
`;
