import { readFileSync, readlinkSync } from "node:fs";
import type { Mount } from "../../domain/index.ts";
import { unescaped } from "../proc.ts";

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
    const lines = readFileSync("/proc/self/mountinfo", "latin1").split("\n");
    return lines.map(mountOfLine).findLast((mount) => mount.path === path);
  } catch {
    return undefined;
  }
}

/** proc_pid_mountinfo(5): id, parent's id, device, root, mount point. One that is no longer mounted is not listed. */
function mountWithId(id: string): Mount {
  const line = new RegExp(String.raw`^${id} .*`, "m").exec(readFileSync("/proc/self/mountinfo", "utf8"));
  return line === null ? { fileSystem: `mount ${id}`, path: undefined } : mountOfLine(line[0]);
}

function mountOfLine(line: string): Mount {
  const [, , device = "", , point] = line.split(" ");
  return { fileSystem: device, path: point && unescaped(point) };
}

/** A mount of a file system that hangs, and a promise that it answers again. */
interface HungMount {
  readonly mount: Mount;
  readonly answers: Promise<void>;
}

/** The file systems that do not answer, until they do. */
export class HungMounts {
  readonly #answers = new Map<string, PromiseWithResolvers<void>>();
  #added = 0;

  get any(): boolean {
    return this.#answers.size > 0;
  }

  get added(): number {
    return this.#added;
  }

  /** The hung file system of an open file or folder; undefined: it does not hang. */
  holding(fd: number): HungMount | undefined {
    return this.find(this.any ? mountOf(fd) : undefined);
  }

  /** The same for a mount. */
  find(mount: Mount | undefined): HungMount | undefined {
    const hung = mount && this.#answers.get(mount.fileSystem);
    return mount && hung && { mount, answers: hung.promise };
  }

  /** An operation on it has not returned in time. It counts as hung until one returns. */
  add(mount: Mount, returned: Promise<void>): void {
    if (!this.#answers.has(mount.fileSystem)) {
      this.#added += 1;
      this.#answers.set(mount.fileSystem, Promise.withResolvers());
    }
    void returned.then(() => {
      this.#answers.get(mount.fileSystem)?.resolve();
      this.#answers.delete(mount.fileSystem);
    });
  }
}
