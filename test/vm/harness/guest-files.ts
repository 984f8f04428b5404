import { execFileSync } from "node:child_process";
import { chmodSync, globSync, linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** A file of the guest. */
export interface GuestFile {
  /** Without a leading slash. */
  readonly path: string;
  readonly content: Uint8Array | string;
  /** Permissions. Default: 0755. */
  readonly mode?: number;
}

const MEBIBYTE = 2 ** 20;
/** Debian has mke2fs in a directory of root's PATH only. */
const PATH = `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
/** Room for ext4 itself, and on the instance's disk for all that its guest writes. */
const SPARE_BYTES = 192 * MEBIBYTE;

/**
 * Runs an action on a directory beside the output that holds these files, and is removed then. Files of one and the
 * same array are links to one file: a small guest has no memory for copies in its initramfs.
 */
function laidOut(output: string, files: readonly GuestFile[], action: (directory: string) => void): void {
  const directory = mkdtempSync(`${output}-`);
  const written = new Map<GuestFile["content"], string>();
  try {
    for (const { path, content, mode = 0o755 } of files) {
      const file = join(directory, path);
      mkdirSync(dirname(file), { recursive: true });
      const same = typeof content === "string" ? undefined : written.get(content);
      if (same !== undefined) linkSync(same, file);
      else writeFileSync(file, content);
      written.set(content, file);
      chmodSync(file, mode);
    }
    chmodSync(directory, 0o755);
    action(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Writes files and directories as an initramfs, owned by root. The kernel brings a /dev/console. */
export function writeInitramfs(output: string, directories: readonly string[], files: readonly GuestFile[]): void {
  laidOut(output, files, (directory) => {
    for (const path of directories) mkdirSync(join(directory, path), { recursive: true });
    const pack = 'find . | cpio --create --format=newc --owner=0:0 --quiet > "$0"';
    execFileSync("sh", ["-c", pack, output], { cwd: directory });
  });
}

/** Writes the files as a disk with one ext4 file system, owned by root; sparse, so that free space costs nothing. */
export function writeDisk(output: string, files: readonly GuestFile[], spareBytes: number = SPARE_BYTES): void {
  const sizeBytes = files.reduce((sum, { content }) => sum + content.length, spareBytes);
  laidOut(output, files, (directory) => writeDirectoryDisk(output, directory, sizeBytes));
}

/** Writes a directory as such a disk, with owners and modes as they are there. Throws if it does not fit. */
export function writeDirectoryDisk(output: string, directory: string, sizeBytes: number): void {
  const kibibytes = `${Math.ceil(sizeBytes / 1024)}k`;
  // An inode for every 4 KiB: images are made of small files.
  execFileSync(
    "mke2fs",
    ["-q", "-F", "-t", "ext4", "-i", "4096", "-E", "root_owner=0:0", "-d", directory, output, kibibytes],
    { env: { ...process.env, PATH }, stdio: ["ignore", "ignore", "pipe"] },
  );
}

/** Copies a disk that nobody writes to, with its holes. In tests without machines it is a directory. */
export function copyDisk(from: string, to: string): void {
  execFileSync("cp", ["-R", "--sparse=always", "--reflink=auto", from, to], { stdio: ["ignore", "ignore", "pipe"] });
}

/** The libraries of a program of this machine, at the same paths. */
export function withLibraries(program: string): GuestFile[] {
  const output = execFileSync("ldd", [program], { encoding: "utf8" });
  const paths = [...output.matchAll(/(?:^|\s)(\/\S+)(?= \(0x)/g)].map(([, path = ""]) => path);
  return paths.map((path) => ({ path: path.slice(1), content: readFileSync(path) }));
}

/** The named modules of a kernel and their dependencies, in loading order. Leaves out built-in ones. */
export function modules(kernelDirectory: string, names: readonly string[]): GuestFile[] {
  const files = new Map(
    globSync("**/*.ko*", { cwd: kernelDirectory }).map((path) => [
      basename(path)
        .replace(/\.ko.*$/, "")
        .replaceAll("-", "_"),
      join(kernelDirectory, path),
    ]),
  );
  const loaded = new Map<string, GuestFile>();
  const add = (name: string): void => {
    const path = files.get(name);
    if (path === undefined || loaded.has(name)) return;
    const content = path.endsWith(".xz")
      ? execFileSync("xz", ["-dc", path], { maxBuffer: 2 ** 26 })
      : readFileSync(path);
    const start = content.indexOf("depends=") + "depends=".length;
    const dependencies = content.toString("latin1", start, content.indexOf(0, start)).split(",");
    for (const dependency of dependencies) add(dependency.replaceAll("-", "_"));
    loaded.set(name, { path: `modules/${name}.ko`, content, mode: 0o644 });
  };
  for (const name of names) add(name);
  const order = [...loaded.values()].map(({ path }) => `${basename(path)}\n`);
  return [...loaded.values(), { path: "modules.list", content: order.join("") }];
}
