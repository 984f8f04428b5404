import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { cp, mkdir, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { startAgent } from "../fixtures/agent.ts";
import { issueCertificates, SERVER_NAME } from "../fixtures/certificates.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { vmmRelay, vmmSocket } from "../fixtures/vmm-socket.ts";
import { GO_ENVIRONMENT, provideGo, provideGrpcio } from "../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../..");
const PROTO: string = join(ROOT, "proto");
/** The schema's files, below proto. */
const SCHEMA: readonly string[] = globSync("svc/**/*.proto", { cwd: PROTO });
const document = readFileSync(join(ROOT, "docs/node/clients.md"), "utf8");
const TIMEOUT_MS: number = 500_000;

/** The programs of a language in docs/node/clients.md, in its order. */
function programs(language: string): string[] {
  return Array.from(document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms")), ([, code = ""]) => code);
}

/** The lines of shell before the first program of a language. */
function shellOf(language: string): string {
  const [above = ""] = document.split(`\`\`\`${language}\n`);
  return above.split("```sh\n").at(-1)?.split("```")[0] ?? "";
}

const ANSWER = "hello sandbox".toUpperCase();

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const vmmPath = directory.at("vm.sock");
const vmm = forAllTests(await vmmSocket(vmmPath, { host: "127.0.0.1", port: agent.port }));
const relay = forAllTests(await vmmRelay(vmmPath, 7071));
/** Where the programs find the agent: its port, and a relay to a VMM's socket. */
const WAYS = [`127.0.0.1:${agent.port}`, `127.0.0.1:${relay.port}`] as const;
const environment = {
  ADDRESS: WAYS[0],
  CREDENTIALS: agent.credentialsDir,
  SERVER_NAME,
  SVC_WORKLOAD_SOCKET: agent.workloadSocket,
};

describe("docs/node/clients.md", () => {
  test("the Python programs of docs/node/clients.md work over TCP and vsock", async (t) => {
    const toolchain = await provideGrpcio();
    if (typeof toolchain === "string") {
      t.skip(toolchain);
      return;
    }
    const { python, path } = toolchain;
    const generated = directory.at("python");
    await mkdir(generated);
    const outputs = [`--python_out=${generated}`, `--grpc_python_out=${generated}`];
    const words = ["-m", "grpc_tools.protoc", "-I", PROTO, ...outputs, ...SCHEMA, "google/rpc/error_details.proto"];
    await execa(python, words, { env: { PYTHONPATH: path }, timeout: TIMEOUT_MS });
    const env = { ...environment, PYTHONPATH: [generated, path].join(delimiter) };
    const [nodeAgent = "", workload = ""] = programs("python");
    for (const ADDRESS of WAYS) {
      const first = await execa(python, ["-c", nodeAgent], { env: { ...env, ADDRESS }, timeout: TIMEOUT_MS });
      assert.equal(first.stdout, `ready True\n${ANSWER}\nexit 0`);
    }
    assert.ok(vmm.asked.includes("CONNECT 7071"));
    const second = await execa(python, ["-c", workload], { env, timeout: TIMEOUT_MS });
    assert.match(second.stdout, /^idle since seconds: \d+\nnanos: \d+/);
  });

  test("the Go program of docs/node/clients.md builds and works over TCP and vsock", async (t) => {
    const toolchain = await provideGo();
    if (typeof toolchain === "string") {
      t.skip(toolchain);
      return;
    }
    const lines = shellOf("go").replace(/^go run \.$/m, "go vet . && go build -o program .");
    const made = directory.at("go");
    await cp(PROTO, join(made, "proto"), { recursive: true });
    await writeFile(join(made, "main.go"), programs("go")[0] ?? "");
    const PATH = [dirname(toolchain.go), process.env["PATH"]].join(delimiter);
    const building = { ...GO_ENVIRONMENT, PATH, DEBIAN_FRONTEND: "noninteractive" };
    await execa("sh", ["-euc", lines], { cwd: made, timeout: TIMEOUT_MS, env: building });
    const program = join(made, "program");
    for (const ADDRESS of WAYS) {
      const { stdout } = await execa(program, { env: { ...environment, ADDRESS }, timeout: TIMEOUT_MS });
      assert.equal(stdout, `ready true\n${ANSWER}\nexit 0`);
    }
    // Who has a certificate of another authority reads why it is refused.
    const stranger = directory.at("stranger");
    await mkdir(stranger);
    for (const name of ["ca.pem", "token"]) await cp(join(agent.credentialsDir, name), join(stranger, name));
    const { client } = await issueCertificates();
    await writeFile(join(stranger, "client.pem"), client.cert);
    await writeFile(join(stranger, "client.key"), client.key);
    const env = { ...environment, CREDENTIALS: stranger };
    const refused = await execa(program, { env, timeout: TIMEOUT_MS, reject: false });
    assert.match(refused.stderr, /remote error: tls: unknown certificate authority/);
  });

  test("no RPC's name collides with a method of tonic's generated clients", () => {
    const taken = "connect new with_origin with_interceptor send_compressed accept_compressed".split(" ");
    const methods = SCHEMA.flatMap((path) =>
      Array.from(readFileSync(join(PROTO, path), "utf8").matchAll(/^ *rpc (\w+)\(/gm), ([, name = ""]) => name),
    );
    const names = methods.map((name) => name.replace(/(?<!^)[A-Z]/g, "_$&").toLowerCase());
    assert.ok(names.includes("read_file") && names.includes("open"));
    const clashes = names.filter((name) => taken.includes(name));
    assert.deepEqual(clashes, []);
  });
});
