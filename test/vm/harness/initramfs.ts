import { execFileSync } from "node:child_process";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** A file of the guest. */
export interface GuestFile {
  /** Without a leading slash. */
  readonly path: string;
  readonly content: Uint8Array | string;
  /** Permissions. Default: 0755. */
  readonly mode?: number;
}

const DIRECTORY = 0o040755;
const REGULAR = 0o100000;
const CONSOLE = 0o020600;

/** Writes the files, and the folders that they need, as an initramfs ("newc" of cpio(5)), with a /dev/console. */
export function writeInitramfs(output: string, folders: readonly string[], files: readonly GuestFile[]): void {
  const parts: Buffer[] = [];
  const made = new Set<string>();
  let inode = 1;
  const padded = (bytes: Buffer): void => {
    parts.push(bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4));
  };
  const entry = (path: string, mode: number, content: Buffer, device: readonly [number, number] = [0, 0]): void => {
    const numbers = [inode++, mode, 0, 0, 1, 0, content.length, 0, 0, ...device, Buffer.byteLength(path) + 1, 0];
    padded(Buffer.from(`070701${numbers.map((n) => n.toString(16).padStart(8, "0")).join("")}${path}\0`));
    padded(content);
  };
  const folder = (path: string): void => {
    if (path === "." || made.has(path)) return;
    folder(dirname(path));
    made.add(path);
    entry(path, DIRECTORY, Buffer.alloc(0));
  };
  folder("dev");
  entry("dev/console", CONSOLE, Buffer.alloc(0), [5, 1]);
  for (const path of folders) folder(path);
  for (const { path, content, mode = 0o755 } of files) {
    folder(dirname(path));
    entry(path, REGULAR | mode, Buffer.from(content));
  }
  entry("TRAILER!!!", 0, Buffer.alloc(0));
  writeFileSync(output, Buffer.concat(parts));
}

/** The libraries of a program of this machine, at the same paths. */
export function withLibraries(program: string): GuestFile[] {
  const output = execFileSync("ldd", [program], { encoding: "utf8" });
  const paths = [...output.matchAll(/(?:^|\s)(\/\S+)(?= \(0x)/g)].map(([, path = ""]) => path);
  return paths.map((path) => ({ path: path.slice(1), content: readFileSync(path) }));
}

/** The named modules of a kernel and their dependencies, in loading order. Leaves out built-in ones. */
export function modules(kernelFolder: string, names: readonly string[]): GuestFile[] {
  const files = new Map(
    globSync("**/*.ko*", { cwd: kernelFolder }).map((path) => [
      basename(path)
        .replace(/\.ko.*$/, "")
        .replaceAll("-", "_"),
      join(kernelFolder, path),
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
