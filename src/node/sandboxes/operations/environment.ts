import { messageOf } from "../../../shared/errors.ts";
import { type GuestClient, GuestError, hasRefusedSpec, restoreDuties } from "../../client/index.ts";
import { type Remedy, SandboxError } from "../substrate/index.ts";
import {
  afterColon,
  type Awakening,
  CALL_MS,
  type Freeze,
  HOOKS_SPEC_PATH,
  type JournalEntry,
  type Needs,
  PROCESS_SPEC_PATH,
  reasonOfRefusal,
  type RestoreChoices,
  type SandboxEntry,
  unfrozenBecause,
} from "../node/index.ts";

/** Variables of `Process.env` that a fork or a resumed sandbox has, in place of its origin's of the same names. */
export type Variables = Readonly<Record<string, string>>;

/** The agent's limit of a spec file. */
const SPEC_LIMIT_BYTES = 2 ** 20;

/** Throws SandboxError (INVALID_SPEC) that names the variable and never its value. */
export function checkVariables(env: Variables | undefined): void {
  for (const [name, value] of Object.entries(env ?? {})) {
    const shown = JSON.stringify(name.slice(0, 100));
    if (name === "" || /[=\0]/.test(name) || name === "__proto__")
      throw new SandboxError("INVALID_SPEC", `env: ${shown} is not a name of a variable`);
    if (typeof value !== "string" || value.includes("\0"))
      throw new SandboxError("INVALID_SPEC", `env: the value of ${shown} is not text without NUL`);
  }
}

/** Throws SandboxError (ENV_UNSUPPORTED) where the agent keeps the variables of its start. Nothing has woken up by then. */
export function demandRenewable({ name, processEnvVersion = 0, agentVersion }: JournalEntry): void {
  if (processEnvVersion > 0) return;
  const agent = agentVersion === undefined ? "its agent" : `its agent, ${agentVersion},`;
  throw new SandboxError(
    "ENV_UNSUPPORTED",
    `${name} cannot have another environment: ${agent} keeps that of its start`,
  );
}

/**
 * Throws SandboxError (NOT_FROZEN) for variables of a suspended sandbox or snapshot whose session was not frozen: it
 * runs with those of its origin until its restore steps. Nothing has woken up by then.
 */
export function demandFrozen(
  { guests }: Needs<"guests">,
  { name, preSnapshot }: JournalEntry,
  { env, acceptUnfrozen = false }: RestoreChoices & { readonly env?: Variables | undefined },
  freeze: Freeze = guests.freeze,
): void {
  if (env === undefined || acceptUnfrozen || freeze === "off" || preSnapshot?.freeze === "frozen") return;
  const because =
    unfrozenBecause(preSnapshot) ?? (preSnapshot === undefined ? "it is not known" : "nobody asked for it");
  const message =
    `the session of ${name} was not frozen when it was suspended (${because}): it would run with the variables that env ` +
    "replaces; nothing was resumed";
  throw new SandboxError("NOT_FROZEN", message, undefined, { remedy: { kind: "acceptUnfrozen", name } });
}

/**
 * Duties that leave the session as frozen as it is, so that files can be written before anything of it runs. Rejects
 * with SandboxError (ENV_NOT_TAKEN) if the agent refuses a spec file that is there already: nothing is thawed then.
 */
export async function dutiesBeforeFiles(
  node: Needs<"guests" | "substrate">,
  entry: SandboxEntry,
  dial: () => Promise<GuestClient>,
  { env, hostTime, signal }: BeforeFiles,
): Promise<void> {
  const { reachTimeoutMs } = node.guests.patience;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(3 * reachTimeoutMs)]);
  const duties = await restoreDuties(dial, { reachTimeoutMs, keepFrozen: true, hostTime, signal: limit });
  if (env !== undefined && entry.preSnapshot?.freeze === "frozen" && !duties.frozen) throw ranBefore(entry.name);
  if (hasRefusedSpec(duties)) throw await refusedSpec(node, entry);
}

/** What duties before files are for. */
export interface BeforeFiles {
  readonly env: Variables | undefined;
  /** Whether they set the clock. Not with expired credentials: the agent would refuse those from then on. */
  readonly hostTime: boolean;
  readonly signal: AbortSignal;
}

/** Whether the session has stayed frozen because its agent refused a spec file. */
export function isSpecRefused(error: unknown): boolean {
  const cause = error instanceof SandboxError ? error.cause : error;
  return cause instanceof GuestError && cause.code === "SPEC_REFUSED";
}

