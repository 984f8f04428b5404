import { readFileSync, readlinkSync } from "node:fs";
import { type Mount, mountsIn } from "../../domain/index.ts";

/** The mount of an open file or directory; undefined without /proc. Reads /proc only, not the mounted file system. */
export function mountOf(fd: number): Mount | undefined {
  try {
    const id = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return id === undefined ? undefined : mountWithId(id);
  } catch {
    return undefined;
  }
}

/**
 * The topmost mount at a name in an open directory. Undefined if there is none, or if there is no /proc. Does not
 * access the mount, because it may hang.
 */
export function mountAt(directory: number, name: Uint8Array): Mount | undefined {
  try {
    const above = readlinkSync(`/proc/self/fd/${directory}`, "latin1");
    const path = `${above === "/" ? "" : above}/${Buffer.from(name).toString("latin1")}`;
    return mountsIn(readFileSync("/proc/self/mountinfo", "latin1")).findLast((mount) => mount.path === path);
  } catch {
    return undefined;
  }
}

/** The mounts below an open directory, with paths relative to it; undefined without /proc. Does not access mounts. */
export function mountsBelow(
  directory: number,
): readonly { readonly path: Buffer; readonly mount: Mount }[] | undefined {
  try {
    const above = readlinkSync(`/proc/self/fd/${directory}`, "latin1");
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

/** Finds the mount with this id. mountinfo has no line for a mount that was unmounted lazily (umount -l). */
function mountWithId(id: string): Mount {
  const [line = ""] = new RegExp(String.raw`^${id} .*`, "m").exec(readFileSync("/proc/self/mountinfo", "utf8")) ?? [];
  return mountsIn(line)[0] ?? { fileSystem: `mount ${id}`, path: undefined };
}

/** A mount of a file system that does not respond. */
interface UnresponsiveMount {
  readonly mount: Mount;
  /**
   * Whether an operation on the mount was given up. If false, the mount is only slow, and its operations may still
   * succeed.
   */
  readonly isHung: boolean;
  /** Resolves when the file system responds again. */
  readonly answers: Promise<void>;
  /** Resolves when the file system responds again, or when it is found to hang. */
  readonly decided: Promise<void>;
}

interface Unresponsive {
  isHung: boolean;
  readonly answers: PromiseWithResolvers<void>;
  readonly decided: PromiseWithResolvers<void>;
}

/** The file systems that do not respond at the moment. */
export class HungMounts {
  readonly #unresponsive = new Map<string, Unresponsive>();
  #found = 0;

  get any(): boolean {
    return this.#unresponsive.size > 0;
  }

  /**
   * Number of times that a hung file system was detected. While an operation waits, a change of this number tells it
   * that another file system hangs.
   */
  get found(): number {
    return this.#found;
  }

  /** Returns the mount of an open file or directory if the mount is unresponsive, otherwise undefined. */
  ofDescriptor(fd: number): UnresponsiveMount | undefined {
    return this.ofMount(this.any ? mountOf(fd) : undefined);
  }

  /** Like `ofDescriptor`, but takes a mount. */
  ofMount(mount: Mount | undefined): UnresponsiveMount | undefined {
    const state = mount && this.#unresponsive.get(mount.fileSystem);
    if (mount === undefined || state === undefined) return undefined;
    const { isHung, answers, decided } = state;
    return { mount, isHung, answers: answers.promise, decided: decided.promise };
  }

  /**
   * Records that an operation on the mount is slow, or was given up (`isHung`). The mount counts as unresponsive until
   * one of the reported operations returns.
   */
  report(mount: Mount | undefined, returned: Promise<void>, isHung: boolean): void {
    if (mount === undefined) return;
    const known = this.#unresponsive.get(mount.fileSystem);
    const silence = known ?? { isHung: false, answers: Promise.withResolvers(), decided: Promise.withResolvers() };
    this.#unresponsive.set(mount.fileSystem, silence);
    if (known === undefined || (isHung && !known.isHung)) this.#found += 1;
    if (isHung) {
      silence.isHung = true;
      silence.decided.resolve();
    }
    void returned.then(() => {
      silence.answers.resolve();
      silence.decided.resolve();
      if (this.#unresponsive.get(mount.fileSystem) === silence) this.#unresponsive.delete(mount.fileSystem);
    });
  }
}
