import type { FileStep, FileSystemHung, Mount } from "../../domain/index.ts";
import { mountOf } from "./mounts.ts";

/** A descriptor that must stay open until an operation on it has returned. */
export interface Holdable {
  readonly fd: number;
  /** Keeps the descriptor open. Call the returned function once, when the operation on the descriptor has returned. */
  hold(): () => void;
}

/** A path that an operation follows. One of its directories may be on a file system that hangs. */
interface FollowedPath {
  /**
   * Looks up the names of the path one by one, up to the first name that does not exist. Before each lookup, and once
   * more for the operation on the last name, calls `onLookup` with what it is about to do. Throws FileSystemHung
   * instead of entering a file system that hangs.
   */
  walk(onLookup?: (lookup: Work<never>) => void): Promise<void>;
}

/** A file operation that is run on a thread. */
export interface Work<Value> {
  readonly step: FileStep;
  /** Descriptors that the operation uses. Unless `path` or `mount` is set, it accesses the first one's file system. */
  readonly on: readonly Holdable[];
  readonly path?: FollowedPath;
  /**
   * Set if the operation looks up the name of a mount point: the file system that is mounted there. It may hang
   * although the file system of the parent directory does not.
   */
  readonly mount?: Mount | undefined;
  /** Whether the operation looks up a single name of a path. */
  readonly isLookup?: boolean;
  /** If this signal is aborted while the operation waits for a thread, the wait ends with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Receives the operation's result if the operation returns only after its call has failed. The result may be a
   * descriptor that must be closed.
   */
  onLateResult?(value: Value): void;
}

/**
 * State of an operation from the time when it gets a thread until it returns. The call that it belongs to may fail
 * earlier.
 */
export interface Running {
  readonly work: Work<never>;
  readonly returned: PromiseWithResolvers<void>;
  /** Number of timer ticks (TICK_MS) since the operation started. */
  ticks: number;
  /**
   * Whether the operation occupies an extra thread (EXTRA_THREADS). If one is free, a sync or a lookup occupies it from
   * the start, and a call as soon as the call is slow.
   */
  isExtra: boolean;
  /** Makes the operation's call fail before the operation returns. Undefined if the call has already failed. */
  reject: ((error: FileSystemHung) => void) | undefined;
  /**
   * The mount that the operation waits for. It is determined when the operation becomes slow, and is undefined before.
   * For an operation on a path, `FollowedPath.walk` determines it.
   */
  mount: Mount | undefined;
}

/** Ticks after which an operation counts as slow (1 s). */
export const SLOW_TICKS = 2;

/**
 * Classes of operations; each has a queue of its own:
 *
 * - "lookup": looks up one name of a path (see `FollowedPath.walk`).
 * - "sync": writes dirty pages to the disk, which may take long although nothing hangs.
 * - "call": every other operation.
 */
export type WorkClass = "lookup" | "sync" | "call";

const SYNCS: ReadonlySet<FileStep> = new Set(["sync", "sync_folder"]);

export function classOf({ step, isLookup }: Work<never>): WorkClass {
  if (isLookup === true) return "lookup";
  return SYNCS.has(step) ? "sync" : "call";
}

/**
 * Returns the mount on which an operation without a `path` works. This is its `mount` or, if that is undefined, the
 * mount of its first descriptor.
 */
export function mountUnder({ mount, on: [held] }: Work<never>): Mount | undefined {
  return mount ?? (held && mountOf(held.fd));
}
