import { messageOf } from "../../../shared/errors.ts";
import { type GuestClient, GuestError, hasRefusedSpec, restoreDuties } from "../../client/index.ts";
import { currentSignal, type Remedy, SandboxError, timeoutSignal } from "../substrate/index.ts";
import {
  afterColon,
  type Awakening,
  CALL_MS,
  callLimits,
  type Freeze,
  HOOKS_SPEC_PATH,
  type JournalEntry,
  type DaemonParts,
  type NodeParts,
  PROCESS_SPEC_PATH,
  reasonOfRefusal,
  type RestoreChoices,
  type SandboxEntry,
  unfrozenBecause,
} from "../state/index.ts";

/**
 * Environment variables of a fork or a resumed sandbox. They are merged into `Process.env` and override variables of
 * the same name.
 */
export type Variables = Readonly<Record<string, string>>;

/** The agent's size limit of a spec file. */
const SPEC_LIMIT_BYTES = 2 ** 20;

/** Throws SandboxError (INVALID_SPEC) for an invalid variable. The error names the variable, but never its value. */
export function checkVariables(env: Variables | undefined): void {
  for (const [name, value] of Object.entries(env ?? {})) {
    const shown = JSON.stringify(name.slice(0, 100));
    if (name === "" || /[=\0]/.test(name) || name === "__proto__")
      throw new SandboxError("INVALID_SPEC", `env: ${shown} is not a valid name of a variable`);
    if (typeof value !== "string" || value.includes("\0"))
      throw new SandboxError("INVALID_SPEC", `env: the value of ${shown} must be text without NUL`);
  }
}

/**
 * Throws SandboxError (ENV_UNSUPPORTED) if the agent cannot change its environment after its start. Must be called
 * before the sandbox is resumed.
 */
export function requireRenewable({ name, processEnvVersion = 0, agentVersion }: JournalEntry): void {
  if (processEnvVersion > 0) return;
  const agent = agentVersion === undefined ? "its agent" : `its agent, ${agentVersion},`;
  throw new SandboxError(
    "ENV_UNSUPPORTED",
    `the environment of ${name} cannot be changed: ${agent} keeps the environment that it was started with`,
  );
}

/**
 * Throws SandboxError (NOT_FROZEN) if variables are given for a suspended sandbox or snapshot whose session was not
 * frozen. Such a session would run with its old variables until its restore steps. Must be called before the sandbox is
 * resumed.
 *
 * @param outcome the word for the operation in the error's message, such as "forked" in "was not forked"
 */
export function requireFrozen(
  { guests }: NodeParts,
  { name, preSnapshot }: JournalEntry,
  { env, acceptUnfrozen = false }: RestoreChoices & { readonly env?: Variables | undefined },
  outcome: "forked" | "resumed",
  freeze: Freeze = guests.freeze,
): void {
  if (env === undefined || acceptUnfrozen || freeze === "off" || preSnapshot?.freeze === "frozen") return;
  const because =
    unfrozenBecause(preSnapshot) ?? (preSnapshot === undefined ? "the reason is not known" : "no freeze was requested");
  const message = `${name} was not ${outcome}: its session was not frozen before the suspension (${because}), so its processes would first run with the previous environment variables`;
  throw new SandboxError("NOT_FROZEN", message, undefined, { remedy: { kind: "acceptUnfrozen", name } });
}

/**
 * Runs the restore steps without thawing the session, so that files can be written before any process of a frozen
 * session runs. Rejects with SandboxError (ENV_NOT_TAKEN) if the agent refuses a spec file that is already in the
 * guest. In that case the session also stays frozen.
 */
export async function dutiesBeforeFiles(
  node: NodeParts,
  entry: SandboxEntry,
  dial: () => Promise<GuestClient>,
  { env, hostTime, signal }: BeforeFiles,
): Promise<void> {
  const { reachTimeoutMs } = node.guests.patience;
  const limit = currentSignal(signal, timeoutSignal(3 * reachTimeoutMs));
  const duties = await restoreDuties(dial, { reachTimeoutMs, keepFrozen: true, hostTime, signal: limit });
  if (env !== undefined && entry.preSnapshot?.freeze === "frozen" && !duties.frozen) throw ranBefore(entry.name);
  if (hasRefusedSpec(duties)) throw await refusedSpec(node, entry);
}

/** Options of `dutiesBeforeFiles`, which runs the restore steps before files in the guest are changed. */
export interface BeforeFiles {
  readonly env: Variables | undefined;
  /**
   * Whether to set the guest's clock. False if the credentials have expired, because with the right time the agent
   * would refuse them.
   */
  readonly hostTime: boolean;
  readonly signal: AbortSignal;
}

/** Whether an error says that the session stays frozen because the agent refused a spec file. */
export function isSpecRefused(error: unknown): boolean {
  const cause = error instanceof SandboxError ? error.cause : error;
  return cause instanceof GuestError && cause.code === "SPEC_REFUSED";
}

