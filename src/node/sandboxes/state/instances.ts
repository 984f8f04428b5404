import {
  type Instance,
  type InstanceState,
  lasting,
  SandboxError,
  type Substrate,
  type Tags,
} from "../substrate/index.ts";
import type { Subject } from "./ending.ts";
import type { Turns } from "./gate.ts";
import type { SandboxEntry } from "./journal.ts";
import { polled } from "./polled.ts";
import type { OperationQueue } from "./operation-queue.ts";

const DEFAULT_SETTLE_MS = 30_000;
const SETTLE_PAUSE_MS = 250;

/**
 * Tag by which an instance is found if the daemon's answer to its creation was lost. A fork inherits the value of this
 * tag from its origin.
 */
export const OPERATION_TAG = "svc.operation";

/** Finds and changes the instances of a node's sandboxes at the substrate. */
export class Instances {
  readonly #substrate: Substrate;
  readonly #tags: Tags;
  readonly #operations: OperationQueue;
  readonly #turns: Turns;
  readonly #settleTimeoutMs: number;

  /**
   * @param tags given to every object that this node creates
   * @param turns spreads the checks of many instances over turns of the event loop
   * @param settleTimeoutMs how long to look for the outcome of a call whose answer was lost
   */
  constructor(
    substrate: Substrate,
    tags: Tags,
    operations: OperationQueue,
    turns: Turns,
    settleTimeoutMs: number = DEFAULT_SETTLE_MS,
  ) {
    this.#substrate = substrate;
    this.#tags = tags;
    this.#operations = operations;
    this.#turns = turns;
    this.#settleTimeoutMs = settleTimeoutMs;
  }

  /**
   * Finds the instance of a sandbox by its id. If the id is not known, finds the instance by its name and tags. The
   * name alone is ambiguous, because other nodes may use the same name. Resolves with undefined if there is no
   * instance.
   */
  async find({ name, instanceName = name, instanceId, tags }: SandboxEntry): Promise<Instance | undefined> {
    if (instanceId !== undefined) return this.#substrate.instance(instanceId);
    const { [OPERATION_TAG]: operation } = tags;
    const own = { ...this.#tags, ...(operation !== undefined && { [OPERATION_TAG]: operation }) };
    return (await this.#substrate.instances(own)).find((instance) => instance.name === instanceName);
  }

  /** Lists all instances of this node, by id, in one request. */
  async listed(): Promise<ReadonlyMap<string, Instance>> {
    return new Map((await this.#substrate.instances(this.#tags)).map((instance) => [instance.id, instance]));
  }

  /**
   * Finds the instance of a sandbox in a listing that was just made. If an instance whose id is known is missing in the
   * listing, it is requested from the substrate.
   */
  async findIn(listed: ReadonlyMap<string, Instance>, entry: SandboxEntry): Promise<Instance | undefined> {
    const { name, instanceName = name, instanceId, tags } = entry;
    if (instanceId !== undefined) return listed.get(instanceId) ?? (await this.find(entry));
    const { [OPERATION_TAG]: operation } = tags;
    for (const instance of listed.values())
      if (instance.name === instanceName && instance.tags[OPERATION_TAG] === operation) return instance;
    return undefined;
  }

  subject(entry: SandboxEntry): Subject {
    const { name, agentPort } = entry;
    const instance = async (): Promise<Instance | undefined> => {
      await this.#turns.next();
      return this.find(entry);
    };
    return { name, agentPort, substrate: this.#substrate, instance };
  }

  /** Returns the instance of a sandbox. Rejects with SandboxError (NOT_FOUND) if it does not exist. */
  async existing(entry: SandboxEntry): Promise<Instance> {
    const instance = await this.find(entry);
    if (instance !== undefined) return instance;
    throw new SandboxError(
      "NOT_FOUND",
      `the daemon has no instance of the sandbox ${entry.name} any more; remove the sandbox`,
    );
  }

  /**
   * Polls an instance until `isWanted` returns true for it or the time is up. Resolves with the instance of the last
   * poll.
   */
  awaited(entry: SandboxEntry, isWanted: (instance: Instance) => boolean, limitMs: number): Promise<Instance> {
    return polled(() => this.existing(entry), isWanted, { pauseMs: SETTLE_PAUSE_MS, limitMs });
  }

  /**
   * Creates an instance or changes its state. If the daemon's answer is lost, polls the instance until it has the state
   * `wanted` or, without `wanted`, until it is running. Stops polling when the time limit expires or the daemon does
   * not answer.
   *
   * An internal error of the daemon counts as a lost answer, because the daemon answers with this error when it cancels
   * a call after a minute. After such an error one poll is enough, because the call has ended.
   *
   * If the operation is aborted, the abort takes effect only at the end of this function.
   */
  changed(entry: SandboxEntry, change: () => Promise<Instance>, wanted?: InstanceState): Promise<Instance> {
    return lasting(() => this.#changed(entry, change, wanted));
  }

  async #changed(entry: SandboxEntry, change: () => Promise<Instance>, wanted?: InstanceState): Promise<Instance> {
    try {
      return await this.#operations.untilAnswered(entry.name, change);
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

/**
 * Whether the instance runs. "Initializing" counts, too: the agent already answers before the substrate notices that
 * init has started the entrypoint.
 */
export function isRunning(state: string): boolean {
  return state === "Running" || state === "Initializing";
}
