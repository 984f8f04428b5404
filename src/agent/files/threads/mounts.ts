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
 * The topmost mount at a name in an open directory. Undefined if nothing is mounted there, or if there is no /proc.
 * Does not access the mount, because it may hang.
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

/**
 * Finds the mount with this id. If the mount was unmounted lazily (umount -l), mountinfo has no line for it, so its
 * path is unknown.
 */
function mountWithId(id: string): Mount {
  const [line = ""] = new RegExp(String.raw`^${id} .*`, "m").exec(readFileSync("/proc/self/mountinfo", "utf8")) ?? [];
  return mountsIn(line)[0] ?? { fileSystem: `mount ${id}`, path: undefined };
}

interface HungMount {
  readonly mount: Mount;
  /** Settles when the file system responds again. */
  readonly answers: PromiseWithResolvers<void>;
}

/** File systems that hang. One is added when an operation on it has hung, and removed when this operation returns. */
export class HungMounts {
  readonly #hung = new Map<string, HungMount>();

  get any(): boolean {
    return this.#hung.size > 0;
  }

  /**
   * Finds the file system of `mount` among those that hang; undefined if it is not one of them. The result names the
   * mount on which the hang was noticed, perhaps another mount of the same file system.
   */
  of(mount: Mount | undefined): HungMount | undefined {
    return mount && this.#hung.get(mount.fileSystem);
  }

  /** Records that a file system hangs, until `returned` resolves because an operation that hung on it has returned. */
  add(mount: Mount, returned: Promise<void>): void {
    const hung = this.of(mount) ?? { mount, answers: Promise.withResolvers<void>() };
    this.#hung.set(mount.fileSystem, hung);
    void returned.then(() => {
      hung.answers.resolve();
      if (this.of(mount) === hung) this.#hung.delete(mount.fileSystem);
    });
  }
}
