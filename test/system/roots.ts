import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

import { debianPackage, debianRoot } from "./debian-archive.ts";

/** The root file system of an image. */
export interface Root {
  readonly name: string;
  readonly folder: string;
  /** Command that runs the line of shell put after it; undefined: there is no program at all. */
  readonly shell: readonly string[] | undefined;
  /** Words of shell that sleep; a shell without /proc does not find its own. */
  readonly sleep?: string;
  /** A program that needs the image's own C library. */
  readonly linked?: string;
}

/** All roots that the agent is tried in, below a folder that `remove` removes. */
export interface Roots {
  readonly all: readonly Root[];
  /** Compiled for all of them; see enter_root.c. */
  readonly enterRoot: string;
  remove(): void;
}

const PROGRAMS = join(import.meta.dirname, "..", "fixtures", "programs");
/** Where things are mounted in a root that is otherwise read-only. */
const MOUNT_POINTS = ["agent", "tmp", "proc", "dev"];

function place(source: string, folder: string, target: string = source): void {
  const path = join(folder, target);
  mkdirSync(dirname(path), { recursive: true });
  copyFileSync(source, path);
}

function compile(args: readonly string[]): void {
  execFileSync("gcc", ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", ...args], { stdio: "inherit" });
}

/** Image files that would break a program which heeds them. */
function addTraps(folder: string): void {
  for (const [file, text] of Object.entries({
    "etc/ld.so.preload": "/no/such/library.so\n",
    "etc/ssl/openssl.cnf": "nodejs_conf = broken\n[broken]\nproviders = nowhere\n[nowhere]\nx = y\n= =\n",
    "etc/nsswitch.conf": "passwd: nowhere\nhosts: nowhere\n",
  })) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
}

function scratch(folder: string): Root {
  place(join(debianPackage("busybox-static"), "bin/busybox"), folder, "busybox");
  addTraps(folder);
  return {
    name: "scratch: one static program, hostile files",
    folder,
    shell: ["/busybox", "sh", "-c"],
    sleep: "/busybox sleep",
  };
}

function musl(folder: string): Root {
  const [runtime, development] = [debianPackage("musl"), debianPackage("musl-dev")];
  const triplet = process.arch === "arm64" ? "aarch64" : "x86_64";
  const loader = `lib/ld-musl-${triplet}.so.1`;
  const library = join(development, `usr/lib/${triplet}-linux-musl`);
  execFileSync("cp", ["-a", `${runtime}/.`, folder]);
  for (const name of ["sh", "sleep"]) {
    place(join(debianPackage("busybox-static"), "bin/busybox"), folder, `bin/${name}`);
  }
  compile([
    "-nostdinc",
    "-isystem",
    join(development, `usr/include/${triplet}-linux-musl`),
    "-nostdlib",
    "-no-pie",
    `-Wl,-dynamic-linker,/${loader}`,
    "-o",
    join(folder, "linked"),
    join(PROGRAMS, "linked.c"),
    join(library, "crt1.o"),
    join(library, "crti.o"),
    `-L${join(runtime, `lib/${triplet}-linux-musl`)}`,
    "-l:libc.so",
    join(library, "crtn.o"),
  ]);
  return { name: "musl and busybox", folder, shell: ["/bin/sh", "-c"], sleep: "/bin/sleep", linked: "/linked" };
}

function glibc(folder: string): Root {
  const program = join(debianPackage("busybox"), "bin/busybox");
  for (const name of ["sh", "sleep"]) place(program, folder, `bin/${name}`);
  const libraries = execFileSync("ldd", [program], { encoding: "utf8" }).matchAll(/(\/\S+) \(0x/g);
  for (const [, library = ""] of libraries) place(library, folder, library);
  compile(["-o", join(folder, "linked"), join(PROGRAMS, "linked.c")]);
  return { name: "glibc without libstdc++", folder, shell: ["/bin/sh", "-c"], sleep: "/bin/sleep", linked: "/linked" };
}

/** The cached one itself: its folders to mount on and its program are the same each time. */
function debian(): Root {
  const folder = debianRoot();
  addMountPoints(folder);
  compile(["-o", join(folder, "linked"), join(PROGRAMS, "linked.c")]);
  return { name: "Debian 12", folder, shell: ["/bin/sh", "-c"], sleep: "/bin/sleep", linked: "/linked" };
}

function empty(folder: string): Root {
  return { name: "empty", folder, shell: undefined };
}

function addMountPoints(folder: string): void {
  for (const point of MOUNT_POINTS) mkdirSync(join(folder, point), { recursive: true });
}

/** Makes them; needs root and Debian's packages. */
export function makeRoots(): Roots {
  const base = mkdtempSync(join(tmpdir(), "guest-agent-roots-"));
  const enterRoot = join(base, "enter-root");
  compile(["-static", "-o", enterRoot, join(PROGRAMS, "enter_root.c")]);
  const all = [debian, musl, glibc, scratch, empty].map((make) => {
    const folder = mkdtempSync(join(base, `${basename(make.name)}-`));
    addMountPoints(folder);
    execFileSync("chmod", ["755", folder]);
    return make(folder);
  });
  return { all, enterRoot, remove: () => rmSync(base, { recursive: true, force: true }) };
}
