import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, test } from "node:test";
import { createSecureContext } from "node:tls";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { addon } from "../../fixtures/spawning.ts";

const { ca, server, client } = await issueCertificates();
const strangers = await issueCertificates();

function accepts(cert: string, key: string, clientCa: string): boolean {
  return addon.acceptsTlsMaterial(Buffer.from(cert), Buffer.from(key), Buffer.from(clientCa));
}

function together(...pems: readonly string[]): string {
  return pems.join("\n");
}

function encryptedKey(): string {
  return generateKeyPairSync("ec", {
    namedCurve: "P-256",
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "not the agent's" },
  }).privateKey;
}

describe("TLS material tried by the addon", () => {
  test("is accepted when a server can use it, with intermediate certificates and several authorities too", () => {
    assert.equal(accepts(server.cert, server.key, ca), true);
    assert.equal(accepts(together(server.cert, ca), server.key, together(ca, strangers.ca)), true);
    createSecureContext({
      cert: together(server.cert, ca),
      key: server.key,
      ca: together(ca, strangers.ca),
      minVersion: "TLSv1.3",
    });
  });

  test("is refused for whatever Node's own checks would have to explain", () => {
    const broken = ca.replace(/[A-Za-z]{8}/, "!!!!!!!!");
    const refused: readonly (readonly [string, string, string, string])[] = [
      ["another's key", server.cert, client.key, ca],
      ["no certificate", "", server.key, ca],
      ["a key for a certificate", server.key, server.key, ca],
      ["a broken intermediate certificate", together(server.cert, broken), server.key, ca],
      ["no key", server.cert, "", ca],
      ["a key with a passphrase", server.cert, encryptedKey(), ca],
      ["no authority", server.cert, server.key, ""],
      ["a broken authority", server.cert, server.key, broken],
      ["a broken second authority", server.cert, server.key, together(ca, broken)],
    ];
    for (const [what, cert, key, clientCa] of refused) assert.equal(accepts(cert, key, clientCa), false, what);
  });

  test("leaves no error behind for whoever uses OpenSSL next", () => {
    assert.equal(accepts("nothing", "nothing", "nothing"), false);
    createSecureContext({ cert: server.cert, key: server.key, ca });
    assert.equal(accepts(server.cert, server.key, ca), true);
  });
});
