/** A requirement of the contract, and a test that holds it: the file, and a part of the title as written there. */
export interface Requirement {
  /** Short form of the contract's sentence. */
  readonly says: string;
  readonly tests: readonly (readonly [file: string, title: string])[];
}

const HEALTH = "agent/health/health.test.ts";
const RUN = "agent/hooks/run.test.ts";
const ENTROPY_DUTY = "agent/restore/entropy-duty.test.ts";
const CLOCK_DUTY = "agent/restore/clock-duty.test.ts";
const ENVIRONMENT = "agent/exec/environment.test.ts";
const PIPES = "agent/exec/pipes.test.ts";
const CERTIFICATES = "agent/restore/certificates.test.ts";
const GUEST_SOCKET = "transports/guest-socket.test.ts";

/** The guest agent contract, section by section. */
export const REQUIREMENTS: Readonly<Record<string, readonly Requirement[]>> = {
  Services: [
    {
      says: "WorkloadService is served on a separate unix socket whose path is in SVC_WORKLOAD_SOCKET",
      tests: [["agent/workload/workload.test.ts", "is bound before the workload starts"]],
    },
    {
      says: "The management operations are not reachable on the workload socket",
      tests: [
        [HEALTH, "does not have the management operations"],
        ["agent/workload-service/server.test.ts", "has no management method"],
      ],
    },
    {
      says: "WorkloadService is unauthenticated by design",
      tests: [[HEALTH, "is open to every user of the guest"]],
    },
  ],
  HealthResponse: [
    {
      says: "alive, guest_time",
      tests: [[HEALTH, "tells that the workload is alive and ready, and the guest's time"]],
    },
    {
      says: "ready is the verdict of the last ready_cmd, ready_cmd_exit its exit code",
      tests: [["agent/health/readiness.test.ts", "is the verdict of the last run"]],
    },
    {
      says: "last_user_activity is the guest's own activity clock",
      tests: [[HEALTH, "is refreshed by the start and the end of an exec, not by Health"]],
    },
    {
      says: "idle_declared is the time of the last DeclareIdle; absent when there has been none",
      tests: [[HEALTH, "is absent before the first DeclareIdle"]],
    },
  ],
  Hooks: [
    {
      says: "ran is false when no hook is configured for the kind",
      tests: [[RUN, "answers that nothing ran when no hook is configured for the kind"]],
    },
    {
      says: "timed_out is true when the hook exceeds timeout_ms",
      tests: [[RUN, "is dead with its whole tree before the answer comes"]],
    },
    {
      says: "exit_code, stdout_tail and stderr_tail",
      tests: [
        [RUN, "runs the hook and tells how it ended, whichever kind it is"],
        [RUN, "are the last 16 KiB of each stream, cut at a character"],
      ],
    },
  ],
  "Restore duties": [
    {
      says: "A request with empty or missing entropy is rejected, and not reported as success",
      tests: [
        [
          "agent/restore/restore.test.ts",
          "are refused with nothing changed when the entropy is missing or over its limit",
        ],
      ],
    },
    {
      says: "Entropy is mixed in and a CRNG reseed is forced",
      tests: [
        [ENTROPY_DUTY, "credits all bytes in blocks of at most 512, then forces a reseed"],
        ["vm/cases/clone-cases.ts", "control: the clones that get duties are alike before them"],
        ["vm/mutations.vm.ts", "with every duty, and its own numbers shown, it passes all checks"],
      ],
    },
    {
      says: "entropy_bytes_mixed and entropy_credited say what was really done",
      tests: [
        [ENTROPY_DUTY, "counts the bytes that the kernel took, not those that it was given"],
        [ENTROPY_DUTY, "mixes what it may not credit, and says so"],
      ],
    },
    {
      says: "The clock is stepped to host_time; clock_drift_ms is guest minus host time before the step",
      tests: [[CLOCK_DUTY, "steps to the host's time plus what has passed since the call arrived"]],
    },
    {
      says: "Without host_time the clock is left alone",
      tests: [[CLOCK_DUTY, "leaves the clock alone without host time"]],
    },
    {
      says: "What could not be done is reported in degraded, not as a failure of the call",
      tests: [[CLOCK_DUTY, "says why the kernel refused"]],
    },
    {
      says: "Restore duties run before the POST_RESTORE hook",
      tests: [["agent/hooks/order.test.ts", "does not begin before duties that were asked for earlier are done"]],
    },
  ],
  "Environment of an exec'd command": [
    {
      says: "Every bootstrap-channel variable is removed",
      tests: [[ENVIRONMENT, "removes every bootstrap-channel variable from the command's environment"]],
    },
    {
      says: "Process.env is applied: an exec sees the environment of the process already running",
      tests: [[ENVIRONMENT, "applies the workload's Process.env over what was inherited"]],
    },
    {
      says: "ExecStart.env is applied last and delivered unchanged",
      tests: [
        [ENVIRONMENT, "applies ExecStart.env last and delivers it unchanged"],
        [ENVIRONMENT, "delivers even a bootstrap variable that the caller names explicitly"],
      ],
    },
    {
      says: "SVC_WORKLOAD_SOCKET is injected for the workload alone, after its spec env",
      tests: [[ENVIRONMENT, "injects SVC_WORKLOAD_SOCKET for the workload, after its spec env"]],
    },
    {
      says: "SVC_WORKLOAD_SOCKET is no part of Process.env and does not reach an exec'd command",
      tests: [[ENVIRONMENT, "keeps SVC_WORKLOAD_SOCKET from an exec'd command"]],
    },
    {
      says: "The workload must not acquire the agent's credentials by default",
      tests: [[ENVIRONMENT, "lets nothing of the agent's credentials reach a command or the workload"]],
    },
  ],
  Operations: [
    {
      says: "Exec is a bidirectional stream of ExecFrame",
      tests: [[PIPES, "carries input to the command and its answer back while both sides stay open"]],
    },
    {
      says: "All operations are gRPC, of the kinds that the table names",
      tests: [
        [HEALTH, "tells that the workload is alive and ready, and the guest's time"],
        ["agent/files/transfer/read.test.ts", "gives the part that is asked for, as far as the file goes"],
        ["agent/files/transfer/write.test.ts", "creates a file and tells its size and checksum"],
        [PIPES, "carries input to the command and its answer back while both sides stay open"],
      ],
    },
  ],
  Authentication: [
    {
      says: "Management calls carry the token in the metadata key svc-instance-token",
      tests: [[HEALTH, "refuses a missing and a wrong token in the same words"]],
    },
    {
      says: "The channel uses per-instance mutual TLS",
      tests: [
        [CERTIFICATES, "of another authority is refused"],
        [CERTIFICATES, "that is missing is refused"],
      ],
    },
  ],
  "Transport by runtime": [
    {
      says: "substrate: the host dials a TCP listener of the agent",
      tests: [[GUEST_SOCKET, "serves beside the TCP port"]],
    },
    {
      says: "fake: an exec bridge or a unix socket, and no inbound network port exists",
      tests: [
        [GUEST_SOCKET, "alone serves GuestAgent without TLS"],
        ["agent/server/bridge.test.ts", "carries gRPC calls to an agent that has no network port"],
        [GUEST_SOCKET, "leaves a network of its own without a single socket"],
        [GUEST_SOCKET, "holds no socket that a network could reach"],
      ],
    },
    {
      says: "sharedkernel: reserved for a later tier, no backend",
      tests: [["transports/reserved.test.ts", "is recognised by its name, and nothing else is taken for it"]],
    },
  ],
};
