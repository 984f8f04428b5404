import { installPackages } from "../machine/programs.ts";
import { type Architecture, haveTool, runTool, toolFor } from "./toolchain.ts";

/** Debian's packages that compile for another architecture: gcc brings binutils, the C and the C++ library with it. */
const CROSS_PACKAGES: Readonly<Record<Architecture, readonly string[]>> = {
  x64: ["g++-x86-64-linux-gnu"],
  arm64: ["g++-aarch64-linux-gnu"],
};

/** Whether files for the architecture can be made here. Installs Debian's cross compiler where it may. */
export function prepareTools(arch: Architecture): boolean {
  return haveCompiler(arch) || (installCompiler(arch) && haveCompiler(arch));
}

function haveCompiler(arch: Architecture): boolean {
  const gcc = toolFor(arch, "gcc");
  return haveTool(gcc) && runTool(gcc, ["-print-file-name=libstdc++.so.6"]).includes("/");
}

function installCompiler(arch: Architecture): boolean {
  if (process.getuid?.() !== 0 || !haveTool("apt-get")) return false;
  console.error(`build: installing ${CROSS_PACKAGES[arch].join(" ")} with apt-get, to build for ${arch} too`);
  try {
    installPackages(CROSS_PACKAGES[arch]);
    return true;
  } catch (error) {
    console.error(`build: ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
}
