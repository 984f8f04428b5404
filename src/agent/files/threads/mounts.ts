import { readFileSync, readlinkSync } from "node:fs";
import { type Mount, mountsIn } from "../../domain/index.ts";

/** The file system that an open file or folder is on; undefined without /proc. Asks the kernel, not the file system. */
export function mountOf(fd: number): Mount | undefined {
  try {
    const id = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return id === undefined ? undefined : mountWithId(id);
  } catch {
    return undefined;
  }
}

/** The topmost mount at a name of an open folder; undefined: none, or no /proc. Never touches it: it may hang. */
export function mountAt(folder: number, name: Uint8Array): Mount | undefined {
  try {
    const above = readlinkSync(`/proc/self/fd/${folder}`, "latin1");
    const path = `${above === "/" ? "" : above}/${Buffer.from(name).toString("latin1")}`;
    return mountsIn(readFileSync("/proc/self/mountinfo", "latin1")).findLast((mount) => mount.path === path);
  } catch {
    return undefined;
  }
}

/** The mounts below an open folder, by their paths from it on; undefined without /proc. Touches none of them. */
export function mountsBelow(folder: number): readonly { readonly path: Buffer; readonly mount: Mount }[] | undefined {
  try {
    const above = readlinkSync(`/proc/self/fd/${folder}`, "latin1");
    const start = above === "/" ? "/" : `${above}/`;
    return mountsIn(readFileSync("/proc/self/mountinfo", "latin1")).flatMap((mount) =>
      mount.path.startsWith(start) && mount.path !== start
        ? [{ path: Buffer.from(mount.path.slice(start.length), "latin1"), mount }]
        : [],
    );
  } catch {
    return undefined;
  }
}

/** By its line's first field. One that is no longer mounted is not listed. */
function mountWithId(id: string): Mount {
  const [line = ""] = new RegExp(String.raw`^${id} .*`, "m").exec(readFileSync("/proc/self/mountinfo", "utf8")) ?? [];
  return mountsIn(line)[0] ?? { fileSystem: `mount ${id}`, path: undefined };
}

/** A mount of a file system that does not answer. */
interface SilentMount {
  readonly mount: Mount;
  /** Surely: an operation has been given up. Otherwise one is late, and a probe of its path, too. */
  readonly isHung: boolean;
  /** Resolves once it answers. */
  readonly answers: Promise<void>;
  /** Resolves once it answers, or is known to hang. */
  readonly decided: Promise<void>;
}

interface Silence {
  isHung: boolean;
  readonly answers: PromiseWithResolvers<void>;
  readonly decided: PromiseWithResolvers<void>;
}

/** The file systems that do not answer, until they do. */
export class HungMounts {
  readonly #silent = new Map<string, Silence>();
  #found = 0;

  get any(): boolean {
    return this.#silent.size > 0;
  }

  /** How often one was found. */
  get found(): number {
    return this.#found;
  }

  /** The silent file system of an open file or folder; undefined: it answers. */
  holding(fd: number): SilentMount | undefined {
    return this.find(this.any ? mountOf(fd) : undefined);
  }

  /** The same for a mount. */
  find(mount: Mount | undefined): SilentMount | undefined {
    const silence = mount && this.#silent.get(mount.fileSystem);
    if (mount === undefined || silence === undefined) return undefined;
    const { isHung, answers, decided } = silence;
    return { mount, isHung, answers: answers.promise, decided: decided.promise };
  }

  /** An operation on it is late, or given up (`isHung`). It counts as silent until one returns. */
  note(mount: Mount | undefined, returned: Promise<void>, isHung: boolean): void {
    if (mount === undefined) return;
    const known = this.#silent.get(mount.fileSystem);
    const silence = known ?? { isHung: false, answers: Promise.withResolvers(), decided: Promise.withResolvers() };
    this.#silent.set(mount.fileSystem, silence);
    if (known === undefined || (isHung && !known.isHung)) this.#found += 1;
    if (isHung) {
      silence.isHung = true;
      silence.decided.resolve();
    }
    void returned.then(() => {
      silence.answers.resolve();
      silence.decided.resolve();
      if (this.#silent.get(mount.fileSystem) === silence) this.#silent.delete(mount.fileSystem);
    });
  }
}
