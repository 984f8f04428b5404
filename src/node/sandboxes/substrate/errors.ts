import { GuestError } from "../../client/index.ts";
import { CredentialsError } from "../../credentials/index.ts";
import { messageOf, nameWithCode } from "../../../shared/errors.ts";
import { printable } from "../../../shared/printable.ts";

/**
 * The default next step for each error code; undefined if every error with that code has a next step of its own. The
 * first four codes are defined by the substrate contract.
 */
export const SANDBOX_NEXT_STEPS = {
  CAPABILITY_MISSING: undefined,
  SNAPSHOT_INVALIDATED: "create the sandbox or snapshot again: it is unusable without its image",
  BUNDLE_MISMATCH:
    "use the same hypervisor and agent version as at the suspension, create the sandbox or snapshot again, or pass acceptBundle to accept the difference",
  CPU_CLASS_MISMATCH: "use a host with the same class of processors, or create the sandbox or snapshot again",
  INVALID_SPEC: undefined,
  AGENT_TOO_OLD:
    "create a new sandbox, which gets this node's agent; the agent of an existing instance or snapshot cannot be changed",
  IMAGE_NOT_READY: "wait until the image is ready, or check its build",
  IMAGE_UNSUITABLE:
    "use an image that does not start its own init, and that has /bin/sh, because the substrate's init requires it",
  NOT_FOUND: undefined,
  ALREADY_EXISTS: "choose another name; if no sandbox of this node has this name, a sandbox of another node has it",
  WRONG_STATE: undefined,
  PAUSED: undefined,
  SOURCE_ASLEEP: undefined,
  SIBLING_RUNNING: undefined,
  LEFT_BEHIND: undefined,
  NOT_FROZEN:
    'fix the freeze problem (the agent\'s docs explain each one), or pass freeze "on", which suspends the sandbox even if the freeze fails',
  RESTORE_DEGRADED:
    "read the agent's message; acceptDegraded keeps the sandbox anyway, but another guest may then draw the same random numbers",
  ENV_UNSUPPORTED: "create a new sandbox with a newer agent, or leave env out",
  ENV_NOT_TAKEN:
    'read the agent\'s log; then suspend the sandbox with freeze "required" and resume it, or fork it again',
  AGENT_UNREACHABLE: "check the instance's console, and whether this host can reach the instance's network",
  AGENT_ENDED: "check the instance's console, where the agent reports why it ended",
  HOSTNAME_IN_USE: "choose another hostname or port, or unpublish this hostname from the sandbox that uses it",
  INGRESS_NOT_SERVED:
    "check that the daemon's proxy runs; the proxy cannot start while another program uses its admin port (127.0.0.1:2019), its DNS port or the published port; to reload all rules, restart the daemon",
  GUEST_NOT_LISTENING:
    "check that the server in the sandbox runs and listens on all addresses (0.0.0.0), not only on 127.0.0.1",
  SUBSTRATE_UNAVAILABLE:
    "check that the daemon runs and listens at this address; once the daemon answers again, run a sweep",
  SUBSTRATE_UNAUTHORIZED: "give a token that the daemon has signed and that has not expired",
  SUBSTRATE_REFUSED: undefined,
  INSUFFICIENT_RESOURCES: "suspend or remove some sandboxes, or give the daemon more resources; then try again",
  SUBSTRATE_FAILED: "read the daemon's own log, because its API does not report the reason",
  ABORT_ERR: "call the operation again, to continue or repeat it; if you do not, a sweep cleans up after it",
  OPERATION_TIMED_OUT:
    "call the operation again with a longer requestTimeoutMs; if you do not, a sweep cleans up after it",
  SANDBOX_BUSY:
    "wait until that operation has ended; if the process that runs it hangs, end that process and run a sweep",
  JOURNAL_FAILED: "check the file system of the state directory: space, mode, owner",
  NODE_ID_CONFLICT: "give each node an id of its own; if the journal was lost, run a sweep with takeOver",
  MISSING_PACKAGE: undefined,
} as const;

/** Stable code of a failed operation, for programs. */
export type SandboxCode = keyof typeof SANDBOX_NEXT_STEPS;

/** Limit on the excerpt of the daemon's answer that a message contains. */
const EXCERPT_CHARACTERS = 300;

/** OAuth scopes that the node's token requires (hypeman 8853445, lib/scopes/scopes.go:203-290). */
const SCOPES =
  "resource:read image:read instance:read instance:write instance:delete snapshot:read snapshot:write snapshot:delete " +
  "volume:read volume:write volume:delete ingress:read ingress:write ingress:delete";

