import assert from "node:assert/strict";
import { inspect } from "node:util";
import { describe, test } from "node:test";
import { Credentials, tokenDigest } from "../../../src/agent/config/index.ts";
import { credentialFolder, type CredentialFolder } from "./sandbox.ts";

function sourcesOf(folder: CredentialFolder, tokenFile: string): Parameters<typeof Credentials.load>[0] {
  const values = new Map([
    ["SVC_INSTANCE_TOKEN_FILE", tokenFile],
    ["SVC_TLS_CERT_FILE", folder.certFile],
    ["SVC_TLS_KEY_FILE", folder.keyFile],
    ["SVC_TLS_CLIENT_CA_FILE", folder.clientCaFile],
  ] as const);
  return { values, token: undefined };
}

async function load(folder: CredentialFolder, tokenFile: string): Promise<Credentials> {
  const { credentials, faults } = await Credentials.load(sourcesOf(folder, tokenFile));
  assert.deepEqual(faults, []);
  return credentials ?? assert.fail("no credentials");
}

function isToken(credentials: Credentials, candidate: string): boolean {
  return credentials.matchesToken(tokenDigest(Buffer.from(candidate)));
}

describe("Credentials", () => {
  test("match the token and nothing else", async (t) => {
    const folder = await credentialFolder(t);
    const credentials = await load(folder, await folder.write("token", `${folder.token}\n`));
    assert.equal(isToken(credentials, folder.token), true);
    for (const digest of [undefined, "", folder.token, `${tokenDigest(Buffer.from(folder.token))}, x`]) {
      assert.equal(credentials.matchesToken(digest), false, String(digest));
    }
    for (const other of ["", `${folder.token}x`, folder.token.slice(0, -1), folder.token.toUpperCase()]) {
      assert.equal(isToken(credentials, other), false, other);
    }
  });

  test("do not hold the token, only its digest", async (t) => {
    const folder = await credentialFolder(t);
    const value = Buffer.from(folder.token);
    const { credentials } = await Credentials.load({ values: new Map(), token: value });
    assert.ok(credentials);
    credentials.digestToken();
    assert.ok(value.every((byte) => byte === 0));
    assert.ok(isToken(credentials, folder.token));
    assert.ok(!inspect(credentials, { depth: 9, showHidden: true }).includes(folder.token));
  });

  test("keep the TLS material, checked once, while a reload finds the same bytes", async (t) => {
    const folder = await credentialFolder(t);
    let checks = 0;
    const accepts = (): boolean => ++checks > 0;
    const sources = sourcesOf(folder, await folder.write("token", folder.token));
    const { credentials } = await Credentials.load(sources, accepts);
    assert.ok(credentials);
    const before = credentials.tls;
    await folder.write("token", "rotated");
    await folder.write("ca.pem", await folder.read(folder.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.equal(credentials.tls, before);
    assert.equal(checks, 1);
    assert.equal(isToken(credentials, "rotated"), true);
    const next = await credentialFolder(t);
    await folder.write("ca.pem", await next.read(next.clientCaFile));
    assert.deepEqual(await credentials.reload(), []);
    assert.notEqual(credentials.tls, before);
    assert.equal(checks, 2);
  });

  test("stay as they were when a reload finds a fault", async (t) => {
    const folder = await credentialFolder(t);
    const credentials = await load(folder, await folder.write("token", folder.token));
    await folder.write("token", "rotated");
    await folder.write("server.key", "broken");
    assert.deepEqual(await credentials.reload(), [
      {
        variable: "SVC_TLS_KEY_FILE",
        problem: "names a file that is not a PEM private key without a passphrase",
      },
    ]);
    assert.equal(isToken(credentials, folder.token), true);
    assert.equal(isToken(credentials, "rotated"), false);
  });
});
