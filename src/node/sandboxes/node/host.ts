import { SandboxError, type Substrate } from "../substrate/index.ts";
import type { Warning } from "./guest.ts";
import type { Journal, JournalEntry } from "./journal.ts";
import { compareKeys, hostCpuClass, type RestoreChoices } from "./keys.ts";
import type { OnStep } from "./turns.ts";

/** What this host and its daemon can do. */
export class Host {
  readonly #substrate: Substrate;
  readonly #journal: Journal;
  readonly #step: OnStep;
  readonly #cpuClass: string | undefined;

  constructor(substrate: Substrate, journal: Journal, step: OnStep, cpuClass: string | undefined) {
    this.#substrate = substrate;
    this.#journal = journal;
    this.#step = step;
    this.#cpuClass = cpuClass;
  }

  /** Name of its class of processors. */
  async cpuClass(): Promise<string> {
    return this.#cpuClass ?? (await hostCpuClass());
  }

  /**
   * Rejects with `compareKeys`'s SandboxError if a suspended sandbox or snapshot cannot be restored here. Resolves with
   * the differences that do not prevent it; the journal then has the accepted ones.
   */
  async compareKeys(operation: string, entry: JournalEntry, choices: RestoreChoices): Promise<readonly Warning[]> {
    const { name, keys, hypervisor, agentVersion = "" } = entry;
    this.#step(operation, name, "compare the keys");
    const [daemon, images] = await Promise.all([this.#substrate.facts(), this.#substrate.images()]);
    const present = { daemon, images, hypervisor, agentVersion, cpuClass: await this.cpuClass() };
    const { warning, acceptedBundle } = compareKeys(name, keys, present, choices);
    if (acceptedBundle !== undefined) this.#journal.put({ ...entry, acceptedBundle });
    return warning === undefined ? [] : [{ code: "BUNDLE_DIFFERS", message: warning }];
  }

  /** Rejects with SandboxError (CAPABILITY_MISSING) where the entry's hypervisor lacks the feature. */
  async need(feature: "standby" | "snapshots" | "fork", { name, hypervisor }: JournalEntry): Promise<void> {
    const { features } = await this.#substrate.facts();
    if (features === undefined || features.get(hypervisor)?.has(feature) === true) return;
    throw new SandboxError("CAPABILITY_MISSING", `${hypervisor}, which runs ${name}, has no ${feature} on this host`);
  }
}
