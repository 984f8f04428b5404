import { constants } from "node:fs";
import { FileSystemError, FileSystemHung, type FileStep, type Mount } from "../../domain/index.ts";
import { WORKING_DIRECTORY } from "../../native/index.ts";
import { type Descriptor, openIn } from "./descriptor.ts";
import { SLASH } from "./names.ts";
import { mountAt, mountOf } from "../threads/mounts.ts";
import type { Work } from "../threads/operation.ts";
import type { FileWork } from "../threads/work.ts";

/** O_PATH of open(2), for which Node has no constant: opens an entry without read access, as a base for other calls. */
export const O_PATH = 0o10000000;
const ENTRY = O_PATH | constants.O_NOFOLLOW;
const ROOT = Buffer.of(SLASH);
/** Largest number of symbolic links on a path, as in the kernel (path_resolution(7)). */
export const MAX_LINKS = 40;
type How = Pick<Work<never>, "step" | "isProbe">;

/**
 * Operations that follow a path, from a directory or from the root. Only the kernel knows which file systems a path
 * enters. So while any file system hangs, the agent first walks each path name by name and stops before it would enter
 * the hung file system.
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

  /** Runs an operation that follows a path. Throws FileSystemError. */
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
      path: { walk: (isProbe) => this.#walk({ step, isProbe }, path) },
    };
  }

  /**
   * Looks up the names of a path one by one, as far as they exist. Returns the mount of the last name. Throws
   * FileSystemHung before it enters a file system that is known not to respond, and if a lookup does not return. Does
   * not wait until descriptors are closed: closing needs a thread, and all threads may hang.
   */
  async #walk(how: How, path: Uint8Array): Promise<Mount | undefined> {
    using opened = new DisposableStack();
    const keep = (descriptor: Descriptor): Descriptor => {
      opened.defer(() => void descriptor[Symbol.asyncDispose]());
      return descriptor;
    };
    const root = async (): Promise<Descriptor> =>
      keep(await openIn(this.#work, { ...how, on: [] }, WORKING_DIRECTORY, ROOT, O_PATH));
    const lookUp = async (directory: Descriptor, name: Uint8Array): Promise<Descriptor> =>
      keep(
        await openIn(
          this.#work,
          { ...how, on: [directory], mount: mountAt(directory.fd, name) },
          directory.fd,
          name,
          ENTRY,
        ),
      );
    let names = namesOf(path);
    let at = this.#base ?? (await root());
    try {
      for (let links = 0; ;) {
        this.#work.refuse(how.step, this.#work.hung.ofDescriptor(at.fd)?.mount);
        const [name, ...rest] = names;
        if (name === undefined || links > MAX_LINKS) return mountOf(at.fd);
        const next = await lookUp(at, name);
        const target = await this.#targetOf(next, how);
        if (target === undefined) {
          at = next;
          names = rest;
          continue;
        }
        links += 1;
        names = [...namesOf(target), ...rest];
        if (target[0] === SLASH) at = await root();
      }
    } catch (error) {
      // This is not an error here, because the operation itself will report the missing or forbidden name.
      if (!(error instanceof FileSystemError) || error instanceof FileSystemHung) throw error;
      return mountOf(at.fd);
    }
  }

  /** The target of a symbolic link; undefined for other types. */
  async #targetOf(entry: Descriptor, how: How): Promise<Uint8Array | undefined> {
    const target = await this.#work.step({ ...how, on: [entry] }, () => this.#work.addon.targetOf(entry.fd));
    return typeof target === "number" ? undefined : target;
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
