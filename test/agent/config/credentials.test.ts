import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { describe, it, test } from "node:test";
import { Credentials, tokenDigest } from "../../../src/agent/config/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { credentialDirectory, type CredentialDirectory, readFiles } from "./sandbox.ts";

function sourcesOf(directory: CredentialDirectory, tokenFile: string): Parameters<typeof Credentials.load>[0] {
  const values = new Map([
    ["SVC_INSTANCE_TOKEN_FILE", tokenFile],
    ["SVC_TLS_CERT_FILE", directory.certFile],
    ["SVC_TLS_KEY_FILE", directory.keyFile],
    ["SVC_TLS_CLIENT_CA_FILE", directory.clientCaFile],
  ] as const);
  return { values, token: undefined };
}

describe("Credentials", () => {
  test("Credentials.reload checks TLS material again only if its files have changed", async () => {
    await using directory = await credentialDirectory();
    let checks = 0;
    const accepts = (): boolean => ++checks > 0;
    const sources = sourcesOf(directory, await directory.write("token", directory.token));
    const { value: credentials } = await Credentials.load(sources, readFiles, accepts);
    assert.ok(credentials);
    const before = credentials.tls;
    await directory.write("token", "rotated");
    await directory.write("ca.pem", await readFile(directory.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.equal(credentials.tls, before);
    assert.equal(checks, 1);
    assert.equal(credentials.matchesToken(tokenDigest(Buffer.from("rotated"))), true);
    await using next = await credentialDirectory();
    await directory.write("ca.pem", await readFile(next.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.notEqual(credentials.tls, before);
    assert.equal(checks, 2);
  });
});

// libuv starts as many threads as are set when it is first used: reading the token must not come before.
test("reading the token from a file leaves the agent's number of threads unchanged", async () => {
  await using directory = await credentialDirectory();
  const env = {
    SVC_INSTANCE_TOKEN: undefined,
    SVC_INSTANCE_TOKEN_FILE: await directory.write("token", directory.token),
  };
  await using byFile = await startAgent({ env, awaitListening: true });
  await using byValue = await startAgent({ awaitListening: true });
  // V8 may start or end one of its own meanwhile.
  const counted = (): number[] => [byFile, byValue].map(({ pid }) => readdirSync(`/proc/${pid}/task`).length);
  await until(
    () => new Set(counted()).size === 1,
    () => `threads: ${counted().join(", ")}`,
  );
  assert.ok(Math.min(...counted()) > 20);
});

describe("a start with a file on a file system that never answers", { concurrency: true, ...NEEDS_FUSE }, () => {
  for (const variable of ["SVC_TLS_KEY_FILE", "SVC_INSTANCE_TOKEN_FILE", "SVC_PROCESS_SPEC_FILE"]) {
    it(`the agent exits with 78 and names ${variable} if its file hangs`, async () => {
      await using directory = await testDirectory();
      const hung = directory.at("hung");
      await using _mount = await fuseMount("hanging_mount", hung);
      const token = variable === "SVC_INSTANCE_TOKEN_FILE" ? { SVC_INSTANCE_TOKEN: undefined } : {};
      await using agent = await startAgent({ env: { ...token, [variable]: `${hung}/file` }, awaitListening: false });
      assert.deepEqual(await agent.exited, { code: 78, signal: null });
      const words = `guest-agent: ${variable}: names a file whose file system does not respond (ETIMEDOUT)\n`;
      assert.equal(agent.output.stderr, words);
    });
  }

  it("the agent exits with 78 if a TLS file hangs and stderr is full", async () => {
    await using directory = await testDirectory();
    const hung = directory.at("hung");
    await using _mount = await fuseMount("hanging_mount", hung);
    const fill = 'mkfifo full; exec 3<>full; dd if=/dev/zero of=full bs=4k count=16 2>/dev/null; exec 2>&3; exec "$@"';
    await using agent = await startAgent({
      env: { SVC_TLS_KEY_FILE: `${hung}/file` },
      through: ["sh", "-c", `cd ${directory.path}; ${fill}`, "sh"],
      awaitListening: false,
    });
    assert.deepEqual(await agent.exited, { code: 78, signal: null });
  });
});
