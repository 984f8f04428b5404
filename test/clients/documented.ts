import { globSync, readFileSync } from "node:fs";
import { cp, mkdir, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { execa } from "execa";
import { GO_ENVIRONMENT, provideGo } from "../fixtures/go-toolchain.ts";
import { provideGrpcio, type Python } from "../fixtures/python-packages.ts";

const ROOT = join(import.meta.dirname, "../..");
export const PROTO: string = join(ROOT, "proto");
/** The schema's files, below proto. */
export const SCHEMA: readonly string[] = globSync("svc/**/*.proto", { cwd: PROTO });
const document = readFileSync(join(ROOT, "docs/node/clients.md"), "utf8");
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

/** The lines of shell before the first program of a language. */
function shellOf(language: string): string {
  const [before = ""] = document.split(`\`\`\`${language}\n`);
  return before.split("```sh\n").at(-1)?.split("```")[0] ?? "";
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

/** A program in Go, made by the document's own lines in an empty folder, and vetted. */
export async function goProgram(folder: string, code: string): Promise<Program | string> {
  const toolchain = await provideGo();
  if (typeof toolchain === "string") return toolchain;
  const lines = shellOf("go").replace(/^go run \.$/m, "go vet . && go build -o program .");
  await mkdir(folder);
  await cp(PROTO, join(folder, "proto"), { recursive: true });
  await writeFile(join(folder, "main.go"), code);
  const search = [dirname(toolchain.go), process.env["PATH"]].join(delimiter);
  const env = { ...GO_ENVIRONMENT, PATH: search, DEBIAN_FRONTEND: "noninteractive" };
  await execa("sh", ["-euc", lines], { cwd: folder, timeout: TIMEOUT_MS, env });
  return { command: [join(folder, "program")], env: {} };
}