/** The error about a spec file in the guest that the agent refuses, with its reason. */
export async function refusedSpec(
  { substrate }: Needs<"substrate">,
  { name, instanceId = "" }: SandboxEntry,
  remedy?: Remedy,
): Promise<SandboxError> {
  const problem = await reasonOfRefusal(substrate, instanceId);
  const message = `the agent of ${name} refuses ${PROCESS_SPEC_PATH} or ${HOOKS_SPEC_PATH} in the guest${afterColon(problem)}`;
  const nextStep =
    remedy === undefined
      ? "repair that file in the sandbox that it comes from; its workload may have changed it"
      : undefined;
  return new SandboxError("ENV_NOT_TAKEN", message, undefined, { nextStep, remedy });
}

/**
 * Rejects with SandboxError (ENV_NOT_TAKEN) unless both spec files in the guest are JSON. Asked before duties with
 * keep_frozen: if these refuse a file, the session stays frozen until it is repaired, and is killed otherwise.
 */
export async function demandReadableSpecs(client: GuestClient, remedy: Remedy): Promise<void> {
  for (const path of [PROCESS_SPEC_PATH, HOOKS_SPEC_PATH]) await readSpec(client, path, remedy);
}

/** A spec file in the guest. The host keeps no copy of its secrets. */
async function readSpec(
  client: GuestClient,
  path: string,
  remedy?: Remedy,
): Promise<{ readonly content: Buffer; readonly spec: object }> {
  let spec: unknown;
  try {
    const content = await client.readFile(path, { length: SPEC_LIMIT_BYTES, timeoutMs: CALL_MS }).bytes();
    spec = JSON.parse(content.toString());
    if (typeof spec === "object" && spec !== null && !Array.isArray(spec)) return { content, spec };
  } catch (error) {
    if (error instanceof GuestError && error.status !== "NOT_FOUND") throw error;
    // The parser's message would quote the spec.
  }
  const message = `${path} in the guest is missing or not a JSON object: its workload has changed it`;
  throw new SandboxError("ENV_NOT_TAKEN", message, undefined, { remedy });
}

/** The workload has run with the variables of its origin, which the freeze was to prevent. */
function ranBefore(name: string): SandboxError {
  const message = `the session of ${name} thawed before it had its own environment: it may have used its origin's`;
  return new SandboxError("ENV_NOT_TAKEN", message);
}

/**
 * Rejects with SandboxError (ENV_NOT_TAKEN) unless the agent has put the written variables in force, and no frozen
 * session has run before.
 */
export async function demandInForce(
  client: GuestClient,
  { name, preSnapshot, processEnvVersion = 0 }: JournalEntry,
  { warnings }: Awakening,
): Promise<void> {
  if (preSnapshot?.freeze === "frozen" && warnings.some(({ code }) => code === "THAWED_WITHOUT_DUTIES"))
    throw ranBefore(name);
  const { processEnvVersion: now } = await client.health({ timeoutMs: CALL_MS });
  if (now > processEnvVersion) return;
  const message = `${name} has not taken its own environment: the agent's log (process_env_refused) says why`;
  throw new SandboxError("ENV_NOT_TAKEN", message);
}

/** Writes the guest's process spec with these variables, whole. Resolves with what it was before. */
export async function writeVariables(client: GuestClient, env: Variables): Promise<Buffer> {
  const { content, spec } = await readSpec(client, PROCESS_SPEC_PATH);
  const before: unknown = "env" in spec ? spec.env : {};
  const merged = Object.fromEntries([...Object.entries(Object(before) as object), ...Object.entries(env)]);
  await writeSpec(client, Buffer.from(JSON.stringify({ ...spec, env: merged })));
  return content;
}

/** Writes the guest's process spec. */
export async function writeSpec(client: GuestClient, content: Uint8Array): Promise<void> {
  await client.writeFile(PROCESS_SPEC_PATH, content, { mode: 0o600, timeoutMs: CALL_MS });
}

/** What the agent of a running sandbox says of its environment; undefined: it cannot be asked. */
export async function environmentVersion(node: Needs<"guests">, entry: SandboxEntry): Promise<number> {
  try {
    const health = await node.guests.ask(entry, (client) => client.health({ timeoutMs: CALL_MS }));
    return health.processEnvVersion;
  } catch (error) {
    throw new SandboxError(
      "AGENT_UNREACHABLE",
      `the agent of ${entry.name} has not answered: ${messageOf(error)}`,
      error,
    );
  }
}
