import { constants } from "node:fs";
import { FileSystemError, FileSystemHung, type FileStep } from "../../domain/index.ts";
import { WORKING_DIRECTORY } from "../../native/index.ts";
import { type Descriptor, openIn } from "./descriptor.ts";
import { SLASH } from "./names.ts";
import { mountAt } from "../threads/mounts.ts";
import type { Holdable, Work } from "../threads/operation.ts";
import type { FileWork } from "../threads/work.ts";

/** O_PATH of open(2), for which Node has no constant: opens an entry without read access, as a base for other calls. */
export const O_PATH = 0o10000000;
const ENTRY = O_PATH | constants.O_NOFOLLOW;
const ROOT = Buffer.of(SLASH);
/** Largest number of symbolic links on a path, as in the kernel (path_resolution(7)). */
export const MAX_LINKS = 40;
type OnLookup = (lookup: Work<never>) => void;

/**
 * Runs operations that follow a path. While a lookup is slow or a file system hangs, the names of each path are first
 * looked up one by one. These lookups stop before a file system that hangs, and the operation then fails without
 * entering this file system.
 */
export class Paths {
  readonly #work: FileWork;
  /** The directory from which paths are followed. If undefined, paths are absolute. */
  readonly #base: Descriptor | undefined;

  constructor(work: FileWork, base?: Descriptor) {
    this.#work = work;
    this.#base = base;
  }

  /** Value of the directory argument of openat(2). */
  get #directory(): number {
    return this.#base?.fd ?? WORKING_DIRECTORY;
  }

  /**
   * Runs an operation that looks up `path`. If the operation is slow, the names of the path are looked up one by one,
   * to find the mount for which the operation waits. Throws FileSystemError.
   */
  follow<Value>(step: FileStep, path: Uint8Array, operation: () => Promise<Value>): Promise<Value> {
    return this.#work.step(this.#workOnPath(step, path), operation);
  }

  /** Opens a path with openat2(2). Throws FileSystemError. */
  open(step: FileStep, path: Uint8Array, flags: number, resolve = 0): Promise<Descriptor> {
    return openIn(this.#work, this.#workOnPath(step, path), this.#directory, path, flags, { resolve });
  }

  #workOnPath(step: FileStep, path: Uint8Array): Work<never> {
    return {
      step,
      on: this.#base === undefined ? [] : [this.#base],
      path: { walk: (onLookup) => this.#walk(step, path, onLookup) },
    };
  }

  /**
   * Looks up the names of a path one by one, up to the first missing one. Throws FileSystemHung before it enters a file
   * system that is known to hang. Closes what it has opened, but does not wait for that: closing needs a thread, and
   * all threads may hang.
   */
  async #walk(step: FileStep, path: Uint8Array, onLookup: OnLookup = () => {}): Promise<void> {
    using opened = new DisposableStack();
    const lookup = (on: readonly Holdable[], name?: Uint8Array): Work<never> => {
      const work = { step, on, mount: on[0] && name && mountAt(on[0].fd, name), isLookup: true };
      onLookup(work);
      return work;
    };
    const open = async (directory: Descriptor | undefined, name: Uint8Array, flags: number): Promise<Descriptor> => {
      const work = lookup(directory === undefined ? [] : [directory], name);
      const descriptor = await openIn(this.#work, work, directory?.fd ?? WORKING_DIRECTORY, name, flags);
      opened.defer(() => void descriptor[Symbol.asyncDispose]());
      return descriptor;
    };
    let names = namesOf(path);
    let at = this.#base ?? (await open(undefined, ROOT, O_PATH));
    try {
      for (let links = 0; names.length > 0 && links <= MAX_LINKS;) {
        const [name = ROOT, ...rest] = names;
        const next = await open(at, name, ENTRY);
        const target = await this.#work.step(lookup([next]), () => this.#work.addon.targetOf(next.fd));
        // targetOf() returns a negated errno for an entry that is not a symbolic link.
        const isLink = typeof target !== "number";
        names = isLink ? [...namesOf(target), ...rest] : rest;
        if (!isLink) at = next;
        else if (target[0] === SLASH) at = await open(undefined, ROOT, O_PATH);
        if (isLink) links += 1;
      }
    } catch (error) {
      // A missing or forbidden name is ignored here, because the operation itself will report it.
      if (!(error instanceof FileSystemError) || error instanceof FileSystemHung) throw error;
    }
    lookup([at]);
  }
}

function namesOf(path: Uint8Array): Uint8Array[] {
  const names: Uint8Array[] = [];
  for (let start = 0; start < path.length;) {
    const slash = path.indexOf(SLASH, start);
    const end = slash < 0 ? path.length : slash;
    if (end > start) names.push(path.subarray(start, end));
    start = end + 1;
  }
  return names;
}
