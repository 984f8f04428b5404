import assert from "node:assert/strict";
import { copyFile, mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execa } from "execa";
import { type AgentCommand, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { cachedFolder, cacheKey } from "../fixtures/build-cache.ts";
import { relayTo } from "../fixtures/byte-relay.ts";
import { GO_ENVIRONMENT, provideGo } from "../fixtures/go-toolchain.ts";
import { BROKEN, refusedIdentities } from "../fixtures/refused-clients.ts";
import { provideDebianPython } from "./python.ts";

/*
 * gRPC clients that the agent refuses, in four languages; test/agent/server/refused-clients.test.ts has those of Node.
 * None of their calls has a deadline: each ends because its connection does.
 */

const SOURCES = join(import.meta.dirname, "refused");
const LIMIT_MS = 500_000;

async function has(program: string): Promise<boolean> {
  return !(await execa(program, ["--version"], { reject: false, timeout: LIMIT_MS })).failed;
}

/** Builds a client once for the same sources. */
async function built(make: string, build: (folder: string) => Promise<void>): Promise<string> {
  return cachedFolder(`refused-${make}-${await cacheKey([SOURCES])}`, build);
}

/** Each returns the command, or the reason to skip. */
const CLIENTS: Readonly<Record<string, () => Promise<AgentCommand | string>>> = {
  "grpc-go": async () => {
    const toolchain = await provideGo();
    if (typeof toolchain === "string") return toolchain;
    const folder = await built("go", async (place) => {
      for (const name of ["go.mod", "go.sum"]) await copyFile(join(SOURCES, "../go", name), join(place, name));
      await copyFile(join(SOURCES, "client.go"), join(place, "client.go"));
      const options = { cwd: place, timeout: LIMIT_MS, env: GO_ENVIRONMENT };
      await execa(toolchain.go, ["build", "-mod=mod", "-o", "client", "."], options);
    });
    return [join(folder, "client")];
  },
  grpcio: async () => {
    const python = await provideDebianPython();
    return typeof python === "string" ? python : [python.python, join(SOURCES, "client.py")];
  },
  tonic: async () => {
    if (!(await has("cargo"))) return "needs cargo";
    const folder = await built("rust", async (place) => {
      await mkdir(join(place, "src"));
      for (const name of ["Cargo.toml", "src/main.rs"]) await copyFile(join(SOURCES, name), join(place, name));
      await execa("cargo", ["build", "--quiet"], { cwd: place, timeout: LIMIT_MS });
      await rename(join(place, "target/debug/client"), join(place, "client"));
    });
    return [join(folder, "client")];
  },
  "grpc-java": async () => {
    if (!(await has("java")) || !(await has("mvn"))) return "needs java and mvn (Debian: default-jdk-headless maven)";
    const folder = await built("java", async (place) => {
      const goal = ["dependency:copy-dependencies", `-DoutputDirectory=${place}`];
      await execa("mvn", ["-q", "-B", "-f", join(SOURCES, "pom.xml"), ...goal], { timeout: LIMIT_MS });
    });
    return ["java", "-cp", join(folder, "*"), join(SOURCES, "Client.java")];
  },
};

for (const [make, provide] of Object.entries(CLIENTS))
  describe(`a refused client of ${make}`, () => {
    let agent: RunningAgent;
    let identities: Awaited<ReturnType<typeof refusedIdentities>>;
    before(async () => {
      agent = await startAgent();
      identities = await refusedIdentities(agent.certificates);
    });
    after(async () => {
      await agent[Symbol.asyncDispose]();
    });

    for (const kind of ["none", "expired", "of another authority", "for servers"] as const)
      test(`(${kind}) ends its call on one connection`, async (t) => {
        const command = await provide();
        if (typeof command === "string") {
          t.skip(command);
          return;
        }
        const { cert, key } = identities[kind];
        const [file, ...args] = command;
        await using relay = await relayTo({ port: agent.port, host: "127.0.0.1" });
        const { stdout } = await execa(file, [...args, `127.0.0.1:${relay.port}`], {
          env: { CA: agent.certificates.ca, CERTIFICATE: cert, KEY: key },
          timeout: LIMIT_MS,
        });
        t.diagnostic(stdout);
        assert.ok(BROKEN.has(Number.parseInt(stdout, 10)), stdout);
        assert.equal(relay.dialled, 1);
      });
  });
