import { connect, type GuestClient } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { SandboxError } from "../substrate/index.ts";
import { whileUp } from "./ending.ts";
import { awaken, type Awakening, type Freeze, type Patience } from "./guest.ts";
import type { CredentialStore } from "./injection.ts";
import { type Instances, isUnknownOutcome } from "./instances.ts";
import type { Journal, SandboxEntry } from "./journal.ts";
import type { OnStep, Turns } from "./turns.ts";

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

  /** A client of a sandbox's agent, at its present or last known address. Rejects with AGENT_UNREACHABLE. */
  async dial(entry: SandboxEntry, credentials?: ClientCredentials): Promise<GuestClient> {
    const { ip } = await this.#parts.instances.existing(entry).catch((error: unknown) => {
      if (entry.lastIp === undefined || !isUnknownOutcome(error)) throw error;
      return { ip: entry.lastIp };
    });
    if (ip === undefined) throw new SandboxError("AGENT_UNREACHABLE", `the instance of ${entry.name} has no address`);
    const own = credentials ?? (await this.#parts.credentials.client(entry.name));
    return connect({ address: addressOf(entry, ip), ...own });
  }

  /** Asks a sandbox's agent over a connection of its own. */
  async ask<Answer>(entry: SandboxEntry, question: (client: GuestClient) => Promise<Answer>): Promise<Answer> {
    using client = await this.dial(entry);
    return await question(client);
  }

  /**
   * Has a restored sandbox do its duties, POST_RESTORE and Health; from then on it counts as running.
   *
   * @param reachTimeoutMs for its agent to answer
   */
  async awaken(
    operation: string,
    entry: SandboxEntry,
    reachTimeoutMs: number = this.patience.reachTimeoutMs,
  ): Promise<Awakening> {
    const { instances, journal, turns, step } = this.#parts;
    step(operation, entry.name, "duties, POST_RESTORE and Health");
    const awakening = await whileUp(instances.subject(entry), (signal) =>
      awaken(() => this.dial(entry), { ...this.patience, reachTimeoutMs }, signal),
    );
    const { runEpochMs, agentVersion, agentServices } = awakening;
    journal.put({ ...entry, runEpochMs, agentVersion, agentServices, asleepBecause: undefined });
    turns.risk(entry.name, undefined);
    return awakening;
  }
}

/** HOST:PORT of a sandbox's agent. */
export function addressOf({ agentPort }: SandboxEntry, ip: string): string {
  return `${ip}:${agentPort}`;
}
