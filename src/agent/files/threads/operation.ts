import type { FileStep, FileSystemHung, Mount } from "../../domain/index.ts";

/** A descriptor that must stay open until an operation on it has returned. */
export interface Holdable {
  readonly fd: number;
  /** Keeps it open. Returns a function that ends this. */
  hold(): () => void;
}

/** A path that an operation follows. It may enter a file system that hangs. */
interface FollowedPath {
  /**
   * Looks up its names one by one. Resolves with the mount of the last one. Throws FileSystemHung before an
   * unresponsive file system, or if a probe finds one.
   */
  walk(isProbe: boolean): Promise<Mount | undefined>;
}

/** One operation and how to run it. */
export interface Work<Value> {
  readonly step: FileStep;
  /** Its descriptors. Unless it follows a path, it operates on the file system of the first one. */
  readonly on: readonly Holdable[];
  readonly path?: FollowedPath;
  /** The mount at a name that the operation looks up: that mount may hang while the directory itself does not. */
  readonly mount?: Mount | undefined;
  /** If it is aborted while the operation waits for a thread, the wait ends and its reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** A probe looks for the mount that hangs. It does not wait for a thread, and counts as hung after 2 s. */
  readonly isProbe?: boolean;
  /** Called with the result if the operation returns after it was given up. */
  onLateResult?(value: Value): void;
}

/** An operation that occupies a thread. */
export interface Running {
  readonly work: Work<never>;
  readonly returned: Promise<void>;
  readonly reject: (error: FileSystemHung) => void;
  /** Number of ticks since it started: see FileWork. */
  ticks: number;
  /** It occupies an extra thread, from the start or since it was late. */
  isExtra: boolean;
  /** It is known to hang, and its mount is being searched for. */
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