/** Creates the error for a spec file in the guest that the agent refuses; it contains the agent's reason. */
export async function refusedSpec(
  { substrate }: DaemonParts,
  { name, instanceId = "" }: SandboxEntry,
  remedy?: Remedy,
): Promise<SandboxError> {
  const problem = await reasonOfRefusal(substrate, instanceId);
  const message = `the agent of ${name} refuses a spec file (${PROCESS_SPEC_PATH} or ${HOOKS_SPEC_PATH}) in the guest${afterColon(problem)}`;
  const nextStep =
    remedy === undefined
      ? "repair the spec file, which the workload may have changed; for a fork, repair it in the sandbox that was forked"
      : undefined;
  return new SandboxError("ENV_NOT_TAKEN", message, undefined, { nextStep, remedy });
}

/**
 * Rejects with SandboxError (ENV_NOT_TAKEN) if either spec file in the guest does not contain a JSON object. Must be
 * called before restore steps with keep_frozen. If the agent refused a file during those steps, the session would stay
 * frozen until the file is repaired, or be killed at the time limit of the freeze.
 */
export async function requireReadableSpecs(client: GuestClient, remedy: Remedy): Promise<void> {
  for (const path of [PROCESS_SPEC_PATH, HOOKS_SPEC_PATH]) await readSpec(client, path, remedy);
}

/** Reads a spec file from the guest, because the host keeps no copy of the secrets in it. */
async function readSpec(
  client: GuestClient,
  path: string,
  remedy?: Remedy,
): Promise<{ readonly content: Buffer; readonly spec: object }> {
  let spec: unknown;
  try {
    const content = await client.files.readFile(path, { length: SPEC_LIMIT_BYTES, ...callLimits(CALL_MS) });
    spec = JSON.parse(content.toString());
    if (typeof spec === "object" && spec !== null && !Array.isArray(spec)) return { content, spec };
  } catch (error) {
    if (error instanceof GuestError && error.status !== "NOT_FOUND") throw error;
    // Do not use the parser's message, because it would quote the spec, which may contain secrets.
  }
  const message = `${path} in the guest is missing or not a JSON object: the sandbox's workload has changed it`;
  throw new SandboxError("ENV_NOT_TAKEN", message, undefined, { remedy });
}

/**
 * Creates the error for a session that thawed before its new variables were written, and therefore ran with its
 * previous variables.
 */
function ranBefore(name: string): SandboxError {
  const message = `the session of ${name} thawed before its new environment variables were set: its processes may have used the previous variables`;
  return new SandboxError("ENV_NOT_TAKEN", message);
}

/**
 * Rejects with SandboxError (ENV_NOT_TAKEN) unless the agent uses the variables that were written. Also rejects if the
 * session was frozen, but thawed by itself before the variables were written.
 */
export async function requireInForce(
  client: GuestClient,
  { name, preSnapshot, processEnvVersion = 0 }: JournalEntry,
  { warnings }: Awakening,
): Promise<void> {
  if (preSnapshot?.freeze === "frozen" && warnings.some(({ code }) => code === "THAWED_WITHOUT_DUTIES"))
    throw ranBefore(name);
  const { processEnvVersion: now } = await client.health(callLimits(CALL_MS));
  if (now > processEnvVersion) return;
  const message = `the agent of ${name} does not use the new environment: its log (process_env_refused) says why`;
  throw new SandboxError("ENV_NOT_TAKEN", message);
}

/** Merges variables into the file with the guest's process spec. Resolves with the file's previous content. */
export async function writeVariables(client: GuestClient, env: Variables): Promise<Buffer> {
  const { content, spec } = await readSpec(client, PROCESS_SPEC_PATH);
  const before: unknown = "env" in spec ? spec.env : {};
  const merged = Object.fromEntries([...Object.entries(Object(before) as object), ...Object.entries(env)]);
  await writeSpec(client, Buffer.from(JSON.stringify({ ...spec, env: merged })));
  return content;
}

export async function writeSpec(client: GuestClient, content: Uint8Array): Promise<void> {
  await client.files.writeFile(PROCESS_SPEC_PATH, content, { mode: 0o600, ...callLimits(CALL_MS) });
}

/**
 * The process_env_version that the agent of a running sandbox reports. Rejects with SandboxError (AGENT_UNREACHABLE) if
 * the agent does not answer.
 */
export async function environmentVersion(node: NodeParts, entry: SandboxEntry): Promise<number> {
  try {
    const health = await node.guests.ask(entry, (client) => client.health(callLimits(CALL_MS)));
    return health.processEnvVersion;
  } catch (error) {
    throw new SandboxError(
      "AGENT_UNREACHABLE",
      `the agent of ${entry.name} has not answered: ${messageOf(error)}`,
      error,
    );
  }
}
