import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { Credentials, tokenDigest } from "../../../src/agent/config/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
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

function isToken(credentials: Credentials, candidate: string): boolean {
  return credentials.matchesToken(tokenDigest(Buffer.from(candidate)));
}

describe("Credentials", () => {
  test("keep the TLS material, checked once, while a reload finds the same bytes", async () => {
    await using folder = await credentialFolder();
    let checks = 0;
    const accepts = (): boolean => ++checks > 0;
    const sources = sourcesOf(folder, await folder.write("token", folder.token));
    const { value: credentials } = await Credentials.load(sources, readFiles, accepts);
    assert.ok(credentials);
    const before = credentials.tls;
    await folder.write("token", "rotated");
    await folder.write("ca.pem", await folder.read(folder.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.equal(credentials.tls, before);
    assert.equal(checks, 1);
    assert.equal(isToken(credentials, "rotated"), true);
    await using next = await credentialFolder();
    await folder.write("ca.pem", await next.read(next.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.notEqual(credentials.tls, before);
    assert.equal(checks, 2);
  });
});

// libuv starts as many threads as are set when it is first used: reading the token must not come before.
test("an agent with its token in a file has all the threads that file calls need", async () => {
  await using folder = await credentialFolder();
  const env = { SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: await folder.write("token", folder.token) };
  await using byFile = await startAgent({ env, awaitListening: true });
  await using byValue = await startAgent({ awaitListening: true });
  const [threads, usual] = [byFile, byValue].map(({ pid }) => readdirSync(`/proc/${pid}/task`).length);
  assert.equal(threads, usual);
  assert.ok(threads !== undefined && threads > 20);
});
