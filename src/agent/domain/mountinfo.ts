import type { Mount } from "./file-system-error.ts";

/** A line of /proc/PID/mountinfo. */
interface MountLine extends Mount {
  /** Path of the mounted directory inside its file system. */
  readonly root: string;
  readonly path: string;
  readonly type: string;
}

/**
 * Parses lines of this format (proc_pid_mountinfo(5)): id, parent id, device, root, mount point, options, optional
 * fields, "-", type.
 */
export function mountsIn(mountinfo: string): MountLine[] {
  return mountinfo.split("\n").flatMap((line) => {
    const fields = line.split(" ");
    const [, , fileSystem, root, path] = fields;
    const type = fields.slice(fields.indexOf("-", 6)).at(1);
    if (fileSystem === undefined || root === undefined || path === undefined || type === undefined) return [];
    return [{ fileSystem, root: unescaped(root), path: unescaped(path), type }];
  });
}

/** Decodes the octal escapes with which the kernel writes spaces and backslashes. */
function unescaped(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/**
 * Returns the mount point that contains a path; undefined if only the root contains it. Compares only the text, because
 * following symbolic links could hang.
 */
export function mountPointOf(path: string, mountinfo: string): string | undefined {
  const points = mountsIn(mountinfo).map((mount) => mount.path);
  const above = points.filter((point) => point.length > 1 && `${path}/`.startsWith(`${point}/`));
  return above.toSorted((a, b) => b.length - a.length)[0];
}
