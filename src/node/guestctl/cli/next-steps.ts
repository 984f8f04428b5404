import type { ErrorCode, GuestError } from "../../client/index.ts";
import type { Remedy, SandboxCode, SandboxError } from "../../sandboxes/index.ts";

/** The agent's reasons whose next step is a command. */
type Reason = "EXEC_NAME_IN_USE" | "TOO_MANY_KEPT_BYTES" | "TOO_MANY_KEPT_EXECS" | "UNAUTHENTICATED";

/** What an option of the library is here. */
const FLAGS: Readonly<Record<string, string>> = {
  "keep.name": "--name",
  "keep.bufferBytes": "--buffer",
  "keep.lingerMs": "--linger",
  "keep.awakeForMs": "--awake-for",
  "keep.replaceEnded": "--replace",
  beneath: "the destination",
  caPem: "ca.pem",
  certPem: "client.pem",
  keyPem: "client.key",
  cwd: "--workdir",
  exclusive: "--exclusive",
  freezeMs: "--freeze",
  graceMs: "--grace",
  intervalMs: "--interval",
  parents: "--parents",
  serverName: "--server-name",
  stderrOffset: "--since",
  stdoutOffset: "--since",
  timeoutMs: "--timeout",
};

/** What to do, by code, where the libraries' own advice names their calls and options. */
const STEPS: Readonly<Partial<Record<ErrorCode | SandboxCode | Reason, string>>> = {
  COMMAND_CUT_OFF: "with --name a command outlives its connection",
  EXEC_NAME_IN_USE: '"guestctl attach" takes it up, "guestctl end" ends it and frees its name',
  KEEP_UNSUPPORTED: "update the agent, or run the command without --name",
  SERVER_CERTIFICATE_UNTRUSTED: "give the authority that issued the agent's certificate as ca.pem",
  SERVER_NAME_MISMATCH: "give the name in the agent's certificate as --server-name",
  TOO_MANY_KEPT_BYTES: '"guestctl execs" lists them, "guestctl end" forgets one',
  TOO_MANY_KEPT_EXECS: '"guestctl execs" lists them, "guestctl end" ends or forgets one',
  UNAUTHENTICATED: "give the token of this very instance in --credentials; it changes with a restore",
  // Of sandboxes.
  BUNDLE_MISMATCH:
    "resume it under the hypervisor that it was suspended under, create it anew, or accept it with --accept-bundle",
  NODE_ID_CONFLICT: "give each node an id of its own; where the journal was lost, sweep with --take-over",
  RESTORE_DEGRADED:
    "look at the agent's words; --accept-degraded takes it as it is, with numbers that another guest may draw too",
};

/** What the library's next calls are here. */
const REMEDIES: Readonly<Record<Remedy["kind"], (name: string) => string>> = {
  resume: (name) => `first: guestctl sandbox resume ${name}`,
  start: (name) => `boot it anew: guestctl sandbox start ${name}`,
  wake: (name) => `wake it up once there is room for it: guestctl sandbox resume ${name}`,
  fork: (name) => `make a sandbox of it: guestctl sandbox fork ${name}`,
  list: () => "guestctl sandbox ls shows those that are; an agent elsewhere is chosen by its address: -H",
  elsewhere: () => "give the command on that node, or with the folder of its journal: --state",
  archive: () => "name the .tar.gz of the build as --agent or GUESTCTL_AGENT",
};

/** What decides the next step of an error. */
type Advised = { readonly code: string } & Partial<Pick<GuestError, "nextStep"> & Pick<SandboxError, "remedy">>;

/** What guestctl calls the option that an error is about; undefined: as the library does. */
export function flagOf({ option = "" }: GuestError): string | undefined {
  return FLAGS[option];
}

/** What to do about an error of the libraries; undefined: its message says it. */
export function nextStepOf({ code, nextStep, remedy }: Advised): string | undefined {
  if (remedy !== undefined) return REMEDIES[remedy.kind](remedy.name);
  return new Map(Object.entries(STEPS)).get(code) ?? nextStep;
}
