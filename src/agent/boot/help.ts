import { AGENT_VERSION } from "../../shared/version.ts";

/** The text that `guest-agent --help` prints. The manual page contains it, too. */
export const HELP: string = `guest-agent ${AGENT_VERSION}
Runs inside a sandbox. Without arguments it is the agent; all that it needs is in its environment (SVC_*; see
docs/agent/operations.md).

  run               the same as no argument, for a substrate that starts the image's command where it is given none
  bridge [SOCKET]   join standard input and output to the socket of a running agent (default: SVC_GUEST_SOCKET)
  check [--json]    say what the agent could do in this guest; exits with 1 where something is limited
  check --config [--json]
                    check the SVC_* variables and their files, and start nothing; exits with 78 at a fault
  probe [--ready] [SOCKET]
                    ask a running agent whether it is alive, or whether its workload is ready, over its
                    SVC_PROBE_SOCKET: exit status 0 or 1, for probes of Kubernetes and health checks of Docker
  install DIR       copy the agent into a directory, for an init container of Kubernetes; creates the directory
  --version         print the version
  --help            print this
`;
