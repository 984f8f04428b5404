import { execa } from "execa";
import { installPackages, missingPrograms } from "../../scripts/machine/programs.ts";
import type { Python } from "../fixtures/python-packages.ts";

/** Debian's packages, and so Debian's interpreter. */
const PYTHON = "/usr/bin/python3";
const PACKAGES = ["python3-grpcio", "protobuf-compiler"];
const TIMEOUT_MS = 500_000;

/** Debian's Python with Debian's grpcio, else the reason to skip a test that needs it. */
export async function provideDebianPython(): Promise<Python | string> {
  let missing = await missingParts();
  if (missing.length > 0 && install()) missing = await missingParts();
  return missing.length === 0
    ? { python: PYTHON, path: "" }
    : `needs ${missing.join(", ")} (Debian: ${PACKAGES.join(" ")})`;
}

async function missingParts(): Promise<string[]> {
  const needs = [
    ["grpcio", PYTHON, "-c", "import grpc"],
    ["protoc", "protoc", "--version"],
  ] as const;
  const failed = await Promise.all(
    needs.map(async ([, file, ...args]) => (await execa(file, args, { reject: false, timeout: TIMEOUT_MS })).failed),
  );
  return needs.filter((_, index) => failed[index] === true).map(([name]) => name);
}

/** Python modules are no programs, which `npm test` would install before. */
function install(): boolean {
  if (process.getuid?.() !== 0 || missingPrograms([{ name: "apt-get", package: "apt" }]).length > 0) return false;
  try {
    installPackages(PACKAGES);
    return true;
  } catch (error) {
    process.stderr.write(`cannot install ${PACKAGES.join(" ")}: ${error instanceof Error ? error.message : ""}\n`);
    return false;
  }
}
