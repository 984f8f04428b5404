import type { CredentialFile, ReadCredentialFile } from "./credential-file.ts";
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

/** Whether a listener could start with the material. False also where that cannot be told; then it is found out here. */
export type AcceptsTlsMaterial = (material: TlsMaterial) => boolean;

/**
 * Reads those TLS files that are given and checks that a listener could start with them. Material only when all three
 * are there and without faults.
 */
export async function readTlsMaterial(
  files: TlsFiles,
  accepts: AcceptsTlsMaterial,
  readFile: ReadCredentialFile,
): Promise<{ material: TlsMaterial | undefined; faults: readonly BootstrapFault[] }> {
  const read = async (path: string | undefined): Promise<CredentialFile | undefined> =>
    path === undefined ? undefined : readFile(path);
  const [cert, key, clientCa] = await Promise.all([read(files.cert), read(files.key), read(files.clientCa)]);
  if (cert === undefined && key === undefined && clientCa === undefined) return { material: undefined, faults: [] };
  const material = materialOf(cert, key, clientCa);
  if (material !== undefined && accepts(material)) return { material, faults: [] };
  // Only a fault needs what this loads: Node's whole crypto and TLS, 8 ms that the workload would wait for.
  const { tlsFaults } = await import("./tls-faults.ts");
  const faults = tlsFaults({ cert, key, clientCa });
  return { material: faults.length === 0 ? material : undefined, faults };
}

function materialOf(...files: readonly (CredentialFile | undefined)[]): TlsMaterial | undefined {
  const [cert, key, clientCa] = files.map((file) => (file === undefined || "problem" in file ? undefined : file.bytes));
  return cert === undefined || key === undefined || clientCa === undefined ? undefined : { cert, key, clientCa };
}
