import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { type Architecture, compile } from "../../scripts/package/toolchain.ts";
import { unpacked } from "../vm/harness/packages.ts";
import { debianRoot } from "./debian-archive.ts";

/** The root file system of an image. */
export interface Root {
  readonly name: RootName;
  /** Directories as layers, the uppermost first. None is ever written to. */
  readonly layers: readonly string[];
  /** Command that runs the line of shell after it; undefined: the root has no program. */
  readonly shell?: readonly string[];
  /** The same for a shell that needs no library of the image. */
  readonly staticShell?: readonly string[];
  /** Words of shell that sleep; a shell without /proc does not find its own. */
  readonly sleep?: string;
  /** A program linked with the image's own C library. */
  readonly linked?: string;
}

/** The roots in which the agent is tested, below a directory that `remove` removes. */
export interface Roots {
  readonly all: readonly Root[];
  /** A layer of files that break a program which reads them; see TRAPS. */
  readonly traps: string;
  /** enter_root.c, compiled for all of them. */
  readonly enterRoot: string;
  /** A new empty directory. */
  directory(): string;
  remove(): void;
}

/** Their names, in the order of `Roots.all`. */
export const ROOT_NAMES = ["Debian 12", "musl", "glibc without libstdc++", "scratch", "empty"] as const;

/** One of them. */
export type RootName = (typeof ROOT_NAMES)[number];
type Programs = Omit<Root, "name" | "layers">;

const SOURCES = join(import.meta.dirname, "..", "fixtures", "programs");
const TRIPLET = process.arch === "arm64" ? "aarch64" : "x86_64";
const STATIC_SHELL = ["/busybox", "sh", "-c"];
const SHELL_PROGRAMS: Programs = { shell: ["/bin/sh", "-c"], staticShell: STATIC_SHELL, sleep: "/bin/sleep" };

/**
 * Files that mislead a program which reads the image's: to a wrong C library, also in the place of the right one, and
 * to unreadable settings.
 */
const TRAPS: Readonly<Record<string, string>> = {
  "etc/ld.so.preload": "/traps/libc.so\n",
  "etc/ld.so.conf": "/traps\n",
  "etc/ssl/openssl.cnf": "nodejs_conf = broken\n[broken]\nproviders = nowhere\n[nowhere]\nx = y\n= =\n",
  "etc/nsswitch.conf": "passwd: nowhere\nhosts: nowhere\n",
  "etc/hosts": "0.0.0.0 localhost\n",
};

/** Libraries of a wrong C library, by names that glibc's programs look for. */
const WRONG_LIBRARIES = ["libc.so", "libc.so.6", "libstdc++.so.6", "libm.so.6", "libdl.so.2"];

function place(source: string, directory: string, target: string = source): void {
  const path = join(directory, target);
  mkdirSync(dirname(path), { recursive: true });
  copyFileSync(source, path);
}

function build(args: readonly string[]): void {
  compile(process.arch as Architecture, SOURCES, ["-O1", ...args]);
}

function addTraps(directory: string): void {
  for (const [file, text] of Object.entries(TRAPS)) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), text);
  }
  const wrong = join(unpacked("musl"), `lib/ld-musl-${TRIPLET}.so.1`);
  for (const name of WRONG_LIBRARIES) place(wrong, directory, `traps/${name}`);
}

/** musl's C library with busybox, and a program linked with it. */
function fillMusl(directory: string): Programs {
  const [runtime, development] = [unpacked("musl"), unpacked("musl-dev")];
  const library = join(development, `usr/lib/${TRIPLET}-linux-musl`);
  execFileSync("cp", ["-a", `${runtime}/.`, directory]);
  for (const name of ["sh", "sleep"]) {
    place(join(unpacked("busybox-static"), "bin/busybox"), directory, `bin/${name}`);
  }
  build([
    "-nostdinc",
    "-isystem",
    join(development, `usr/include/${TRIPLET}-linux-musl`),
    "-nostdlib",
    "-no-pie",
    `-Wl,-dynamic-linker,/lib/ld-musl-${TRIPLET}.so.1`,
    "-o",
    join(directory, "linked"),
    "linked.c",
    join(library, "crt1.o"),
    join(library, "crti.o"),
    `-L${join(runtime, `lib/${TRIPLET}-linux-musl`)}`,
    "-l:libc.so",
    join(library, "crtn.o"),
  ]);
  return { ...SHELL_PROGRAMS, linked: "/linked" };
}

/** This machine's C library and no other, with a busybox linked with it. */
function fillGlibc(directory: string): Programs {
  const program = join(unpacked("busybox"), "bin/busybox");
  for (const name of ["sh", "sleep"]) place(program, directory, `bin/${name}`);
  const libraries = execFileSync("ldd", [program], { encoding: "utf8" }).matchAll(/(\/\S+) \(0x/g);
  for (const [, library = ""] of libraries) place(library, directory, library);
  return linkWithGlibc(directory);
}

function linkWithGlibc(directory: string): Programs {
  build(["-o", join(directory, "linked"), "linked.c"]);
  return { ...SHELL_PROGRAMS, linked: "/linked" };
}

/** What each root alone has. All that have any program also get one more. */
const FILL: Readonly<Record<RootName, (directory: string) => Programs>> = {
  "Debian 12": linkWithGlibc,
  musl: fillMusl,
  "glibc without libstdc++": fillGlibc,
  scratch: () => ({ shell: STATIC_SHELL, staticShell: STATIC_SHELL, sleep: "/busybox sleep" }),
  empty: () => ({}),
};

function makeRoot(name: RootName, directory: string, points: string): Root {
  const programs = FILL[name](directory);
  if (programs.shell !== undefined) place(join(unpacked("busybox-static"), "bin/busybox"), directory, "busybox");
  return { name, layers: [directory, points, ...(name === "Debian 12" ? [debianRoot()] : [])], ...programs };
}

/** Makes all roots, or some; needs root and Debian's packages. */
export function makeRoots(names: readonly RootName[] = ROOT_NAMES): Roots {
  const base = mkdtempSync(join(tmpdir(), "guest-agent-roots-"));
  const directory = (): string => {
    const made = mkdtempSync(join(base, "f-"));
    chmodSync(made, 0o755);
    return made;
  };
  const enterRoot = join(base, "enter-root");
  build(["-static", "-o", enterRoot, "enter_root.c"]);
  const [traps, points] = [directory(), directory()];
  addTraps(traps);
  // Where things are mounted.
  for (const point of ["agent", "tmp", "proc", "dev"]) mkdirSync(join(points, point));
  const all = names.map((name) => makeRoot(name, directory(), points));
  return { all, traps, enterRoot, directory, remove: () => rmSync(base, { recursive: true, force: true }) };
}
