import { messageOf } from "../../../shared/errors.ts";
import type { GuestClient, GuestUsage } from "../../client/index.ts";
import { abortable, lasting, type OperationOptions, orAborted } from "../substrate/index.ts";
import { bounded } from "../state/index.ts";

/** How many agents are called concurrently. */
const QUESTIONS_AT_A_TIME = 16;
/**
 * Deadline for the answer of one agent, including the time to connect. Prometheus allows 10 s for a whole scrape, so
 * one silent agent must not use all of that.
 */
const ANSWER_MS = 4_000;

/** The resource usage of a running sandbox, or the reason why it is not known. */
export interface SandboxUsage {
  readonly name: string;
  readonly usage: GuestUsage | undefined;
  /** Why the usage is not known; undefined if the agent reported it. */
  readonly error: string | undefined;
}

/** The fields of a sandbox that `UsageReader` needs. */
interface Listed {
  readonly name: string;
  readonly phase: string;
  readonly state: string | undefined;
  readonly address: string | undefined;
}

/** The functions with which a `UsageReader` lists the sandboxes and connects to each of them. */
export interface UsageSources {
  list(): Promise<readonly Listed[]>;
  connect(name: string): Promise<GuestClient>;
}

/**
 * Reads the resource usage of all running sandboxes of a node. Between the calls it keeps one connection for each
 * sandbox, so the caller must dispose of it.
 */
export class UsageReader implements Disposable {
  readonly #sources: UsageSources;
  /**
   * Connections by sandbox name, each with its address. If the sandbox now has another address, because it was resumed,
   * the connection is outdated.
   */
  readonly #clients = new Map<string, { readonly address: string | undefined; readonly client: GuestClient }>();
  #reading: Promise<readonly SandboxUsage[]> | undefined;

  constructor(sources: UsageSources) {
    this.#sources = sources;
  }

  /**
   * Reads the usage of all running sandboxes, in the order in which they were created. Concurrent calls share one
   * reading, and an abort ends only the wait for it. Rejects with SandboxError if the sandboxes cannot be listed.
   */
  read(options: OperationOptions = {}): Promise<readonly SandboxUsage[]> {
    return abortable(options, () => {
      this.#reading ??= lasting(() => this.#read()).finally(() => {
        this.#reading = undefined;
      });
      return orAborted(this.#reading);
    });
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
      return { name, usage: await client.usage({ requestTimeoutMs: ANSWER_MS }), error: undefined };
    } catch (error) {
      // Close the connection. The next reading connects again, with the address and the credentials that are then
      // valid.
      this.#drop(name);
      return { name, usage: undefined, error: messageOf(error) };
    }
  }

  #drop(name: string): void {
    this.#clients.get(name)?.client.close();
    this.#clients.delete(name);
  }
}
