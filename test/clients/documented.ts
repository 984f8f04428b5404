import { globSync, readFileSync } from "node:fs";
import { cp, mkdir, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { execa } from "execa";
import { GO_ENVIRONMENT, provideGo } from "../fixtures/go-toolchain.ts";
import { provideGrpcio, type Python } from "../fixtures/python-packages.ts";

const ROOT = join(import.meta.dirname, "../..");
export const PROTO: string = join(ROOT, "proto");
/** The schema's files, below proto. */
export const SCHEMA: readonly string[] = globSync("svc/**/*.proto", { cwd: PROTO });
const document = readFileSync(join(ROOT, "docs/node/clients.md"), "utf8");
/** Versions of grpc-go and its generators. */
const GO_MODULE = join(import.meta.dirname, "go");
export const TIMEOUT_MS: number = 500_000;

/** A program that is ready to run, once for each environment; a text: why it cannot be made here. */
export interface Program {
  readonly command: readonly [file: string, ...args: string[]];
  readonly env: Readonly<Record<string, string>>;
}

/** The programs of a language in docs/node/clients.md, in its order. */
export function programs(language: string): string[] {
  return Array.from(document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms")), ([, code = ""]) => code);
}

/** Runs the protoc of grpcio-tools. */
export async function protoc(
  { python, path }: Python,
  args: readonly string[],
  search: string | undefined = process.env["PATH"],
): Promise<void> {
  await execa(python, ["-m", "grpc_tools.protoc", "-I", PROTO, ...args], {
    env: { PYTHONPATH: path, PATH: search },
    timeout: TIMEOUT_MS,
  });
}

/** A program in Python, with the newest grpcio and generated code in a new folder. */
export async function pythonProgram(folder: string, code: string): Promise<Program | string> {
  const python = await provideGrpcio();
  if (typeof python === "string") return python;
  await mkdir(folder);
  const outputs = [`--python_out=${folder}`, `--grpc_python_out=${folder}`];
  await protoc(python, [...outputs, ...SCHEMA, "google/rpc/error_details.proto"]);
  return { command: [python.python, "-c", code], env: { PYTHONPATH: [folder, python.path].join(delimiter) } };
}

/** A program in Go, vetted and built in a new folder. */
export async function goProgram(folder: string, code: string): Promise<Program | string> {
  const [toolchain, python] = [await provideGo(), await provideGrpcio()];
  if (typeof toolchain === "string") return toolchain;
  if (typeof python === "string") return python;
  const { go } = toolchain;
  await mkdir(folder);
  for (const name of ["go.mod", "go.sum"]) await cp(join(GO_MODULE, name), join(folder, name));
  await writeFile(join(folder, "main.go"), code);
  const options = { cwd: folder, timeout: TIMEOUT_MS, env: GO_ENVIRONMENT };
  await execa(go, ["mod", "edit", "-module", "example.com/node"], options);
  for (const generator of [
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
  ]) {
    await execa(go, ["build", "-o", `${folder}/bin/`, generator], options);
  }
  const search = [join(folder, "bin"), process.env["PATH"]].join(delimiter);
  await protoc(python, [`--go_out=${folder}`, `--go-grpc_out=${folder}`, ...SCHEMA], search);
  await execa(go, ["vet", "."], options);
  await execa(go, ["build", "-o", join(folder, "program"), "."], options);
  return { command: [join(folder, "program")], env: {} };
}