/**
 * The next step if the daemon has orphaned records. An orphaned record has the id of another instance, and remains
 * after an interrupted fork. Only the daemon's operator can remove it.
 */
export const ORPHANED_RECORDS_STEP: string =
  "a daemon that is killed while it forks a snapshot leaves such a duplicate record; only the daemon's operator can remove it: stop the daemon; in guests/ of its data directory, delete each directory whose name is not the id in its metadata.json; start the daemon again";

/** Next steps for the user that name calls or options of this library. `name` is the name of a sandbox or snapshot. */
const REMEDIES = {
  resume: (name: string) => `call this first: sandboxes.resume("${name}")`,
  start: (name: string) => `boot it again: sandboxes.resume("${name}")`,
  wake: (name: string) => `when the host has enough free resources, resume it: sandboxes.resume("${name}")`,
  fork: (name: string) => `make a sandbox from it: sandboxes.fork("${name}", …)`,
  resumeAgain: (name: string) =>
    `${name} stays frozen for some minutes; within this time, call sandboxes.resume("${name}") again with other variables, or without env`,
  suspendFirst: (name: string) =>
    `boot it without env; then call sandboxes.standby("${name}") and sandboxes.resume("${name}", { env })`,
  acceptUnfrozen: () =>
    'fix the freeze problem (the agent\'s docs explain each one), and suspend the sandbox again, with freeze "required", which fails if the session cannot be frozen; or pass acceptUnfrozen if several sandboxes may have the same secrets',
  list: () => "sandboxes.list() lists the sandboxes of this node; connect() connects to any other agent by its address",
  elsewhere: () => "make the call on that node, or in a process that uses the state directory of that node",
  archive: () =>
    'pass the path of the agent\'s .tar.gz archive as agent.archive; "npm run build" of the project makes dist/guest-agent-VERSION-linux-ARCH.tar.gz',
} as const;

/**
 * What to do next, as data. A program can then say it in its own terms: for example, guestctl names its own commands in
 * place of the library's calls.
 */
export interface Remedy {
  readonly kind: keyof typeof REMEDIES;
  /** Name of the sandbox or snapshot. */
  readonly name: string;
}

interface ErrorDetails {
  /**
   * What to do next. Default: the next step that `remedy` describes. Without `remedy`, the usual next step for the
   * error's code.
   */
  readonly nextStep?: string | undefined;
  readonly remedy?: Remedy | undefined;
  readonly consoleTail?: readonly string[] | undefined;
}

/**
 * The only kind of error that the operations of `Sandboxes` throw. If a call to the agent has failed, `cause` is the
 * GuestError of the call. In `message`, characters that control a terminal are escaped. Everything that the failed
 * operation created is removed, either at once or by the next sweep. (The client that `Sandboxes.connect` returns
 * rejects with GuestError, not with SandboxError.)
 */
export class SandboxError extends Error {
  /** Name of the error: "AbortError" if the caller's signal was aborted, as in Node, and otherwise "SandboxError". */
  override readonly name: string;
  readonly code: SandboxCode;
  /** What to do next; undefined if the message already says it. */
  readonly nextStep: string | undefined;
  /** The next step as a call that a program can make; undefined if the next step is not a call of this library. */
  readonly remedy: Remedy | undefined;
  /** The last lines of the instance's console, as the guest wrote them; empty if they are unrelated to the failure. */
  readonly consoleTail: readonly string[];

  constructor(code: SandboxCode, message: string, cause?: unknown, more: ErrorDetails = {}) {
    super(printable(message), cause === undefined ? undefined : { cause });
    this.code = code;
    this.name = nameWithCode(code, "SandboxError");
    this.remedy = more.remedy;
    this.nextStep =
      more.nextStep ?? (this.remedy && REMEDIES[this.remedy.kind](this.remedy.name)) ?? SANDBOX_NEXT_STEPS[code];
    this.consoleTail = more.consoleTail ?? [];
  }
}

