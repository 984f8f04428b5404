import { messageOf } from "../../../shared/errors.ts";
import type { GuestClient, GuestUsage } from "../../client/index.ts";
import { bounded } from "../node/index.ts";

/** Agents that are asked at the same time. */
const QUESTIONS_AT_A_TIME = 16;
/** Time for one agent to answer, connecting included: a silent one must not delay a whole scrape of Prometheus (10 s). */
const ANSWER_MS = 4_000;

/** What a running sandbox uses, or why its agent did not report it. */
export interface SandboxUsage {
  readonly name: string;
  readonly usage: GuestUsage | undefined;
  /** Undefined: it reported its usage. */
  readonly error: string | undefined;
}

/** A sandbox, as far as its usage is concerned. */
interface Listed {
  readonly name: string;
  readonly phase: string;
  readonly state: string | undefined;
  readonly address: string | undefined;
}

/** The sandboxes that a UsageReader asks, and how it connects to them. */
export interface UsageSources {
  list(): Promise<readonly Listed[]>;
  connect(name: string): Promise<GuestClient>;
}

/**
 * Reads the usage of all running sandboxes of a node, as often as it is called. It keeps one connection for each
 * sandbox between the calls; dispose of it.
 */
export class UsageReader implements Disposable {
  readonly #sources: UsageSources;
  /** By name, with the address that the client dials: a sandbox that was resumed has another. */
  readonly #clients = new Map<string, { readonly address: string | undefined; readonly client: GuestClient }>();
  #reading: Promise<readonly SandboxUsage[]> | undefined;

  constructor(sources: UsageSources) {
    this.#sources = sources;
  }

  /** In the order of the sandboxes' creation. Calls during a reading share it. Rejects with SandboxError without a list. */
  read(): Promise<readonly SandboxUsage[]> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  [Symbol.dispose](): void {
    for (const name of this.#clients.keys()) this.#drop(name);
  }

  async #read(): Promise<readonly SandboxUsage[]> {
    const running = (await this.#sources.list()).filter(({ phase, state }) => phase === "ready" && state === "Running");
    const names = new Set(running.map(({ name }) => name));
    for (const name of this.#clients.keys()) if (!names.has(name)) this.#drop(name);
    const usages = new Map<string, SandboxUsage>();
    await bounded(running, QUESTIONS_AT_A_TIME, async (info) => {
      usages.set(info.name, await this.#ask(info));
    });
    return running.flatMap(({ name }) => usages.get(name) ?? []);
  }

  async #ask({ name, address }: Listed): Promise<SandboxUsage> {
    try {
      if (this.#clients.get(name)?.address !== address) this.#drop(name);
      const { client } = this.#clients.get(name) ?? { client: await this.#sources.connect(name) };
      this.#clients.set(name, { address, client });
      return { name, usage: await client.usage({ timeoutMs: ANSWER_MS }), error: undefined };
    } catch (error) {
      // The next reading connects again, with the address and the credentials of that time.
      this.#drop(name);
      return { name, usage: undefined, error: messageOf(error) };
    }
  }

  #drop(name: string): void {
    this.#clients.get(name)?.client.close();
    this.#clients.delete(name);
  }
}
