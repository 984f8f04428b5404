// Import reflect-metadata before the certificate library, whose dependency injection requires it.
import "reflect-metadata";
import { randomBytes, webcrypto } from "node:crypto";
import * as x509 from "@peculiar/x509";

/** Certificates of one instance, as PEM. The CA's private key is discarded, so that no more certificates can be issued. */
export interface InstanceCertificates {
  readonly ca: string;
  readonly server: PemPair;
  readonly client: PemPair;
}

/** A certificate and its private key (PKCS #8), as PEM. */
interface PemPair {
  readonly cert: string;
  readonly key: string;
}

/** The period in which certificates are valid. */
export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
}

const KEY_ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/**
 * Issues a CA for one instance, and two certificates that are signed by the CA. The server's certificate (serverAuth)
 * is valid for `serverName`, `localhost` and the loopback addresses; the client's certificate is only for clients
 * (clientAuth).
 */
export async function issueCertificates(serverName: string, validity: Validity): Promise<InstanceCertificates> {
  const authority = await generateKeys();
  const issuer = `CN=guest-agent instance ${randomBytes(8).toString("hex")}`;
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    name: issuer,
    serialNumber: serialNumber(),
    ...validity,
    keys: authority,
    signingAlgorithm: KEY_ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(authority.publicKey),
    ],
  });
  const leaf = async (name: string, extensions: readonly x509.Extension[]): Promise<PemPair> => {
    const keys = await generateKeys();
    const certificate = await x509.X509CertificateGenerator.create({
      subject: `CN=${name}`,
      issuer,
      serialNumber: serialNumber(),
      ...validity,
      publicKey: keys.publicKey,
      signingKey: authority.privateKey,
      signingAlgorithm: KEY_ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
        await x509.AuthorityKeyIdentifierExtension.create(authority.publicKey),
        ...extensions,
      ],
    });
    const key = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
    return { cert: pem(certificate), key: `${x509.PemConverter.encode(key, "PRIVATE KEY")}\n` };
  };
  return {
    ca: pem(ca),
    server: await leaf("guest-agent server", [
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension([
        { type: "dns", value: serverName },
        { type: "dns", value: "localhost" },
        { type: "ip", value: "127.0.0.1" },
        { type: "ip", value: "::1" },
      ]),
    ]),
    client: await leaf("guest-agent client", [new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.clientAuth])]),
  };
}

function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(KEY_ALGORITHM, true, ["sign", "verify"]);
}

function pem(certificate: x509.X509Certificate): string {
  return `${certificate.toString("pem")}\n`;
}

/** A positive serial number with 127 random bits (RFC 5280, 4.1.2.2). */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0] ?? 0) & 0x7f;
  return bytes.toString("hex");
}
