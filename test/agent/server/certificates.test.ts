// The certificate library's injector wants this polyfill before it is loaded.
import "reflect-metadata";
import assert from "node:assert/strict";
import { randomBytes, webcrypto } from "node:crypto";
import { describe, test } from "node:test";
import * as x509 from "@peculiar/x509";
import { connect, GuestError } from "../../../src/node/client/index.ts";
import { type AgentOptions, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";

const { subtle } = webcrypto;
const { serverAuth, clientAuth } = x509.ExtendedKeyUsage;
const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const RSA = {
  name: "RSASSA-PKCS1-v1_5",
  hash: "SHA-256",
  publicExponent: new Uint8Array([1, 0, 1]),
  modulusLength: 2048,
};
const DAY_MS = 86_400_000;

/** A certificate with its key, and the chain to send, itself first. */
interface Issued {
  readonly certificate: x509.X509Certificate;
  readonly keys: webcrypto.CryptoKeyPair;
  readonly pem: string;
  readonly chain: string;
  readonly key: string;
}

interface Wish {
  readonly issuer?: Issued;
  readonly usages?: readonly string[];
  readonly algorithm?: webcrypto.Algorithm;
  readonly isAuthority?: boolean;
  /** Default: new ones. */
  readonly keys?: webcrypto.CryptoKeyPair;
}

async function issue(wish: Wish): Promise<Issued> {
  const { issuer, usages = [], algorithm = P256, isAuthority = false } = wish;
  const keys =
    wish.keys ?? ((await subtle.generateKey(algorithm, true, ["sign", "verify"])) as webcrypto.CryptoKeyPair);
  const subject = `C=DE, O=Some Company, OU=Sandboxes, CN=${randomBytes(8).toString("hex")}`;
  const certificate = await x509.X509CertificateGenerator.create({
    subject,
    issuer: issuer?.certificate.subject ?? subject,
    publicKey: keys.publicKey,
    signingKey: (issuer ?? { keys }).keys.privateKey,
    signingAlgorithm: wish.keys !== undefined || issuer === undefined ? algorithm : P256,
    notBefore: new Date(Date.now() - DAY_MS),
    notAfter: new Date(Date.now() + DAY_MS),
    extensions: [
      new x509.BasicConstraintsExtension(isAuthority, undefined, true),
      ...(usages.length === 0 ? [] : [new x509.ExtendedKeyUsageExtension([...usages])]),
      new x509.SubjectAlternativeNameExtension([{ type: "dns", value: SERVER_NAME }]),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature | x509.KeyUsageFlags.keyCertSign),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create((issuer ?? { keys }).keys.publicKey),
    ],
  });
  const pem = `${certificate.toString("pem")}\n`;
  const key = x509.PemConverter.encode(await subtle.exportKey("pkcs8", keys.privateKey), "PRIVATE KEY");
  return {
    certificate,
    keys,
    pem,
    chain: issuer?.certificate.issuer === issuer?.certificate.subject ? pem : `${pem}${issuer?.chain}`,
    key,
  };
}

const root = await issue({ isAuthority: true });
const other = await issue({ isAuthority: true });
const middle = await issue({ issuer: root, isAuthority: true });
const server = await issue({ issuer: root, usages: [serverAuth] });
const client = await issue({ issuer: root, usages: [clientAuth] });
const below = await issue({ issuer: middle, usages: [clientAuth] });

/** An agent with a certificate, and the authority of its clients. */
function start(clientCa: string, own: Issued = server, options: AgentOptions = {}): Promise<RunningAgent> {
  const certificates = {
    ca: clientCa,
    server: { cert: own.chain, key: own.key },
    client: { cert: "", key: "" },
    issueClient: () => Promise.reject(new Error("the tests issue their own")),
  };
  return startAgent({ certificates, ...options });
}

/** The agent's answer to Health with a client's certificate. */
async function ask(agent: RunningAgent, own: Issued, certPem = own.chain): Promise<"answered" | "refused"> {
  using guest = connect({
    address: `127.0.0.1:${agent.port}`,
    caPem: root.pem,
    certPem,
    keyPem: own.key,
    serverName: SERVER_NAME,
    token: agent.token,
  });
  return await guest.health({ timeoutMs: 60_000 }).then(
    () => "answered",
    (error: unknown) => {
      assert.ok(
        error instanceof GuestError && ["PERMISSION_DENIED", "UNAVAILABLE"].includes(error.status),
        String(error),
      );
      return "refused";
    },
  );
}

describe("certificates of an authority of one's own", () => {
  test("of all kinds of keys serve, on both sides", async () => {
    for (const algorithm of [
      { name: "ECDSA", namedCurve: "P-384", hash: "SHA-384" },
      { name: "ECDSA", namedCurve: "P-521", hash: "SHA-512" },
      { name: "Ed25519" },
      RSA,
    ]) {
      const own = await issue({ issuer: root, usages: [serverAuth], algorithm });
      await using agent = await start(root.pem, own);
      assert.equal(await ask(agent, await issue({ issuer: root, usages: [clientAuth], algorithm })), "answered");
    }
  });

  test("need no extended key usage, but must not have another one", async () => {
    await using agent = await start(root.pem, await issue({ issuer: root }));
    assert.equal(await ask(agent, await issue({ issuer: root })), "answered");
    assert.equal(await ask(agent, await issue({ issuer: root, usages: [serverAuth, clientAuth] })), "answered");
    assert.equal(await ask(agent, server), "refused");
    await using wrong = await start(root.pem, client);
    assert.equal(await ask(wrong, client), "refused");
  });

  test("may hang below an intermediate one that either side sends along", async () => {
    await using agent = await start(root.pem, await issue({ issuer: middle, usages: [serverAuth] }));
    assert.equal(await ask(agent, below), "answered");
    assert.equal(await ask(agent, below, below.pem), "refused");
  });

  test("may hang below an intermediate authority that the agent trusts without its root", async () => {
    await using agent = await start(middle.pem);
    assert.equal(await ask(agent, below), "answered");
    assert.equal(await ask(agent, below, below.pem), "answered");
    assert.equal(await ask(agent, client), "refused");
  });

  test("may be three of RSA-4096 with their root, and more than that is refused with the limit's name", async () => {
    const algorithm = { ...RSA, modulusLength: 4_096 };
    const keys = await subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const large = { algorithm, keys };
    const top = await issue({ ...large, isAuthority: true });
    const between = await issue({ ...large, issuer: top, isAuthority: true });
    const own = await issue({ ...large, issuer: between, usages: [clientAuth] });
    await using agent = await start(top.pem);
    assert.equal(await ask(agent, own, own.chain + top.pem), "answered");
    assert.equal(await ask(agent, own, own.chain + top.pem + between.pem), "refused");
    await agent.logged("connection_refused", ({ reason }) => /certificates may have 5\.5 KiB/.test(String(reason)));
  });

  test("may be of any of several authorities", async () => {
    await using agent = await start(other.pem + middle.pem);
    assert.equal(await ask(agent, below), "answered");
    assert.equal(await ask(agent, await issue({ issuer: other, usages: [clientAuth] })), "answered");
    assert.equal(await ask(agent, client), "refused");
  });
});
