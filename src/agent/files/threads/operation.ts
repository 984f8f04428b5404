import type { FileStep, FileSystemHung, Mount } from "../../domain/index.ts";

/** A descriptor that must stay open until an operation on it has returned. */
export interface Holdable {
  readonly fd: number;
  /** Prevents closing the descriptor. Call the returned function once when the operation has returned. */
  hold(): () => void;
}

/** A path that an operation follows. It may enter a file system that hangs. */
interface FollowedPath {
  /**
   * Looks up the names of the path one by one. Resolves with the mount of the last name. Throws FileSystemHung before
   * it enters a file system that is known not to respond. With `isProbe`, also if a lookup does not return in time.
   */
  walk(isProbe: boolean): Promise<Mount | undefined>;
}

/** One operation and how to run it. */
export interface Work<Value> {
  readonly step: FileStep;
  /** Descriptors that the operation uses. Without a `path`, it operates on the file system of the first one. */
  readonly on: readonly Holdable[];
  readonly path?: FollowedPath;
  /**
   * The mount at the name that the operation looks up. This mount may hang although the directory that contains the
   * name does not.
   */
  readonly mount?: Mount | undefined;
  /** If this signal is aborted while the operation waits for a thread, the wait ends with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** A probe searches for the mount that hangs. It never waits for a thread, and it counts as hung after 2 s. */
  readonly isProbe?: boolean;
  /** Called with the result if the operation returns after it was given up. */
  onLateResult?(value: Value): void;
}

/** State of an operation from the time when it has got a thread until it returns, even if it was given up. */
export interface Running {
  readonly work: Work<never>;
  readonly returned: Promise<void>;
  readonly reject: (error: FileSystemHung) => void;
  /** Number of timer ticks (TICK_MS) since the operation started. */
  ticks: number;
  /** Whether the operation occupies an extra thread, either from the start or since it became slow. */
  isExtra: boolean;
  /** Whether the operation is known to hang, and a probe is searching for its mount. */
  isDiagnosed: boolean;
  isAbandoned: boolean;
  /** The unresponsive mount that a probe found. */
  unresponsive: Mount | undefined;
}

const SYNCS: ReadonlySet<FileStep> = new Set(["sync", "sync_folder"]);

/** Whether an operation flushes dirty pages, which may take long without being hung. */
export function isSync({ step }: Work<never>): boolean {
  return SYNCS.has(step);
}
