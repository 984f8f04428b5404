import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { BootstrapFile } from "./files.ts";
import type { BootstrapFault } from "./variables.ts";

/** The three TLS files as they were read. A file is undefined if it is not configured. */
export interface ReadTlsFiles {
  readonly cert: BootstrapFile | undefined;
  readonly key: BootstrapFile | undefined;
  readonly clientCa: BootstrapFile | undefined;
}

/**
 * Returns the faults that would keep a listener from starting with these files. A file that is not configured is not a
 * fault.
 */
export function tlsFaults(files: ReadTlsFiles): BootstrapFault[] {
  const faults: BootstrapFault[] = [];
  const parsed = <Value>(
    variable: BootstrapFault["variable"],
    file: BootstrapFile | undefined,
    parse: (pem: Buffer) => Value,
    malformed: string,
  ): { readonly bytes: Buffer; readonly value: Value } | undefined => {
    if (file === undefined) return undefined;
    try {
      if (!("problem" in file)) return { bytes: file.bytes, value: parse(file.bytes) };
    } catch {
      // OpenSSL's error is dropped, because its message may quote the file. The code below adds a fault instead.
    }
    faults.push({ variable, problem: "problem" in file ? file.problem : `names a file that ${malformed}` });
    return undefined;
  };
  const cert = parsed("SVC_TLS_CERT_FILE", files.cert, firstCertificate, "is not a PEM certificate");
  const key = parsed("SVC_TLS_KEY_FILE", files.key, createPrivateKey, "is not an unencrypted private key in PEM");
  if (cert !== undefined && key !== undefined && !cert.value.checkPrivateKey(key.value))
    faults.push({ variable: "SVC_TLS_KEY_FILE", problem: "does not belong to the certificate of SVC_TLS_CERT_FILE" });
  const ca = parsed("SVC_TLS_CLIENT_CA_FILE", files.clientCa, firstCertificate, "is not a PEM certificate");
  if (faults.length > 0 || cert === undefined || key === undefined || ca === undefined) return faults;
  try {
    // Finds faults that only OpenSSL detects, such as a broken intermediate certificate, or a key that is too small for
    // OpenSSL's security level.
    createSecureContext({ cert: cert.bytes, key: key.bytes, ca: ca.bytes, minVersion: "TLSv1.3" });
    return hasAuthority(ca.bytes) ? faults : [{ variable: "SVC_TLS_CLIENT_CA_FILE", problem: NO_AUTHORITY }];
  } catch (error) {
    const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
    return [
      { variable: "SVC_TLS_CERT_FILE", problem: `OpenSSL rejects the combination of the three TLS files${code}` },
    ];
  }
}

const NO_AUTHORITY =
  "names a file without a CA certificate (basicConstraints CA:TRUE), so every client would be refused";

/** Whether the file contains a CA certificate. Without one, the listener would refuse every client. */
function hasAuthority(pem: Buffer): boolean {
  const blocks = pem.toString("latin1").match(/-----BEGIN [^-]*CERTIFICATE-----[^]*?-----END [^-]*CERTIFICATE-----/g);
  return (blocks ?? []).some((block) => new X509Certificate(block).ca);
}

/** Rejects DER, which X509Certificate accepts but a listener does not. */
function firstCertificate(pem: Buffer): X509Certificate {
  if (!pem.includes("-----BEGIN")) throw new TypeError("not PEM");
  return new X509Certificate(pem);
}
