import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { type DropFileCache, readCredentialFile } from "./credential-file.ts";
import type { BootstrapFault } from "./faults.ts";

/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  /** The server's certificate, followed by intermediate ones if any. */
  readonly cert: Buffer;
  /** Its private key. */
  readonly key: Buffer;
  /** The authorities whose client certificates are accepted. */
  readonly clientCa: Buffer;
}

/** Paths of the three TLS files; undefined: not given. */
export interface TlsFiles {
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly clientCa: string | undefined;
}

/**
 * Reads those TLS files that are given and checks that a listener could start with them. Material only when all three
 * are there and without faults.
 */
export async function readTlsMaterial(
  files: TlsFiles,
  dropFileCache?: DropFileCache,
): Promise<{ material: TlsMaterial | undefined; faults: BootstrapFault[] }> {
  const [cert, key, clientCa] = await Promise.all([
    readPem(files.cert, firstCertificate, "is not a PEM certificate", dropFileCache),
    readPem(files.key, createPrivateKey, "is not a PEM private key without a passphrase", dropFileCache),
    readPem(files.clientCa, firstCertificate, "is not a PEM certificate", dropFileCache),
  ]);
  const faults: BootstrapFault[] = [];
  const report = (variable: BootstrapFault["variable"], problem: string | undefined): void => {
    if (problem !== undefined) faults.push({ variable, problem });
  };
  report("SVC_TLS_CERT_FILE", cert.problem);
  report("SVC_TLS_KEY_FILE", key.problem ?? mismatch(cert.value, key.value));
  report("SVC_TLS_CLIENT_CA_FILE", clientCa.problem);
  if (faults.length > 0 || cert.bytes === undefined || key.bytes === undefined || clientCa.bytes === undefined) {
    return { material: undefined, faults };
  }
  const material: TlsMaterial = { cert: cert.bytes, key: key.bytes, clientCa: clientCa.bytes };
  report("SVC_TLS_CERT_FILE", opensslRefusal(material));
  return { material: faults.length === 0 ? material : undefined, faults };
}

/** A PEM file and what is in it; nothing at all when none was given. */
interface PemFile<Value> {
  readonly bytes?: Buffer;
  readonly value?: Value;
  readonly problem?: string;
}

async function readPem<Value>(
  path: string | undefined,
  parse: (pem: Buffer) => Value,
  problem: string,
  dropFileCache: DropFileCache | undefined,
): Promise<PemFile<Value>> {
  if (path === undefined) return {};
  const file = await readCredentialFile(path, dropFileCache);
  if ("problem" in file) return file;
  try {
    return { bytes: file.bytes, value: parse(file.bytes) };
  } catch {
    return { problem: `names a file that ${problem}` };
  }
}

/** X509Certificate also takes DER, which the listener would not. */
function firstCertificate(pem: Buffer): X509Certificate {
  if (!pem.includes("-----BEGIN")) throw new TypeError("not PEM");
  return new X509Certificate(pem);
}

function mismatch(certificate: X509Certificate | undefined, key: KeyObject | undefined): string | undefined {
  if (certificate === undefined || key === undefined || certificate.checkPrivateKey(key)) return undefined;
  return "does not belong to the certificate of SVC_TLS_CERT_FILE";
}

/** What only OpenSSL finds: a broken intermediate certificate, a key too small for its security level. */
function opensslRefusal(material: TlsMaterial): string | undefined {
  try {
    createSecureContext({ cert: material.cert, key: material.key, ca: material.clientCa, minVersion: "TLSv1.3" });
    return undefined;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
    return `OpenSSL refuses the three TLS files together${code}`;
  }
}
