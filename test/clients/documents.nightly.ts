import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { provideGrpcio } from "../fixtures/python-packages.ts";
import { goProgram, programs, PROTO, protoc, pythonProgram, SCHEMA, TIMEOUT_MS } from "./documented.ts";
import { provideDebianPython } from "./python.ts";

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

  test("says of the schema what is true: protoc needs no options for C++ and Java either", async (t) => {
    const python = await provideGrpcio();
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
