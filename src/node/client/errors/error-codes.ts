/**
 * Advice for the user, by the stable code of each error that this library itself detects. The advice is empty if the
 * message says everything. The `code` of any other GuestError is the agent's reason (docs/agent/operations.md), or the
 * gRPC status if there is no reason. docs/node/client.md has the same table with the same words.
 */
const CODES = {
  // No connection.
  AGENT_SILENT: "the agent may be suspended or busy: try again; if it stays silent, check that an agent listens there",
  ADDRESS_UNREACHABLE: "check the address, and the network between this machine and the agent",
  BRIDGE_FAILED: "run the bridge command by hand: it must print nothing and wait for input",
  CONNECTION_CLOSED:
    "try again: the agent may have too many connections, or the TLS handshake took more than 5 s; if that does not help, check the port and the client certificate",
  CONNECTION_REFUSED: "check that the agent runs and that the address is right",
  CONNECT_TIMED_OUT: "the agent may be suspended or busy; if it is not, check the address and the network",
  DIAL_FAILED: "the function connectOptions threw an error: see the cause",
  DIAL_TIMED_OUT: "the function connectOptions must return the connection options within connectTimeoutMs",
  NOT_AN_AGENT: "check the address: the program that listens there is not a guest agent, or only one side uses TLS",
  // Certificates.
  CLIENT_CERTIFICATE_EXPIRED: "renew the client certificate, or check the guest's clock",
  CLIENT_CERTIFICATE_REFUSED: "use the client certificate that was issued for this agent",
  CLIENT_CERTIFICATE_TOO_LONG:
    "remove certificates from the client's chain, beginning with the root: the agent accepts at most four, with 5.5 KiB in all",
  SERVER_CERTIFICATE_EXPIRED: "renew the agent's certificate, or check this host's clock",
  SERVER_CERTIFICATE_NOT_YET_VALID: "check this host's clock: the agent's certificate is not valid yet",
  SERVER_CERTIFICATE_UNTRUSTED: "set caPem to the certificate of the authority that issued the agent's certificate",
  SERVER_NAME_MISMATCH: "set serverName to the name in the agent's certificate",
  // A call.
  ABORT_ERR: "",
  AGENT_TOO_OLD: "update the agent, which may come from an old snapshot",
  ANSWER_UNREADABLE: "",
  CLIENT_CLOSED: "",
  COPY_INCOMPLETE: "",
  CONNECTION_LOST: "the connection was lost: check whether the call has taken effect",
  DESTINATION_FAILED: "",
  FILE_CHANGED: "copy the file again",
  INVALID_ARGUMENT: "",
  LISTEN_FAILED: "",
  REMOVE_INCOMPLETE: "",
  SOURCE_FAILED: "",
  SPEC_REFUSED:
    "replace the spec file that the agent refused (process_env_refused in the agent's log names the file), and run the restore steps again",
  STREAM_LEFT: "",
  TUNNEL_CLOSED: "",
  // Commands.
  CANCEL_UNCONFIRMED: "end the command by commands.end() once the agent can be reached",
  COMMAND_FAILED: "",
  COMMAND_CUT_OFF: "start the command with keep, so that it outlives its connection",
  DETACHED: "",
  EXIT_MISSING: "",
  HUNG_UP: "",
  INPUT_CONFLICT: "",
  INPUT_LOST: "",
  KEEP_UNSUPPORTED: "update the agent, or run the command without keep",
  OUTPUT_LOST: "",
  OUTPUT_TOO_LARGE: "",
  RESUME_MISMATCH: "",
} as const;

/** Code of an error that this library itself detects. */
export type ErrorCode = keyof typeof CODES;

/**
 * Advice for the user, by error code. It is empty if the message says everything. Has no prototype, so that a code such
 * as "constructor" finds nothing.
 */
export const ERROR_CODES: Readonly<Record<ErrorCode, string>> = Object.freeze(
  Object.assign(Object.create(null) as typeof CODES, CODES),
);

/** Advice by key. The key is the library's code, or the agent's reason, or the gRPC status of an error that has neither. */
const CLIENT_NEXT_STEPS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    ...CODES,
    SHUTTING_DOWN: "the sandbox is shutting down; no action is needed",
    CHECKSUM_MISMATCH: "the source changed while it was read, or the content was corrupted on its way: write it again",
    SIZE_MISMATCH: "the source changed while it was read: write it again",
    DEADLINE_EXCEEDED: "check that the agent runs, or give the call more time",
    UNAVAILABLE: "check that the agent runs and that the address is right",
    UNAUTHENTICATED: "use the current token of this instance; a restore may have replaced the old token",
    UNIMPLEMENTED: "update the agent, which may come from an old snapshot",
  }),
);

/** Returns the advice for an error with this code; undefined if the error's message says everything. */
export function nextStepFor(code: string): string | undefined {
  const step = CLIENT_NEXT_STEPS.get(code);
  return step === "" ? undefined : step;
}
