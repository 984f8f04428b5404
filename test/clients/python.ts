import { globSync } from "node:fs";
import { join } from "node:path";
import { execa } from "execa";
import { installPackages, missingPrograms } from "../../scripts/machine/programs.ts";
import { cachedFolder, cacheKey, schemaDigest } from "../fixtures/build-cache.ts";
import type { Python } from "../fixtures/python-packages.ts";
import type { ClientProgram } from "./program.ts";

const SOURCES = join(import.meta.dirname, "python");
const ROOT = join(import.meta.dirname, "..", "..");
const PROTO = join(ROOT, "proto");
const BUF = join(ROOT, "node_modules", ".bin", "buf");
/** Debian's packages, and so Debian's interpreter. */
const PYTHON = "/usr/bin/python3";
const PACKAGES = ["python3-grpcio", "python3-protobuf", "protobuf-compiler", "protobuf-compiler-grpc"];
const TIMEOUT_MS = 500_000;

/** The client of test/clients/python, over grpcio. */
export const pythonClient: ClientProgram = {
  make: "Python (grpcio)",
  provide: async () => {
    const python = await provideDebianPython();
    if (typeof python === "string") return python;
    const generated = await generate();
    const path = [generated, SOURCES].join(":");
    return ["env", `PYTHONPATH=${path}`, "PYTHONDONTWRITEBYTECODE=1", python.python, join(SOURCES, "main.py")];
  },
};

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
    ["grpcio", PYTHON, "-c", "import grpc, google.protobuf"],
    ["protoc", "protoc", "--version"],
    ["grpc_python_plugin", "sh", "-c", "command -v grpc_python_plugin"],
  ] as const;
  const failed = await Promise.all(
    needs.map(async ([, file, ...args]) => (await execa(file, args, { reject: false, timeout: TIMEOUT_MS })).failed),
  );
  return needs.filter((_, index) => failed[index] === true).map(([name]) => name);
}

/** Modules of Python are no programs, which `npm test` would install before. */
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

/** The folder of the schema's Python modules. */
async function generate(): Promise<string> {
  const { stdout: version } = await execa("protoc", ["--version"], { timeout: TIMEOUT_MS });
  const key = await cacheKey([join(SOURCES, "rpc_status.proto")], [version, await schemaDigest()]);
  return cachedFolder(`python-${key}`, async (folder) => {
    // By way of descriptors: the packages come without the well-known types' sources, and buf has them.
    const images = [PROTO, SOURCES].map((module, index) => [module, join(folder, `${index}.binpb`)] as const);
    for (const [module, image] of images) await execa(BUF, ["build", module, "-o", image], { timeout: TIMEOUT_MS });
    const { stdout: plugin } = await execa("sh", ["-c", "command -v grpc_python_plugin"], { timeout: TIMEOUT_MS });
    const outputs = [`--python_out=${folder}`, `--grpc_python_out=${folder}`];
    const schema = [PROTO, SOURCES].flatMap((module) => globSync("**/*.proto", { cwd: module }));
    const descriptors = `--descriptor_set_in=${images.map(([, image]) => image).join(":")}`;
    await execa("protoc", [descriptors, ...outputs, `--plugin=protoc-gen-grpc_python=${plugin}`, ...schema], {
      timeout: TIMEOUT_MS,
    });
  });
}
