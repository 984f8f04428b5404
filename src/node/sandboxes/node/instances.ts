import { type Instance, type InstanceState, SandboxError, type Substrate, type Tags } from "../substrate/index.ts";
import type { Subject } from "./ending.ts";
import type { SandboxEntry } from "./journal.ts";
import { polled } from "./polled.ts";
import type { Turns } from "./turns.ts";

const DEFAULT_SETTLE_MS = 30_000;
const SETTLE_PAUSE_MS = 250;

/** Identifies the result of a call whose answer was lost. Forks have their origin's. */
export const OPERATION_TAG = "svc.operation";

/** The instances of a node's sandboxes at the substrate. */
export class Instances {
  readonly #substrate: Substrate;
  readonly #tags: Tags;
  readonly #turns: Turns;
  readonly #settleTimeoutMs: number;

  /**
   * @param tags of all that the node makes
   * @param settleTimeoutMs how long to look for the outcome of a call whose answer was lost
   */
  constructor(substrate: Substrate, tags: Tags, turns: Turns, settleTimeoutMs: number = DEFAULT_SETTLE_MS) {
    this.#substrate = substrate;
    this.#tags = tags;
    this.#turns = turns;
    this.#settleTimeoutMs = settleTimeoutMs;
  }

  /** The instance of a sandbox: by its id, else by name and tags, as other nodes may use the name. Undefined: none. */
  async find({ name, instanceName = name, instanceId, tags }: SandboxEntry): Promise<Instance | undefined> {
    if (instanceId !== undefined) return this.#substrate.instance(instanceId);
    const { [OPERATION_TAG]: operation } = tags;
    const own = { ...this.#tags, ...(operation !== undefined && { [OPERATION_TAG]: operation }) };
    return (await this.#substrate.instances(own)).find((instance) => instance.name === instanceName);
  }

  /** All instances of this node, by id: one listing in place of a request for each. */
  async listed(): Promise<ReadonlyMap<string, Instance>> {
    return new Map((await this.#substrate.instances(this.#tags)).map((instance) => [instance.id, instance]));
  }

  /**
   * The instance of a sandbox as in a listing that has just been made. Asks for one that the listing lacks, and whose
   * id is known.
   */
  async findIn(listed: ReadonlyMap<string, Instance>, entry: SandboxEntry): Promise<Instance | undefined> {
    const { name, instanceName = name, instanceId, tags } = entry;
    if (instanceId !== undefined) return listed.get(instanceId) ?? (await this.find(entry));
    const { [OPERATION_TAG]: operation } = tags;
    for (const instance of listed.values())
      if (instance.name === instanceName && instance.tags[OPERATION_TAG] === operation) return instance;
    return undefined;
  }

  /** A sandbox as `ending` needs it. */
  subject(entry: SandboxEntry): Subject {
    const { name, agentPort } = entry;
    return { name, agentPort, substrate: this.#substrate, instance: () => this.find(entry) };
  }

  /** The instance of a sandbox. Rejects with SandboxError (NOT_FOUND) where there is none. */
  async existing(entry: SandboxEntry): Promise<Instance> {
    const instance = await this.find(entry);
    if (instance !== undefined) return instance;
    throw new SandboxError("NOT_FOUND", `the instance of ${entry.name} is gone; remove the sandbox`);
  }

  /** Looks at an instance until it is as wanted, or the time is up. Resolves with what it is then. */
  awaited(entry: SandboxEntry, isWanted: (instance: Instance) => boolean, limitMs: number): Promise<Instance> {
    return polled(() => this.existing(entry), isWanted, { pauseMs: SETTLE_PAUSE_MS, limitMs });
  }

  /**
   * Makes an instance, or changes its state. Where the answer is lost, looks for the instance, in the wanted state if
   * one is named, until the time is up or the daemon is away. An internal error says as little, because the daemon
   * cancels every call after a minute and answers so. But the call is then over, so one look is enough.
   */
  async changed(entry: SandboxEntry, change: () => Promise<Instance>, wanted?: InstanceState): Promise<Instance> {
    try {
      return await this.#turns.answered(entry.name, change);
    } catch (error) {
      if (!isUnknownOutcome(error)) throw error;
      const found = (instance: Instance | undefined): instance is Instance =>
        instance !== undefined && (wanted === undefined ? isRunning(instance.state) : instance.state === wanted);
      const limitMs = error.code === "SUBSTRATE_FAILED" ? 0 : this.#settleTimeoutMs;
      const instance = await polled(() => this.find(entry), found, { pauseMs: SETTLE_PAUSE_MS, limitMs }).catch(
        () => undefined,
      );
      if (found(instance)) return instance;
      throw error;
    }
  }
}

/** Whether a call may have taken effect although it failed. */
export function isUnknownOutcome(error: unknown): error is SandboxError {
  return error instanceof SandboxError && ["SUBSTRATE_UNAVAILABLE", "SUBSTRATE_FAILED"].includes(error.code);
}

/** "Initializing" too: the agent answers before the substrate notices that init has started the entrypoint. */
export function isRunning(state: string): boolean {
  return state === "Running" || state === "Initializing";
}
