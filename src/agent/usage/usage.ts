import {
  type AgentError,
  type Clock,
  DEFAULT_USAGE_INTERVAL_MS,
  type GuestCounters,
  invalidField,
  LEAST_USAGE_INTERVAL_MS,
  type Listed,
  type ReadCounters,
  type Timers,
  unlessAborted,
  USAGE_INTERVAL_LIMIT_MS,
  USAGE_WATCH_LIMIT,
  Watchers,
} from "../domain/index.ts";
import { type FileSystemUsage, FileSystemSpaces, type SpaceReader } from "./space.ts";

export type { FileSystemUsage } from "./space.ts";

/** The resource usage of the guest (message GuestUsage). */
export interface UsageReport extends Omit<GuestCounters, "fileSystems"> {
  readonly guestTimeNs: bigint;
  readonly generation: number;
  readonly fileSystems: Listed<FileSystemUsage>;
}

export interface UsageParts {
  readonly readCounters: ReadCounters;
  readonly fileSystem: SpaceReader;
  readonly clock: Clock;
  readonly timers: Timers;
  /** Returns how many times the guest has been restored. */
  readonly generation: () => number;
}

/** The client of a WatchUsage call, to which the agent sends reports. */
export interface UsageWatcher {
  /** Whether the last report still waits to be sent, because the client reads too slowly. */
  readonly isBehind: () => boolean;
  readonly send: (report: UsageReport) => void;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

export class Usage {
  readonly #parts: UsageParts;
  readonly #space: FileSystemSpaces;
  readonly #watchers = new Watchers(USAGE_WATCH_LIMIT, "end one of them, or call GetUsage instead");
  /** The next reading of the usage, which is scheduled but has not begun; undefined if none is scheduled. */
  #next: Promise<UsageReport> | undefined;
  /** Resolves when all readings of the usage that were requested earlier have ended. */
  #before: Promise<unknown> = Promise.resolve();

  constructor(parts: UsageParts) {
    this.#parts = parts;
    this.#space = new FileSystemSpaces(parts.fileSystem, parts.timers);
  }

  /**
   * Reads the usage. A call during a reading waits for the next reading, because the current one may have missed an
   * event that the caller has already seen.
   */
  get(): Promise<UsageReport> {
    if (this.#next === undefined) {
      this.#next = this.#before.then(() => {
        this.#next = undefined;
        return this.#read();
      });
      this.#before = this.#next.catch(() => undefined);
    }
    return this.#next;
  }

  /**
   * Sends a report at once, and then at intervals. Never resolves.
   *
   * @throws AgentError INVALID_ARGUMENT for an interval that is not permitted; RESOURCE_EXHAUSTED if there are too many
   *   watchers; the reason of `watcher.signal` when it is aborted; the error that `shutDown` is given
   */
  async watch(intervalMs: number, watcher: UsageWatcher): Promise<never> {
    if (intervalMs > 0 && (intervalMs < LEAST_USAGE_INTERVAL_MS || intervalMs > USAGE_INTERVAL_LIMIT_MS)) {
      throw invalidField("interval_ms", `must be ${LEAST_USAGE_INTERVAL_MS} to ${USAGE_INTERVAL_LIMIT_MS}, or 0`);
    }
    return this.#watchers.watch(watcher.signal, async (signal) => {
      for (;;) {
        if (!watcher.isBehind()) watcher.send(await unlessAborted(this.get(), signal));
        const { promise, resolve } = Promise.withResolvers<void>();
        const cancel = this.#parts.timers.after(intervalMs === 0 ? DEFAULT_USAGE_INTERVAL_MS : intervalMs, resolve);
        await unlessAborted(promise, signal).finally(cancel);
      }
    });
  }

  /** Ends all watches with the error `reason`. Later calls of `watch` fail with this error, too. */
  shutDown(reason: AgentError): void {
    this.#watchers.shutDown(reason);
  }

  async #read(): Promise<UsageReport> {
    const { readCounters, clock, generation } = this.#parts;
    const { fileSystems, ...counters } = await readCounters();
    const report = { ...counters, guestTimeNs: clock.wallNs(), generation: generation() };
    const items = await this.#space.of(fileSystems.items);
    return { ...report, fileSystems: { items, truncated: fileSystems.truncated } };
  }
}
