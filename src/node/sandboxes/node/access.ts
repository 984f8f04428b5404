import { connect, type GuestClient } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { type Instance, SandboxError } from "../substrate/index.ts";
import { whileUp } from "./ending.ts";
import { awaken, type Awakening, type Freeze, type Patience } from "./guest.ts";
import type { CredentialStore } from "./injection.ts";
import { type Instances, isUnknownOutcome } from "./instances.ts";
import type { Journal, SandboxEntry } from "./journal.ts";
import type { OnStep, Turns } from "./turns.ts";
import { ranUnfrozen, unfrozenWarnings } from "./warnings.ts";

/** How the agents of a node's sandboxes are reached. */
export interface AccessParts {
  readonly patience: Patience;
  /** Whether the session is frozen for a suspension. */
  readonly freeze: Freeze;
  /** Port of the agent in the sandboxes that are made. */
  readonly agentPort: number;
  readonly credentials: CredentialStore;
  readonly instances: Instances;
  readonly journal: Journal;
  readonly turns: Turns;
  readonly step: OnStep;
}

/** The agents of a node's sandboxes. */
export class GuestAccess {
  readonly patience: Patience;
  readonly freeze: Freeze;
  readonly agentPort: number;
  readonly #parts: AccessParts;

  constructor(parts: AccessParts) {
    this.patience = parts.patience;
    this.freeze = parts.freeze;
    this.agentPort = parts.agentPort;
    this.#parts = parts;
  }

  /**
   * A client of a sandbox's agent, at its present or last known address. Rejects with AGENT_UNREACHABLE.
   *
   * @param known its instance, if it was just listed: then the substrate is not asked
   */
  async dial(
    entry: SandboxEntry,
    { credentials, known }: { readonly credentials?: ClientCredentials; readonly known?: Instance | undefined } = {},
  ): Promise<GuestClient> {
    const { ip } = known?.ip === undefined ? await this.#address(entry) : known;
    if (ip === undefined) throw new SandboxError("AGENT_UNREACHABLE", `the instance of ${entry.name} has no address`);
    const own = credentials ?? (await this.#parts.credentials.client(entry.name));
    return connect({ address: addressOf(entry, ip), ...own });
  }

  async #address(entry: SandboxEntry): Promise<{ readonly ip: string | undefined }> {
    return this.#parts.instances.existing(entry).catch((error: unknown) => {
      if (entry.lastIp === undefined || !isUnknownOutcome(error)) throw error;
      return { ip: entry.lastIp };
    });
  }

  /** A client whose agent has answered. One attempt, which rejects with GuestError or SandboxError. */
  async answered(
    entry: SandboxEntry,
    {
      known,
      ...call
    }: { readonly known?: Instance | undefined; readonly timeoutMs: number; readonly signal?: AbortSignal },
  ): Promise<GuestClient> {
    const client = await this.dial(entry, { known });
    try {
      await client.health(call);
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /** Asks a sandbox's agent over a connection of its own. */
  async ask<Answer>(entry: SandboxEntry, question: (client: GuestClient) => Promise<Answer>): Promise<Answer> {
    using client = await this.dial(entry);
    return await question(client);
  }

  /** Has a restored sandbox do its duties, POST_RESTORE and Health; from then on it counts as running. */
  async awaken(operation: string, entry: SandboxEntry, options: AwakenOptions = {}): Promise<Awakening> {
    const { reachTimeoutMs = this.patience.reachTimeoutMs, known, onDutiesDone } = options;
    let { client } = options;
    const dial = async (areDutiesDone: boolean): Promise<GuestClient> => {
      if (areDutiesDone) onDutiesDone?.();
      const first = client;
      client = undefined;
      return first ?? (await this.dial(entry, { known }));
    };
    const { instances, journal, turns, step } = this.#parts;
    step(operation, entry.name, "duties, POST_RESTORE and Health");
    const awakening = await whileUp(instances.subject(entry), (signal) =>
      awaken(dial, { ...this.patience, reachTimeoutMs }, signal),
    );
    const { runEpochMs, agentVersion, agentServices } = awakening;
    await journal.put({
      ...entry,
      runEpochMs,
      agentVersion,
      agentServices,
      asleepBecause: undefined,
      thawsAtMs: undefined,
      ranUnfrozen: ranUnfrozen(operation, entry),
    });
    turns.risk(entry.name, undefined);
    return { ...awakening, warnings: [...unfrozenWarnings(entry), ...awakening.warnings] };
  }
}

/** How to have a sandbox do its duties. */
export interface AwakenOptions {
  /** For its agent to answer, in milliseconds. Default: the node's. */
  readonly reachTimeoutMs?: number | undefined;
  /** A client whose agent has just answered, which is closed here. */
  readonly client?: GuestClient | undefined;
  /** Its instance, whose address is right. */
  readonly known?: Instance | undefined;
  /** Called when the duties are done, before POST_RESTORE; more than once if they are repeated. */
  readonly onDutiesDone?: (() => void) | undefined;
}

/** HOST:PORT of a sandbox's agent. */
export function addressOf({ agentPort }: SandboxEntry, ip: string): string {
  return `${ip}:${agentPort}`;
}
