import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { GO_ENVIRONMENT, provideGo, provideGrpcio } from "../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../..");
const PROTO: string = join(ROOT, "proto");
/** The schema's files, below proto. */
const SCHEMA: readonly string[] = globSync("svc/**/*.proto", { cwd: PROTO });
const document = readFileSync(join(ROOT, "docs/node/clients.md"), "utf8");
const TIMEOUT_MS: number = 500_000;

/** A program that is ready to run, once for each environment; a text: why it cannot be made here. */
interface Program {
  readonly command: readonly [file: string, ...args: string[]];
  readonly env: Readonly<Record<string, string>>;
}

/** The programs of a language in docs/node/clients.md, in its order. */
function programs(language: string): string[] {
  return Array.from(document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms")), ([, code = ""]) => code);
}

/** The lines of shell before the first program of a language. */
function shellOf(language: string): string {
  const [above = ""] = document.split(`\`\`\`${language}\n`);
  return above.split("```sh\n").at(-1)?.split("```")[0] ?? "";
}

/** A program in Python, with the newest grpcio and generated code in a new folder. */
async function pythonProgram(folder: string, code: string): Promise<Program | string> {
  const python = await provideGrpcio();
  if (typeof python === "string") return python;
  await mkdir(folder);
  const outputs = [`--python_out=${folder}`, `--grpc_python_out=${folder}`];
  const words = ["-m", "grpc_tools.protoc", "-I", PROTO, ...outputs, ...SCHEMA, "google/rpc/error_details.proto"];
  await execa(python.python, words, { env: { PYTHONPATH: python.path }, timeout: TIMEOUT_MS });
  return { command: [python.python, "-c", code], env: { PYTHONPATH: [folder, python.path].join(delimiter) } };
}

/** A program in Go, made by the document's own lines in an empty folder, and vetted. */
async function goProgram(folder: string, code: string): Promise<Program | string> {
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

const ANSWER = "hello sandbox".toUpperCase();

describe("docs/node/clients.md", () => {
  let agent: RunningAgent;
  let folder: string;
  let environment: Record<string, string>;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "clients-"));
    agent = await startAgent();
    environment = {
      ADDRESS: `127.0.0.1:${agent.port}`,
      CREDENTIALS: agent.credentialsDir,
      SERVER_NAME,
      SVC_WORKLOAD_SOCKET: agent.workloadSocket,
    };
  });
  after(async () => {
    await agent[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test("has programs in Python that work with the newest grpcio", async (t) => {
    const [nodeAgent = "", workload = ""] = programs("python");
    const made = await pythonProgram(join(folder, "python"), nodeAgent);
    if (typeof made === "string") {
      t.skip(made);
      return;
    }
    const env = { ...environment, ...made.env };
    const [python, ...args] = made.command;
    const first = await execa(python, args, { env, timeout: TIMEOUT_MS });
    assert.equal(first.stdout, `ready True\n${ANSWER}\nexit 0`);
    const second = await execa(python, ["-c", workload], { env, timeout: TIMEOUT_MS });
    assert.match(second.stdout, /^idle since seconds: \d+\nnanos: \d+/);
  });

  test("has a program in Go that works with grpc-go", async (t) => {
    const made = await goProgram(join(folder, "go"), programs("go")[0] ?? "");
    if (typeof made === "string") {
      t.skip(made);
      return;
    }
    const [program] = made.command;
    const options = { env: environment, timeout: TIMEOUT_MS };
    const { stdout } = await execa(program, options);
    assert.equal(stdout, `ready true\n${ANSWER}\nexit 0`);
    // Who has a certificate of another authority reads why it is refused.
    const stranger = join(folder, "stranger");
    await mkdir(stranger);
    for (const name of ["ca.pem", "token"]) await cp(join(agent.credentialsDir, name), join(stranger, name));
    const { client } = await issueCertificates();
    await writeFile(join(stranger, "client.pem"), client.cert);
    await writeFile(join(stranger, "client.key"), client.key);
    const refused = await execa(program, {
      ...options,
      env: { ...environment, CREDENTIALS: stranger },
      reject: false,
    });
    assert.match(refused.stderr, /remote error: tls: unknown certificate authority/);
  });

  test("names no method as tonic's generated clients name a function of their own: they would not compile", () => {
    const taken = new Set([
      "connect",
      "new",
      "with_origin",
      "with_interceptor",
      "send_compressed",
      "accept_compressed",
    ]);
    const methods = SCHEMA.flatMap((path) =>
      Array.from(readFileSync(join(PROTO, path), "utf8").matchAll(/^ *rpc (\w+)\(/gm), ([, name = ""]) => name),
    );
    const names = methods.map((name) => name.replace(/(?<!^)[A-Z]/g, "_$&").toLowerCase());
    assert.ok(names.includes("read_file") && names.includes("open"));
    assert.deepEqual(
      names.filter((name) => taken.has(name)),
      [],
    );
  });
});
