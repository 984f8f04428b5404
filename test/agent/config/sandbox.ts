import { writeFile } from "node:fs/promises";
import { BootstrapError, type BootstrapFault, readBootstrap } from "../../../src/agent/config/index.ts";
import { issueCertificates } from "../../../src/node/credentials/certificates.ts";
import { type TestDirectory, testDirectory } from "../../fixtures/files.ts";
import { addon } from "../../fixtures/spawning.ts";

/** Part of every value in the tests: it must never be in a message. */
export const MARKER = "mArKeR7f3a";

/** A directory of credential files. */
export interface CredentialDirectory extends TestDirectory {
  readonly token: string;
  readonly certFile: string;
  readonly keyFile: string;
  readonly clientCaFile: string;
  /** Writes another file and returns its path. */
  write(name: string, content: string | Uint8Array): Promise<string>;
}

export async function credentialDirectory(): Promise<CredentialDirectory> {
  const directory = await testDirectory(MARKER);
  const write = async (name: string, content: string | Uint8Array): Promise<string> => {
    await writeFile(directory.at(name), content);
    return directory.at(name);
  };
  const issued = await issueCertificates("guest-agent", {
    notBefore: new Date(0),
    notAfter: new Date(Date.now() + 3_600_000),
  });
  return {
    ...directory,
    token: `token-${MARKER}`,
    certFile: await write("server.pem", issued.server.cert),
    keyFile: await write("server.key", issued.server.key),
    clientCaFile: await write("ca.pem", issued.ca),
    write,
  };
}

/** A complete and correct channel for a TCP listener, with `changes` on top; undefined removes a variable. */
export function channel(
  directory: CredentialDirectory,
  changes: Readonly<Record<string, string | undefined>> = {},
): Uint8Array[] {
  const variables: Record<string, string | undefined> = {
    SVC_INSTANCE_TOKEN: directory.token,
    SVC_GUEST_PORT: "7071",
    SVC_TLS_CERT_FILE: directory.certFile,
    SVC_TLS_KEY_FILE: directory.keyFile,
    SVC_TLS_CLIENT_CA_FILE: directory.clientCaFile,
    ...changes,
  };
  return Object.entries(variables).flatMap(([name, value]) =>
    value === undefined ? [] : [Buffer.from(`${name}=${value}`)],
  );
}

/** Of the real addon. */
export const readFiles: typeof addon.readFiles = (paths, limitBytes) => addon.readFiles(paths, limitBytes);

/** The faults of a channel as `VARIABLE: problem` lines; none when it is accepted. */
export async function faultLines(environ: readonly Uint8Array[]): Promise<string[]> {
  try {
    await readBootstrap(environ, readFiles);
    return [];
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    return error.faults.map((fault: BootstrapFault) => `${fault.variable}: ${fault.problem}`);
  }
}
