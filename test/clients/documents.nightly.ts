import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { GO_ENVIRONMENT, provideGo } from "../fixtures/go-toolchain.ts";
import { provideGrpcio, type Python } from "../fixtures/python-packages.ts";
import { provideDebianPython } from "./python.ts";

const ROOT = join(import.meta.dirname, "../..");
const PROTO = join(ROOT, "proto");
const SCHEMA = globSync("svc/**/*.proto", { cwd: PROTO });
const document = readFileSync(join(ROOT, "docs/node/clients.md"), "utf8");
/** Versions of grpc-go and its generators. */
const GO_MODULE = join(import.meta.dirname, "go");
const ANSWER = "hello sandbox".toUpperCase();
const TIMEOUT_MS = 500_000;

/** The programs of a language, in the order of the document. */
function programs(language: string): string[] {
  return Array.from(document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms")), ([, code = ""]) => code);
}

/** Runs the protoc of grpcio-tools. */
async function protoc({ python, path }: Python, args: readonly string[], search = process.env["PATH"]): Promise<void> {
  await execa(python, ["-m", "grpc_tools.protoc", "-I", PROTO, ...args], {
    env: { PYTHONPATH: path, PATH: search },
    timeout: TIMEOUT_MS,
  });
}

describe("docs/node/clients.md", () => {
  let agent: RunningAgent;
  let folder: string;
  let python: Python | string;
  let environment: Record<string, string>;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "clients-"));
    agent = await startAgent();
    python = await provideGrpcio();
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
    if (typeof python === "string") {
      t.skip(python);
      return;
    }
    const generated = join(folder, "python");
    await mkdir(generated);
    const outputs = [`--python_out=${generated}`, `--grpc_python_out=${generated}`];
    await protoc(python, [...outputs, ...SCHEMA, "google/rpc/error_details.proto"]);
    const env = { ...environment, PYTHONPATH: [generated, python.path].join(delimiter) };
    const [nodeAgent = "", workload = ""] = programs("python");
    const first = await execa(python.python, ["-c", nodeAgent], { env, timeout: TIMEOUT_MS });
    assert.equal(first.stdout, `ready True\n${ANSWER}\nexit 0`);
    const second = await execa(python.python, ["-c", workload], { env, timeout: TIMEOUT_MS });
    assert.match(second.stdout, /^idle since seconds: \d+\nnanos: \d+/);
  });

  test("has a program in Go that works with grpc-go", async (t) => {
    const toolchain = await provideGo();
    const missing = [toolchain, python].find((provided) => typeof provided === "string");
    if (typeof toolchain === "string" || typeof python === "string") {
      t.skip(missing);
      return;
    }
    const { go } = toolchain;
    const module = join(folder, "go");
    await mkdir(module);
    for (const name of ["go.mod", "go.sum"]) await cp(join(GO_MODULE, name), join(module, name));
    await writeFile(join(module, "main.go"), programs("go")[0] ?? "");
    const options = { cwd: module, timeout: TIMEOUT_MS, env: GO_ENVIRONMENT };
    await execa(go, ["mod", "edit", "-module", "example.com/node"], options);
    for (const generator of [
      "google.golang.org/protobuf/cmd/protoc-gen-go",
      "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
    ]) {
      await execa(go, ["build", "-o", `${folder}/bin/`, generator], options);
    }
    const search = [join(folder, "bin"), process.env["PATH"]].join(delimiter);
    await protoc(python, [`--go_out=${module}`, `--go-grpc_out=${module}`, ...SCHEMA], search);
    // Only its status counts: it also reports what it downloads.
    await execa(go, ["vet", "."], options);
    const env = { ...options.env, ...environment };
    const { stdout } = await execa(go, ["run", "."], { ...options, env });
    assert.equal(stdout, `ready true\n${ANSWER}\nexit 0`);
    // Who has a certificate of another authority reads why it is refused.
    const stranger = join(folder, "stranger");
    await mkdir(stranger);
    for (const name of ["ca.pem", "token"]) await cp(join(agent.credentialsDir, name), join(stranger, name));
    const { client } = await issueCertificates();
    await writeFile(join(stranger, "client.pem"), client.cert);
    await writeFile(join(stranger, "client.key"), client.key);
    const refused = await execa(go, ["run", "."], {
      ...options,
      env: { ...env, CREDENTIALS: stranger },
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

  test("says of the schema what is true: protoc needs no options for C++ and Java either", async (t) => {
    if (typeof python === "string") {
      t.skip(python);
      return;
    }
    const generated = join(folder, "generated");
    await mkdir(generated);
    // grpcio-tools lacks these languages; Debian's protoc has them, and the descriptors stand in for Google's own
    // schemas.
    const descriptors = join(generated, "schema.binpb");
    await protoc(python, [`--descriptor_set_out=${descriptors}`, "--include_imports", ...SCHEMA]);
    const debian = await provideDebianPython();
    if (typeof debian === "string") {
      t.skip(debian);
      return;
    }
    await execa("protoc", [
      `--descriptor_set_in=${descriptors}`,
      `--java_out=${generated}`,
      `--cpp_out=${generated}`,
      ...SCHEMA,
    ]);
    assert.equal(globSync("svc/guest/v1alpha1/*.pb.h", { cwd: generated }).length, SCHEMA.length);
    for (const name of ["ExecFrame", "HealthResponse", "Process"]) {
      assert.ok(existsSync(join(generated, `svc/guest/v1alpha1/${name}.java`)), name);
    }
  });
});
