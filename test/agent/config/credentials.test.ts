import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { describe, it, test } from "node:test";
import { Credentials, tokenDigest } from "../../../src/agent/config/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { testFolder } from "../../fixtures/files.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { credentialFolder, type CredentialFolder, readFiles } from "./sandbox.ts";

function sourcesOf(folder: CredentialFolder, tokenFile: string): Parameters<typeof Credentials.load>[0] {
  const values = new Map([
    ["SVC_INSTANCE_TOKEN_FILE", tokenFile],
    ["SVC_TLS_CERT_FILE", folder.certFile],
    ["SVC_TLS_KEY_FILE", folder.keyFile],
    ["SVC_TLS_CLIENT_CA_FILE", folder.clientCaFile],
  ] as const);
  return { values, token: undefined };
}

describe("Credentials", () => {
  test("Credentials.reload keeps the checked TLS material if the files are unchanged", async () => {
    await using folder = await credentialFolder();
    let checks = 0;
    const accepts = (): boolean => ++checks > 0;
    const sources = sourcesOf(folder, await folder.write("token", folder.token));
    const { value: credentials } = await Credentials.load(sources, readFiles, accepts);
    assert.ok(credentials);
    const before = credentials.tls;
    await folder.write("token", "rotated");
    await folder.write("ca.pem", await readFile(folder.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.equal(credentials.tls, before);
    assert.equal(checks, 1);
    assert.equal(credentials.matchesToken(tokenDigest(Buffer.from("rotated"))), true);
    await using next = await credentialFolder();
    await folder.write("ca.pem", await readFile(next.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.notEqual(credentials.tls, before);
    assert.equal(checks, 2);
  });
});

// libuv starts as many threads as are set when it is first used: reading the token must not come before.
test("an agent with a token file starts the usual number of threads", async () => {
  await using folder = await credentialFolder();
  const env = { SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: await folder.write("token", folder.token) };
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
    it(`the agent exits with 78 and names ${variable} if its file system hangs`, async () => {
      await using folder = await testFolder();
      const hung = folder.at("hung");
      await using _mount = await fuseMount("hanging_mount", hung);
      const token = variable === "SVC_INSTANCE_TOKEN_FILE" ? { SVC_INSTANCE_TOKEN: undefined } : {};
      await using agent = await startAgent({ env: { ...token, [variable]: `${hung}/file` }, awaitListening: false });
      assert.deepEqual(await agent.exited, { code: 78, signal: null });
      const words = `guest-agent: ${variable}: names a file whose file system does not respond (ETIMEDOUT)\n`;
      assert.equal(agent.output.stderr, words);
    });
  }

  it("the agent exits with 78 on a hung file although stderr is full", async () => {
    await using folder = await testFolder();
    const hung = folder.at("hung");
    await using _mount = await fuseMount("hanging_mount", hung);
    const fill = 'mkfifo full; exec 3<>full; dd if=/dev/zero of=full bs=4k count=16 2>/dev/null; exec 2>&3; exec "$@"';
    await using agent = await startAgent({
      env: { SVC_TLS_KEY_FILE: `${hung}/file` },
      through: ["sh", "-c", `cd ${folder.path}; ${fill}`, "sh"],
      awaitListening: false,
    });
    assert.deepEqual(await agent.exited, { code: 78, signal: null });
  });
});
