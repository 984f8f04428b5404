import type { FileStep, FileSystemHung, Mount } from "../../domain/index.ts";

/** What an operation works on: a descriptor, which may not be closed before the operation has returned. */
export interface Held {
  readonly fd: number;
  /** Keeps it open. Returns the function that no longer does. */
  hold(): () => void;
}

/** A path that an operation follows, perhaps into a file system that hangs. */
interface FollowedPath {
  /**
   * Looks its names up, one after another. Resolves with the mount where it ends. Throws FileSystemHung before a file
   * system that is silent, and where a probe finds one.
   */
  walk(isProbe: boolean): Promise<Mount | undefined>;
}

/** How an operation runs. */
export interface Work<Value> {
  readonly step: FileStep;
  /** What it works on. Unless it follows a path, it waits for the file system of the first of them. */
  readonly on: readonly Held[];
  readonly path?: FollowedPath;
  /** What is mounted at a name in `on` that the operation looks up: that may hang, while its folder does not. */
  readonly mount?: Mount | undefined;
  /** Aborted while the operation waits for a thread, it waits no more. Its reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** It helps to find what hangs: it waits for no thread, and counts as hung after 2 s. */
  readonly isProbe?: boolean;
  /** Called with the result of an operation that returns after it was given up. */
  late?(value: Value): void;
}

/** An operation on a thread. */
export interface Running {
  readonly work: Work<never>;
  readonly returned: Promise<void>;
  readonly reject: (error: FileSystemHung) => void;
  /** Looks at it so far: see FileWork. */
  looks: number;
  /** On an extra thread, from the start or since it was late. */
  isExtra: boolean;
  /** Its call fails once the mount is found on which it waits. */
  isJudged: boolean;
  isGivenUp: boolean;
  /** The silent mount, once a probe has found it. */
  silent: Mount | undefined;
}

const SYNCS: ReadonlySet<FileStep> = new Set(["sync", "sync_folder"]);

/** Whether an operation writes what the kernel has gathered, which may take long. */
export function isSync({ step }: Work<never>): boolean {
  return SYNCS.has(step);
}
