import { existsSync, globSync } from "node:fs";
import { join } from "node:path";
import { type Program, providePrograms } from "../../../scripts/machine/programs.ts";
import { compile, prepareTools } from "../../../scripts/package/toolchain.ts";
import { GUEST_ARCHITECTURE } from "./architecture.ts";
import { search, unpacked } from "./packages.ts";

/** The kernels that are always tested. */
export const SERIES: readonly string[] = GUEST_ARCHITECTURE.series;

/** A kernel that guests boot. */
export interface GuestKernel {
  readonly image: string;
  /** Directory of its modules. */
  readonly modulesDirectory: string;
}

/** Programs that guests need. */
const QEMU = GUEST_ARCHITECTURE.qemu;
const TOOLS: readonly Program[] = [
  { name: "cpio", package: "cpio" },
  { name: "dpkg", package: "dpkg" },
  { name: "gcc", package: "build-essential" },
  { name: "mke2fs", package: "e2fsprogs" },
  { name: "openssl", package: "openssl" },
  { name: "socat", package: "socat" },
  { name: "setpriv", package: "util-linux" },
  { name: "strip", package: "binutils" },
  { name: "xz", package: "xz-utils" },
];

/** Installs QEMU if it is missing and can be installed. Undefined: it is there; else why it is not. */
export function provideQemu(): string | undefined {
  if (process.arch !== "x64") return "guests are started on x64 machines, and this is none";
  const missing = providePrograms([QEMU], "for the microVM tests");
  return missing.length === 0 ? undefined : `needs ${QEMU.name} (Debian: ${QEMU.package})`;
}

/** Installs the other programs that guests are made with. Throws if one is not available. */
export function provideTools(): void {
  const missing = providePrograms(TOOLS, "for the microVM tests").map(({ name }) => name);
  if (missing.length > 0) throw new Error(`missing programs: ${missing.join(", ")}`);
  if (!prepareTools(GUEST_ARCHITECTURE.name)) throw new Error(`no compiler for ${GUEST_ARCHITECTURE.name}; see above`);
  provideBusybox();
}

/** A static busybox: init's programs, and those of most images. */
export function provideBusybox(): string {
  const directory = unpacked("busybox-static");
  const path = ["bin/busybox", "usr/bin/busybox"].map((name) => join(directory, name)).find((name) => existsSync(name));
  if (path === undefined) throw new Error(`the package busybox-static has no busybox; look into ${directory}`);
  return path;
}

/** Packages of Debian's cloud kernels, newest first. */
function kernelPackages(): string[] {
  return search(`^linux-image-.*-cloud-${GUEST_ARCHITECTURE.debian}-unsigned$`).toSorted((a, b) =>
    b.localeCompare(a, "en", { numeric: true }),
  );
}

function seriesOf(name: string): string {
  return /^linux-image-(\d+\.\d+)/.exec(name)?.[1] ?? "";
}

/** The newest series beyond those that are always tested; undefined if apt has none. */
export function newerSeries(): string | undefined {
  const [newest = ""] = kernelPackages().map(seriesOf);
  const isNewer = SERIES.every((series) => newest.localeCompare(series, "en", { numeric: true }) > 0);
  return isNewer ? newest : undefined;
}

/** The newest Debian cloud kernel of a series, downloaded once. Throws if it is not available. */
export function provideKernel(series: string): GuestKernel {
  const name = `kernel-${series}`;
  const directory = unpacked(() => packageOf(series), name);
  const [image] = globSync("boot/vmlinuz-*", { cwd: directory });
  if (image === undefined) throw new Error(`no kernel in ${directory}: remove that directory and try again`);
  return { image: join(directory, image), modulesDirectory: join(directory, "lib/modules") };
}

function packageOf(series: string): string {
  const name = kernelPackages().find((candidate) => seriesOf(candidate) === series);
  if (name === undefined)
    throw new Error(
      `apt knows no linux-image-${series}.*-cloud-${GUEST_ARCHITECTURE.debian}-unsigned: add Debian's sources`,
    );
  return name;
}

/** Compiles a program of test/vm/guest, statically; returns its path. */
export function buildGuestProgram(name: string, directory: string): string {
  const output = join(directory, name);
  const sources = join(import.meta.dirname, "../guest");
  compile(GUEST_ARCHITECTURE.name, sources, ["-O2", "-static", "-s", `${name}.c`, "-o", output]);
  return output;
}
