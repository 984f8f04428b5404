import { messageOf } from "../../../shared/errors.ts";
import { type GuestClient, restoreDuties } from "../../client/index.ts";
import { SandboxError } from "../substrate/index.ts";
import {
  type Awakening,
  CALL_MS,
  type Freeze,
  type GuestFile,
  type JournalEntry,
  type Needs,
  PROCESS_SPEC_PATH,
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
      throw new SandboxError("INVALID_SPEC", `env: ${shown} is no name of a variable`);
    if (typeof value !== "string" || value.includes("\0"))
      throw new SandboxError("INVALID_SPEC", `env: the value of ${shown} is no text without NUL`);
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
    "replaces; nothing was woken up";
  throw new SandboxError("NOT_FROZEN", message, undefined, { remedy: { kind: "acceptUnfrozen", name } });
}

/** Duties that leave the session as frozen as it is, so that files can be written before anything of it runs. */
export async function dutiesBeforeFiles(
  node: Needs<"guests">,
  entry: SandboxEntry,
  dial: () => Promise<GuestClient>,
  env: Variables | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { reachTimeoutMs } = node.guests.patience;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(3 * reachTimeoutMs)]);
  const { frozen } = await restoreDuties(dial, { reachTimeoutMs, keepFrozen: true, signal: limit });
  if (env !== undefined && entry.preSnapshot?.freeze === "frozen" && !frozen) throw ranBefore(entry.name);
}

/** The workload has run with the variables of its origin, which the freeze was to prevent. */
function ranBefore(name: string): SandboxError {
  const message = `the session of ${name} thawed before it had its own environment: it may have used its origin's`;
  return new SandboxError("ENV_NOT_TAKEN", message);
}

/** The guest's process spec with these variables, whole. Reads it in the guest: the host keeps no copy of its secrets. */
async function specWith(client: GuestClient, env: Variables): Promise<GuestFile> {
  const read = client.readFile(PROCESS_SPEC_PATH, { length: SPEC_LIMIT_BYTES, timeoutMs: CALL_MS });
  const text = (await read.bytes()).toString();
  let spec: unknown;
  try {
    spec = JSON.parse(text);
  } catch {
    // The parser's message would quote the spec.
    throw new SandboxError(
      "ENV_NOT_TAKEN",
      `${PROCESS_SPEC_PATH} in the guest is no JSON: its workload has changed it`,
    );
  }
  const before: unknown = typeof spec === "object" && spec !== null && "env" in spec ? spec.env : {};
  const merged = Object.fromEntries([...Object.entries(Object(before) as object), ...Object.entries(env)]);
  return { path: PROCESS_SPEC_PATH, content: Buffer.from(JSON.stringify({ ...Object(spec), env: merged })) };
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

/** Writes the guest's process spec with these variables. */
export async function writeVariables(client: GuestClient, env: Variables): Promise<void> {
  const { path, content } = await specWith(client, env);
  await client.writeFile(path, content, { mode: 0o600, timeoutMs: CALL_MS });
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
