import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { BootstrapFile } from "./files.ts";
import type { BootstrapFault } from "./variables.ts";

/** The three TLS files as they were read; undefined: not given. */
export interface ReadTlsFiles {
  readonly cert: BootstrapFile | undefined;
  readonly key: BootstrapFile | undefined;
  readonly clientCa: BootstrapFile | undefined;
}

/** Returns the faults that keep a listener from starting with these files. A missing file is none. */
export function tlsFaults(files: ReadTlsFiles): BootstrapFault[] {
  const cert = parse(files.cert, firstCertificate, "is not a PEM certificate");
  const key = parse(files.key, createPrivateKey, "is not a PEM private key without a passphrase");
  const clientCa = parse(files.clientCa, firstCertificate, "is not a PEM certificate");
  const faults: BootstrapFault[] = [];
  const report = (variable: BootstrapFault["variable"], problem: string | undefined): void => {
    if (problem !== undefined) faults.push({ variable, problem });
  };
  report("SVC_TLS_CERT_FILE", cert.problem);
  report("SVC_TLS_KEY_FILE", key.problem ?? mismatch(cert.value, key.value));
  report("SVC_TLS_CLIENT_CA_FILE", clientCa.problem);
  if (faults.length === 0) report("SVC_TLS_CERT_FILE", opensslRefusal(cert.bytes, key.bytes, clientCa.bytes));
  return faults;
}

/** A PEM file and its content; empty when none was given. */
interface PemFile<Value> {
  readonly bytes?: Buffer;
  readonly value?: Value;
  readonly problem?: string;
}

function parse<Value>(file: BootstrapFile | undefined, read: (pem: Buffer) => Value, problem: string): PemFile<Value> {
  if (file === undefined || "problem" in file) return file ?? {};
  try {
    return { bytes: file.bytes, value: read(file.bytes) };
  } catch {
    return { problem: `names a file that ${problem}` };
  }
}

/** X509Certificate also accepts DER, but the listener would not. */
function firstCertificate(pem: Buffer): X509Certificate {
  if (!pem.includes("-----BEGIN")) throw new TypeError("not PEM");
  return new X509Certificate(pem);
}

function mismatch(certificate: X509Certificate | undefined, key: KeyObject | undefined): string | undefined {
  if (certificate === undefined || key === undefined || certificate.checkPrivateKey(key)) return undefined;
  return "does not belong to the certificate of SVC_TLS_CERT_FILE";
}

/** Finds what only OpenSSL sees: a broken intermediate certificate, a key too small for its security level. */
function opensslRefusal(
  cert: Buffer | undefined,
  key: Buffer | undefined,
  clientCa: Buffer | undefined,
): string | undefined {
  if (cert === undefined || key === undefined || clientCa === undefined) return undefined;
  try {
    createSecureContext({ cert, key, ca: clientCa, minVersion: "TLSv1.3" });
    return undefined;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
    return `OpenSSL refuses the three TLS files together${code}`;
  }
}
