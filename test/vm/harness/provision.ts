import { execFileSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** Where downloads and built guest programs are kept between runs. */
export const CACHE_FOLDER: string = join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "guest-agent-vm");

/** A kernel that guests boot. */
export interface GuestKernel {
  /** Its series, such as "6.1". */
  readonly series: string;
  readonly image: string;
  /** Folder of its modules. */
  readonly modulesFolder: string;
}

function apt(...args: string[]): string {
  return execFileSync("apt-get", args, {
    encoding: "utf8",
    cwd: CACHE_FOLDER,
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    stdio: ["ignore", "pipe", "pipe"],
  });
}

function have(command: string): boolean {
  return (process.env["PATH"] ?? "").split(":").some((folder) => existsSync(join(folder, command)));
}

/** Installs QEMU with apt where it is missing and that is possible; undefined when it is there, else why it is not. */
export function provideQemu(): string | undefined {
  mkdirSync(CACHE_FOLDER, { recursive: true });
  if (have("qemu-system-x86_64")) return undefined;
  if (process.arch !== "x64") return "guests are x64 and this machine is not";
  if (process.getuid?.() !== 0 || !have("apt-get")) {
    return "qemu-system-x86_64 is missing: install qemu-system-x86, or run as root on Debian";
  }
  try {
    apt("update", "-qq");
    apt("install", "-y", "-qq", "--no-install-recommends", "qemu-system-x86");
  } catch {
    return "qemu-system-x86_64 is missing and apt-get could not install it";
  }
  return undefined;
}

/** The newest Debian cloud kernel of a series, downloaded once; undefined when the machine's sources have none. */
export function provideKernel(series: string): GuestKernel | undefined {
  const folder = join(CACHE_FOLDER, `kernel-${series}`);
  if (!existsSync(folder)) {
    const names = execFileSync("apt-cache", ["search", "--names-only", "^linux-image-.*-cloud-amd64-unsigned$"], {
      encoding: "utf8",
    });
    const [name] = [...names.matchAll(/^(linux-image-\S+)/gm)]
      .map(([, found = ""]) => found)
      .filter((found) => found.startsWith(`linux-image-${series}.`))
      .toSorted((a, b) => b.localeCompare(a, "en", { numeric: true }));
    if (name === undefined) return undefined;
    const unfinished = `${folder}.${process.pid}`;
    mkdirSync(unfinished);
    if (globSync(`${name}_*.deb`, { cwd: CACHE_FOLDER }).length === 0) apt("download", "-qq", name);
    const [file = ""] = globSync(`${name}_*.deb`, { cwd: CACHE_FOLDER });
    execFileSync("dpkg", ["-x", file, unfinished], { cwd: CACHE_FOLDER });
    rmSync(join(CACHE_FOLDER, file));
    renameSync(unfinished, folder);
  }
  const [image] = globSync("boot/vmlinuz-*", { cwd: folder });
  if (image === undefined) return undefined;
  return { series, image: join(folder, image), modulesFolder: join(folder, "lib/modules") };
}

/** Compiles a program of test/vm/guest, statically; returns its path. */
export function buildGuestProgram(name: string, folder: string): string {
  const output = join(folder, name);
  const source = join(import.meta.dirname, "..", "guest", `${name}.c`);
  execFileSync("gcc", ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", source, "-o", output]);
  return output;
}
