import assert from "node:assert/strict";
import { inspect } from "node:util";
import { describe, test } from "node:test";
import { Credentials, tokenDigest } from "../../../src/agent/config/index.ts";
import { credentialFolder, type CredentialFolder } from "./sandbox.ts";

async function load(folder: CredentialFolder, tokenFile: string): Promise<Credentials> {
  const { credentials, faults } = await Credentials.load({
    token: { file: tokenFile },
    tls: { cert: folder.certFile, key: folder.keyFile, clientCa: folder.clientCaFile },
  });
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
    const { credentials } = await Credentials.load({
      token: { value },
      tls: { cert: undefined, key: undefined, clientCa: undefined },
    });
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
    const tls = { cert: folder.certFile, key: folder.keyFile, clientCa: folder.clientCaFile };
    const token = { file: await folder.write("token", folder.token) };
    const { credentials } = await Credentials.load({ token, tls }, accepts);
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