/** Converts an error of the agent or the file system to a SandboxError. Any other error is returned unchanged. */
export function sandboxError(error: unknown): unknown {
  if (error instanceof GuestError) {
    const reason = error.reason === undefined ? error.status : `${error.status}, ${error.reason}`;
    return new SandboxError("AGENT_UNREACHABLE", `the agent: ${error.message} [${reason}]`, error);
  }
  if (error instanceof CredentialsError || isSystemError(error)) {
    return new SandboxError("JOURNAL_FAILED", messageOf(error), error);
  }
  return error;
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

/** HTTP status of the daemon's answer to a failed call; undefined if there was no answer. */
export function statusOf(error: unknown): number | undefined {
  const { status } = ((error instanceof SandboxError ? error.cause : error) ?? {}) as { readonly status?: unknown };
  return typeof status === "number" ? status : undefined;
}

/**
 * Handles the error of a lookup. If several records match, the result of the lookup is undefined. Rethrows any other
 * error.
 */
export function ifAmbiguous(error: unknown): undefined {
  if (codeOf(error) !== "ambiguous") throw error;
}

/** The `code` in the JSON body of the daemon's answer to a failed call; undefined if there is none. */
export function codeOf(error: unknown): unknown {
  return bodyOf(error instanceof SandboxError ? error.cause : error)["code"];
}

function bodyOf(error: unknown): Record<string, unknown> {
  const { error: body } = (error ?? {}) as { readonly error?: unknown };
  return (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
}

/**
 * Converts an error of the substrate's client to a SandboxError. It examines the error's fields instead of its class,
 * because the client's package is optional.
 *
 * @param url the daemon's address
 */
export function substrateError(error: unknown, url: string): SandboxError {
  const status = statusOf(error);
  if (status === undefined) {
    const { cause } = error as { readonly cause?: unknown };
    const detail = cause === undefined ? messageOf(error) : `${messageOf(error)} ${causeOf(cause)}`;
    const message = `the daemon at ${url} cannot be reached, or closed the connection: ${detail}`;
    return new SandboxError("SUBSTRATE_UNAVAILABLE", message, error);
  }
  const { code, message } = bodyOf(error);
  const text = typeof message === "string" && message !== "" ? message : messageOf(error);
  const excerpt = text.length > EXCERPT_CHARACTERS ? `${text.slice(0, EXCERPT_CHARACTERS)}…` : text;
  if (status === 404 && code !== "not_found") {
    const nextStep = "check that this is the address of the substrate's daemon";
    const unlike = `the server at ${url} is not the daemon, or is an older version of the daemon: the server answered 404 without the code not_found`;
    return new SandboxError("SUBSTRATE_UNAVAILABLE", unlike, error, { nextStep });
  }
  const sandboxCode = substrateCode(status, code, text);
  const answer = typeof code === "string" ? `${status} ${code}` : String(status);
  const steps = new Map([
    [403, `give a token with the scopes ${SCOPES}`],
    [409, code === "ambiguous" ? ORPHANED_RECORDS_STEP : undefined],
  ]);
  return new SandboxError(sandboxCode, `the daemon answered ${answer}: ${excerpt}`, error, {
    nextStep: steps.get(status),
  });
}

function substrateCode(status: number, code: unknown, text: string): SandboxCode {
  // If a fork of a snapshot fails, the code is "conflict" for every reason, so only the text tells the reasons apart
  // (cmd/api/api/instances.go:358 and volumes.go:148).
  if (code === "name_conflict" || code === "already_exists") return "ALREADY_EXISTS";
  if (code === "conflict" && text.includes("already exists")) return "ALREADY_EXISTS";
  // The code `ambiguous` means that several records have the same id or name (cmd/api/api/resolvers.go:111).
  if (code === "ambiguous") return "LEFT_BEHIND";
  if (code === "image_not_ready") return "IMAGE_NOT_READY";
  // The daemon reports a port that is in use as config_validation_failed (lib/ingress/manager.go:372). The codes
  // hostname_in_use and port_in_use are in cmd/api/api/ingress.go:54-90 (hypeman 8853445).
  if (code === "hostname_in_use") return "HOSTNAME_IN_USE";
  if (code === "config_validation_failed" || code === "port_in_use") return "INGRESS_NOT_SERVED";
  if (code === "insufficient_resources" || status === 429) return "INSUFFICIENT_RESOURCES";
  if (status >= 502 && status <= 504) return "SUBSTRATE_UNAVAILABLE";
  if (status === 401 || status === 403) return "SUBSTRATE_UNAUTHORIZED";
  if (status === 404) return "NOT_FOUND";
  return status >= 500 ? "SUBSTRATE_FAILED" : "SUBSTRATE_REFUSED";
}

/** The system error, such as ECONNREFUSED, that is the cause of fetch's unspecific error "fetch failed". */
function causeOf(cause: unknown): string {
  const inner = cause instanceof Error && cause.cause !== undefined ? cause.cause : cause;
  const { code } = inner as { readonly code?: unknown };
  return typeof code === "string" ? `(${code})` : `(${messageOf(inner)})`;
}
