import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { execa } from "execa";
import { type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { GuestAgent } from "../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { SERVER_NAME } from "../fixtures/certificates.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { buildGoTool, provideGo } from "../fixtures/toolchains.ts";
import { buildGoSuite, GO_TOOLS } from "./go.ts";

const PROBE = "github.com/grpc-ecosystem/grpc-health-probe";
const grpcurl = await buildGoSuite("github.com/fullstorydev/grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl");
const healthProbe = await buildGoSuite(PROBE, PROBE);
/** The two tools, or why this machine cannot have them. */
const built = typeof grpcurl === "string" ? grpcurl : typeof healthProbe === "string" ? healthProbe : undefined;
const NEEDS = { skip: built ?? false } as const;

const agent = forAllTests(await startAgent({ process: { args: ["sleep", "600"] } }));

/** Runs grpcurl over mutual TLS with the token. Resolves with its output. */
async function curl(of: RunningAgent, ...words: readonly string[]): Promise<string> {
  const credential = (name: string): string => join(of.credentialsDir, name);
  const tls = ["-cacert", credential("ca.pem"), "-cert", credential("client.pem"), "-key", credential("client.key")];
  const options = [...tls, "-servername", SERVER_NAME, "-H", `svc-instance-token: ${of.token}`];
  // Options first; then the address, then the verb.
  const [data, rest] = words[0] === "-d" ? [words.slice(0, 2), words.slice(2)] : [[], words];
  const program = typeof grpcurl === "string" ? "" : grpcurl.program;
  const { stdout } = await execa(program, [...options, ...data, `127.0.0.1:${of.port}`, ...rest]);
  return stdout;
}

describe("grpcurl without a proto file", NEEDS, () => {
  it("grpcurl lists the agent's services without a proto file", async () => {
    const services = (await curl(agent, "list")).split("\n");
    for (const name of ["svc.guest.v1alpha1.GuestAgent", "grpc.health.v1.Health", "svc.guest.v1alpha1.FileTree"])
      assert.ok(services.includes(name), services.join());
  });

  it("grpcurl describes each service and its messages", async () => {
    for (const service of (await curl(agent, "list")).split("\n"))
      assert.match(await curl(agent, "describe", service), /^[\w.]+ is a service:/);
    assert.match(await curl(agent, "describe", "svc.guest.v1alpha1.HealthResponse"), /bool ready = 2;/);
  });

  it("grpcurl calls a method without a proto file", async () => {
    const answer = JSON.parse(await curl(agent, "svc.guest.v1alpha1.GuestAgent/Health")) as Record<string, unknown>;
    assert.deepEqual([answer["alive"], answer["ready"]], [true, true]);
    const request = JSON.stringify({ path: "/etc" });
    assert.match(await curl(agent, "-d", request, "svc.guest.v1alpha1.GuestAgent/StatPath"), /"FILE_TYPE_DIRECTORY"/);
  });
});

/** What a load of descriptors found. */
interface Loaded {
  /** Full names of the methods of each service. */
  readonly services: Readonly<Record<string, readonly string[]>>;
  readonly files: readonly string[];
}

describe("grpcui loads descriptors over mutual TLS with the token", NEEDS, async () => {
  const go = await provideGo();
  const load = async (token: string): Promise<Loaded> => {
    if (typeof go === "string") throw new Error(go);
    const program = await buildGoTool(go, GO_TOOLS, "./descriptor-load");
    const [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map((name) =>
      join(agent.credentialsDir, name),
    );
    const words = [`127.0.0.1:${agent.port}`, ca ?? "", certificate ?? "", key ?? "", SERVER_NAME, token];
    return JSON.parse((await execa(program, words)).stdout) as Loaded;
  };

  it("grpcui finds the agent's services, methods and proto files through reflection", async () => {
    const { services, files } = await load(agent.token);
    const expected = (await curl(agent, "list")).split("\n");
    assert.deepEqual(Object.keys(services).toSorted(), expected.toSorted());
    const { methods, typeName } = GuestAgent;
    assert.deepEqual(services[typeName]?.toSorted(), methods.map(({ name }) => `${typeName}.${name}`).toSorted());
    for (const name of Object.keys(services)) assert.ok((services[name]?.length ?? 0) > 0, name);
    for (const file of ["svc/guest/v1alpha1/exec.proto", "google/protobuf/timestamp.proto"])
      assert.ok(files.includes(file), files.join());
  });

  it("grpcui's reflection call fails with a wrong token", async () => {
    await assert.rejects(load("guess"), /Unauthenticated/);
  });
});

describe("grpc_health_probe", NEEDS, () => {
  /** The exit status of the probe: 0 serving, 4 unhealthy, 3 the call failed. */
  const probe = async (of: RunningAgent, token: string, ...words: readonly string[]): Promise<number | undefined> => {
    const credential = (name: string): string => join(of.credentialsDir, name);
    const options = [
      `-addr=127.0.0.1:${of.port}`,
      "-tls",
      `-tls-ca-cert=${credential("ca.pem")}`,
      `-tls-client-cert=${credential("client.pem")}`,
      `-tls-client-key=${credential("client.key")}`,
      `-tls-server-name=${SERVER_NAME}`,
      `-rpc-header=svc-instance-token:${token}`,
    ];
    const program = typeof healthProbe === "string" ? "" : healthProbe.program;
    return (await execa(program, [...options, ...words], { reject: false })).exitCode;
  };

  it("grpc_health_probe exits with 0 for a ready agent and its service GuestAgent", async () => {
    assert.equal(await probe(agent, agent.token), 0);
    assert.equal(await probe(agent, agent.token, "-service=svc.guest.v1alpha1.GuestAgent"), 0);
  });

  it("grpc_health_probe exits with 4 while the workload is not ready", async () => {
    const readyCmd = { args: ["false"] };
    await using unready = await startAgent({ process: { args: ["sleep", "600"], readyCmd } });
    assert.equal(await probe(unready, unready.token), 4);
  });

  it("grpc_health_probe fails for an unknown service and with a wrong token", async () => {
    assert.equal(await probe(agent, agent.token, "-service=nothing"), 3);
    assert.equal(await probe(agent, "guess"), 3);
  });
});
